"""The insertion test: new points must be inserted among the live ones at uniform ranks."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import kolmogorov

# The rolling test has windows of this many ranks, at least.
WINDOW = 500


class InsertionTest(NamedTuple):
    """P-values of uniform ranks: of all ranks, and of the worst window (times their number)."""

    p_value: float
    rolling_p_value: float


def sequential_ranks(
    survivors: tuple[np.ndarray, np.ndarray], new: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Rank of each new point among the survivors and the new points before it.

    Ranks among the survivors alone would not be independent: all new points share them. One by one
    they are independent, and uniform on 0, ..., n. Fowlie, Handley & Su (2020), MNRAS 497:5256.

    Args:
        survivors: log-likelihoods and tie numbers, islands x survivors.
        new: the same of the new points, islands x new points.

    Returns:
        The ranks, and the number of points among which each new point is inserted.
    """
    level = np.concatenate([survivors[0], new[0]], axis=1)
    tie = np.concatenate([survivors[1], new[1]], axis=1)
    num_survivors, num_new = survivors[0].shape[1], new[0].shape[1]
    ranks = np.lexsort((tie, level), axis=1)
    place = np.argsort(ranks, axis=1)
    of_new = place[:, num_survivors:]
    # Of the points below, those that came later do not count.
    below = of_new[:, None, :] < of_new[:, :, None]
    later = np.triu(np.ones((num_new, num_new), bool), 1)
    insertion = of_new - np.sum(below & later, axis=2)
    among = np.broadcast_to(num_survivors + np.arange(num_new), insertion.shape)
    return insertion, among.copy()


def insertion_test(
    insertion: np.ndarray, among: np.ndarray, generator: np.random.Generator
) -> InsertionTest:
    """Kolmogorov-Smirnov test of the ranks, spread uniformly over their cells.

    Args:
        insertion: the ranks in the order in which points were inserted; -1 for none.
        among: numbers of points that they were inserted among.
        generator: for the places within the cells.
    """
    known = insertion >= 0
    count = int(known.sum())
    if count < 2:
        return InsertionTest(math.nan, math.nan)
    uniform = (insertion[known] + generator.random(count)) / (among[known] + 1.0)
    pieces = np.array_split(uniform, max(1, count // WINDOW))
    worst = min(_uniform_p_value(piece) for piece in pieces)
    return InsertionTest(_uniform_p_value(uniform), 1.0 - (1.0 - worst) ** len(pieces))


def _uniform_p_value(values: np.ndarray) -> float:
    """P-value of a uniform distribution: Stephens (1970), J. R. Stat. Soc. B 32:115-122."""
    ordered, count = np.sort(values), len(values)
    steps = np.arange(count + 1) / count
    distance = max(np.max(steps[1:] - ordered), np.max(ordered - steps[:-1]))
    root = math.sqrt(count)
    return float(kolmogorov((root + 0.12 + 0.11 / root) * distance))
