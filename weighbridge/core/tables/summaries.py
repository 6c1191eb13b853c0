"""Summaries of draws by scalar entry: labels, moments, quantiles and shortest intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from weighbridge.core.tables.table import Table


def scalar_entries(samples: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The draws of every scalar entry, by its label.

    >>> list(scalar_entries({"w": np.zeros((9, 2)), "b": np.zeros(9)}))
    ['w[0]', 'w[1]', 'b']
    """
    return dict(_entries(samples))


def _entries(samples: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    for name, draws in samples.items():
        for index in np.ndindex(draws.shape[1:]):
            label = f"{name}[{','.join(map(str, index))}]" if index else name
            yield label, draws[(slice(None), *index)]


def first_entries(samples: Mapping[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    """The draws of the first ``most`` scalar entries; the others are not read.

    >>> list(first_entries({"w": np.zeros((9, 2)), "b": np.zeros(9)}, 2))
    ['w[0]', 'w[1]']
    """
    return dict(islice(_entries(samples), most))


def num_entries(samples: Mapping[str, np.ndarray]) -> int:
    """The number of scalar entries.

    >>> num_entries({"w": np.zeros((9, 2)), "b": np.zeros(9)})
    3
    """
    return sum(math.prod(draws.shape[1:]) for draws in samples.values())


def summarise(samples: Mapping[str, np.ndarray], weights: np.ndarray, probability: float) -> Table:
    """Weighted mean, standard deviation and two intervals of each scalar entry."""
    tail = 0.5 * (1 - probability)
    shortest = f"{100 * probability:g}% HDI"
    columns = (
        *("mean", "sd", f"{100 * tail:g}%", "50%", f"{100 * (1 - tail):g}%"),
        *(f"{shortest} low", f"{shortest} high"),
    )
    rows: dict[str, tuple[float, ...]] = {}
    for label, values in scalar_entries(samples).items():
        mean = float(np.sum(weights * values))
        deviation = float(np.sqrt(np.sum(weights * (values - mean) ** 2)))
        # No interpolation: a distant draw of almost no weight must not change a quantile.
        points = np.quantile(values, (tail, 0.5, 1 - tail), weights=weights, method="inverted_cdf")
        interval = highest_density_interval(values, weights, probability)
        rows[label] = (mean, deviation, *map(float, points), *interval)
    return Table(columns, rows)


def highest_density_intervals(
    draws: np.ndarray, probability: float
) -> tuple[np.ndarray, np.ndarray]:
    """The shortest intervals of equally weighted draws, along the first axis.

    >>> low, high = highest_density_intervals(np.array([[0.0, 5.0], [9.0, 6.0], [1.0, 5.5]]), 0.6)
    >>> low.tolist(), high.tolist()
    ([0.0, 5.0], [1.0, 5.5])
    """
    count = len(draws)
    inside = max(1, math.ceil(count * probability * (1 - 1e-9)))
    ordered = np.sort(draws, axis=0)
    lows, highs = ordered[: count - inside + 1], ordered[inside - 1 :]
    best = np.argmin(highs - lows, axis=0)[None]
    return np.take_along_axis(lows, best, axis=0)[0], np.take_along_axis(highs, best, axis=0)[0]


def highest_density_interval(
    values: np.ndarray, weights: np.ndarray, probability: float
) -> tuple[float, float]:
    r"""The shortest interval between two draws that holds a given probability.

    .. math:: \min_{i \le j} \; x_{(j)} - x_{(i)}
              \quad \text{with} \quad \sum_{k=i}^{j} w_{(k)} \ge p

    Chen & Shao (1999), J. Comput. Graph. Stat. 8:69-92. It is a single interval, also for a
    posterior with several modes.

    Args:
        values: the draws.
        weights: their weights, which add up to 1.
        probability: mass inside the interval.

    >>> highest_density_interval(np.array([0.0, 9.0, 1.0, 2.0]), np.full(4, 0.25), 0.75)
    (0.0, 2.0)
    """
    used = weights > 0
    order = np.argsort(values[used], kind="stable")
    ordered = values[used][order]
    upto = np.cumsum(weights[used][order])
    before = np.concatenate([[0.0], upto[:-1]])
    # Sums of weights have rounding errors, so a slightly smaller probability is accepted.
    last = np.searchsorted(upto, before + probability * (1 - 1e-9), side="left")
    starts = np.flatnonzero(last < len(ordered))
    if not len(starts):  # weights that add up to slightly less than 1
        return float(ordered[0]), float(ordered[-1])
    best = starts[np.argmin(ordered[last[starts]] - ordered[starts])]
    return float(ordered[best]), float(ordered[last[best]])
