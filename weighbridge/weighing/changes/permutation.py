"""A permutation test of new rows against the rows before, with a stated error rate.

Each row enters as numbers only: a score, and a vector of its influence on the posterior.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special

# The two statistics that can show a change.
SCORE, INFLUENCE = "log predictive", "parameters"

# Above this an approximate p-value is good enough, and no permutations are drawn.
CLEARLY_LARGE = 0.25
# Permutations are drawn until at least this many are as extreme as the data.
ENOUGH_EXTREME = 20
# They are counted first after FIRST_PERMUTATIONS; the number doubles up to MOST_PERMUTATIONS.
FIRST_PERMUTATIONS, MOST_PERMUTATIONS = 2_000, 16_000
# If too few are as extreme, the tail is extrapolated from this many of the most extreme ones.
TAIL = 250
# A p-value below this fraction of the rate needs no more permutations.
CLEARLY_BELOW = 1e-2
# Smaller p-values are replaced by this one: the tail is not known so far out.
SMALLEST_P_VALUE = 1e-12
# Numbers permuted at once, which bounds the memory.
BLOCK_VALUES = 1 << 20
# Fewest rows between a change and the end of its chunk: one outlier does not locate a change.
FEWEST_AFTER = 5


class RowStatistics(NamedTuple):
    """Statistics of rows that may show a change.

    Attributes:
        score: log predictive density of each row, given the others.
        influence: rows x directions, the influence of each row on the posterior.
        weight: how often each row counts.
    """

    score: np.ndarray
    influence: np.ndarray
    weight: np.ndarray


class PermutationResult(NamedTuple):
    """The result of the test of a chunk against the reference.

    Attributes:
        p_value: of both statistics together.
        seen_in: the statistic with the smaller p-value.
        score: mean score after the change, minus that of the reference.
        first: index in the chunk of the first row after the change.
    """

    p_value: float
    seen_in: str
    score: float
    first: int


def compare_rows(
    reference: RowStatistics, chunk: RowStatistics, generator: np.random.Generator, rate: float
) -> PermutationResult:
    r"""Test whether the rows of a chunk are like those of a reference.

    A row of the reference or the chunk has a vector :math:`c_i`: its score (component 0) and its
    influence (components 1 and on), minus their weighted mean over all rows, times its weight. The
    sum over the chunk is compared with sums over equally many random rows: two-sided for the
    score, by the squared length for the influence. If rows are exchangeable, each p-value is
    exact, whatever their distribution. The smaller of the two is doubled (Bonferroni).

    .. math:: S = \sum_{i \in \text{chunk}} c_i, \qquad
              p = 2 \min\bigl(2 \min(P(S_0^* \le S_0), P(S_0^* \ge S_0)),
              P(|S_{1:}^*|^2 \ge |S_{1:}|^2)\bigr)

    Permutations are drawn until enough of them are as extreme (Besag & Clifford 1991, Biometrika
    78:301-304). If there are too few, a generalised Pareto tail is fitted (Knijnenburg, Wessels,
    Reinders & Shmulevich 2009, Bioinformatics 25:i161-i168).

    Args:
        reference: rows since the last change.
        chunk: the new rows.
        generator: random numbers for the permutations.
        rate: false-alarm rate; the p-value must be accurate near it.

    >>> numbers = np.random.default_rng(0)
    >>> old, new = (RowStatistics(numbers.normal(size=n), numbers.normal(size=(n, 2)), np.ones(n))
    ...             for n in (300, 50))
    >>> compare_rows(old, new, numbers, 1e-3).p_value > 0.05
    True
    >>> changed = new._replace(score=new.score - 2 * (np.arange(50) >= 20))
    >>> test = compare_rows(old, changed, numbers, 1e-3)
    >>> test.p_value < 1e-3, test.seen_in, 17 <= test.first <= 23
    (True, 'log predictive', True)
    """
    weight = np.concatenate([reference.weight, chunk.weight])
    statistics = np.column_stack(
        [
            np.concatenate([reference.score, chunk.score]),
            np.concatenate([reference.influence, chunk.influence]),
        ]
    )
    size, total = len(chunk.weight), weight.sum()
    if not size or chunk.weight.sum() <= 0 or reference.weight.sum() <= 0:
        return PermutationResult(1.0, SCORE, 0.0, 0)
    parts = (statistics - weight @ statistics / total) * weight[:, None]
    p_values = _p_values(parts, size, generator, rate)
    seen_in = SCORE if p_values[0] <= p_values[1] else INFLUENCE
    first = _place(reference, chunk, seen_in)
    old = np.average(reference.score, weights=reference.weight)
    after = chunk.weight[first:]
    new = np.average(chunk.score[first:], weights=after) if after.sum() > 0 else old
    return PermutationResult(min(1.0, 2 * min(p_values)), seen_in, float(new - old), first)


def _p_values(
    parts: np.ndarray, size: int, generator: np.random.Generator, rate: float
) -> tuple[float, float]:
    """P-values of the score (two-sided) and the influence: the last rows against random ones."""
    observed = parts[-size:].sum(axis=0)
    score, influence = float(observed[0]), float(observed[1:] @ observed[1:])
    rough = _approximate(parts, size, score, influence)
    if min(rough) > CLEARLY_LARGE:
        return rough
    # All rows sum to zero, so the other rows have the opposite sum. The smaller set is drawn.
    drawn = min(size, len(parts) - size)
    if drawn < size:
        score = -score
    scores, influences = np.empty(0), np.empty(0)
    wanted, found = FIRST_PERMUTATIONS, rough
    while wanted <= MOST_PERMUTATIONS:
        sums = _permuted_sums(parts, drawn, wanted - len(scores), generator)
        scores = np.concatenate([scores, sums[:, 0]])
        squares = np.einsum("ij,ij->i", sums[:, 1:], sums[:, 1:])
        influences = np.concatenate([influences, squares])
        lower, few_lower = _tail_probability(-scores, -score)
        upper, few_upper = _tail_probability(scores, score)
        beyond, few_beyond = _tail_probability(influences, influence)
        two_sided = min(1.0, 2 * min(lower, upper))
        found = (two_sided, beyond)
        unsure = few_lower or few_upper if two_sided < beyond else few_beyond
        if not unsure or 2 * min(found) < CLEARLY_BELOW * rate:
            break
        wanted *= 2
    return found


def _approximate(
    parts: np.ndarray, size: int, score: float, influence: float
) -> tuple[float, float]:
    """Approximate p-values: a normal and a scaled chi-squared with the permutations' moments."""
    count = len(parts)
    share = size * (count - size) / (count * max(count - 1, 1))
    covariance = share * (parts.T @ parts)
    deviation = math.sqrt(covariance[0, 0])
    one_sided = special.ndtr(-abs(score) / deviation) if deviation > 0 else 0.5
    mean = float(np.trace(covariance[1:, 1:]))
    square = float(np.sum(covariance[1:, 1:] ** 2))
    if not square > 0:
        return float(2 * one_sided), 1.0
    return float(2 * one_sided), float(special.chdtrc(mean**2 / square, influence * mean / square))


def _permuted_sums(
    parts: np.ndarray, size: int, wanted: int, generator: np.random.Generator
) -> np.ndarray:
    """Sums over random rows; one permutation gives as many disjoint sums as its rows allow."""
    count, width = parts.shape
    blocks = count // size
    at_once = min(max(BLOCK_VALUES // (count * width), 1), -(-wanted // blocks))
    order = np.broadcast_to(np.arange(count), (at_once, count))
    found, missing = [], wanted
    while missing > 0:
        chosen = generator.permuted(order, axis=1)[:, : blocks * size]
        sums = parts[chosen].reshape(at_once * blocks, size, width).sum(axis=1)
        found.append(sums[:missing])
        missing -= len(sums)
    return np.concatenate(found)


def _tail_probability(drawn: np.ndarray, observed: float) -> tuple[float, bool]:
    """Probability of a value as large as observed, and whether too few were drawn to count."""
    extreme = int(np.sum(drawn >= observed - 1e-12 * abs(observed)))
    if extreme >= ENOUGH_EXTREME:
        return (extreme + 1) / (len(drawn) + 1), False
    tail = np.sort(drawn)[-TAIL - 1 :]
    excess = tail[1:] - tail[0]
    mean, variance = float(excess.mean()), float(excess.var(ddof=1))
    if not variance > 0:  # equal values: no tail can be fitted
        return (extreme + 1) / (len(drawn) + 1), True
    # Generalised Pareto by moments. A shape below 0 would give the tail an upper end.
    shape = 0.5 * (1.0 - mean**2 / variance)
    shape = min(max(shape, 0.0), 0.45)
    scale = mean * (1.0 - shape)
    beyond = max(observed - float(tail[0]), 0.0) / scale
    survival = math.exp(-beyond) if shape < 1e-6 else (1.0 + shape * beyond) ** (-1.0 / shape)
    return max(TAIL / len(drawn) * survival, SMALLEST_P_VALUE), True


def _place(reference: RowStatistics, chunk: RowStatistics, seen_in: str) -> int:
    """The row of the chunk from which on it differs most clearly from the reference.

    It maximises the likelihood ratio along the direction of the difference, with a known mean
    before the change: the squared sum over the rows from there on, divided by their number.
    """
    if seen_in == SCORE:
        before, after = reference.score[:, None], chunk.score[:, None]
    else:
        before, after = reference.influence, chunk.influence
    centre = np.average(before, axis=0, weights=reference.weight)
    direction = chunk.weight @ (after - centre)
    along = chunk.weight * ((after - centre) @ direction)
    following = np.cumsum(along[::-1])[::-1]
    count = np.maximum(np.cumsum(chunk.weight[::-1])[::-1], np.finfo(float).tiny)
    candidates = max(len(along) - FEWEST_AFTER + 1, 1)
    ratio = np.where(following > 0, following**2 / count, 0.0)[:candidates]
    return int(np.argmax(ratio))
