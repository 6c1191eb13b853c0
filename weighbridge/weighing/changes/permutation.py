"""Whether rows that arrive are like those before: a permutation test with a stated error rate.

Rows enter as numbers alone: a score each, and a vector that says where it pulls the posterior.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special

# The two ways in which a change shows.
SCORE, PULL = "log predictive", "parameters"

# An approximate p-value above this is good enough: nothing is at stake.
HARMLESS = 0.25
# Permutations are drawn until so many were as extreme as the data ...
ENOUGH_EXTREME = 20
# ... looking first after so many of them, and at the latest after so many.
FIRST_LOOK, MOST_PERMUTATIONS = 2_000, 16_000
# The tail beyond what permutations show is extrapolated from so many of the most extreme.
TAIL = 250
# A p-value that is below the rate by this factor need not be known better.
CLEARLY = 1e-2
# Smaller p-values are not told apart: so far out nothing is known of a tail.
SMALLEST = 1e-12
# Numbers permuted at once: memory stays flat.
BLOCK_VALUES = 1 << 20
# Fewest rows between a change and the end of its chunk: one outlier is no place.
FEWEST_AFTER = 5


class Signs(NamedTuple):
    """What rows show of a change.

    Attributes:
        score: log predictive density of each row, given the others.
        pull: rows x directions, where each row pulls the posterior.
        weight: how often each row counts.
    """

    score: np.ndarray
    pull: np.ndarray
    weight: np.ndarray


class PermutationResult(NamedTuple):
    """How a chunk compares with the reference.

    Attributes:
        p_value: of both tests together.
        seen_in: the test with the smaller one.
        score: mean score after the change minus that of the reference.
        first: the row of the chunk at which the change lies.
    """

    p_value: float
    seen_in: str
    score: float
    first: int


def compare_rows(
    reference: Signs, chunk: Signs, generator: np.random.Generator, rate: float
) -> PermutationResult:
    r"""Test whether the rows of a chunk are like those of a reference.

    With the rows of both together, centred and times their weight, as vectors :math:`c_i`, the sum
    over the chunk is compared with that over random rows, as many: on both sides in the score, and
    by its squared length in the pull. If rows are exchangeable each p-value is exact, whatever
    their distribution; the smaller one of the two counts double (Bonferroni).

    .. math:: S = \sum_{i \in \text{chunk}} c_i, \qquad
              p = 2 \min\bigl(2 \min(P(S_0^* \le S_0), P(S_0^* \ge S_0)),
              P(|S_{1:}^*|^2 \ge |S_{1:}|^2)\bigr)

    Permutations are drawn until enough of them are as extreme (Besag & Clifford 1991, Biometrika
    78:301-304); beyond the last, a generalised Pareto tail is fitted (Knijnenburg, Wessels,
    Reinders & Shmulevich 2009, Bioinformatics 25:i161-i168).

    Args:
        reference: rows since the last change.
        chunk: new ones.
        generator: of the permutations.
        rate: false-alarm rate near which the p-value must be right.

    >>> numbers = np.random.default_rng(0)
    >>> signs = [Signs(numbers.normal(size=n), numbers.normal(size=(n, 2)), np.ones(n))
    ...          for n in (300, 50)]
    >>> compare_rows(*signs, numbers, 1e-3).p_value > 0.05
    True
    >>> shaken = signs[1]._replace(score=signs[1].score - 2 * (np.arange(50) >= 20))
    >>> verdict = compare_rows(signs[0], shaken, numbers, 1e-3)
    >>> verdict.p_value < 1e-3, verdict.seen_in, 17 <= verdict.first <= 23
    (True, 'log predictive', True)
    """
    weight = np.concatenate([reference.weight, chunk.weight])
    signs = np.column_stack(
        [
            np.concatenate([reference.score, chunk.score]),
            np.concatenate([reference.pull, chunk.pull]),
        ]
    )
    size, total = len(chunk.weight), weight.sum()
    if not size or chunk.weight.sum() <= 0 or reference.weight.sum() <= 0:
        return PermutationResult(1.0, SCORE, 0.0, 0)
    parts = (signs - weight @ signs / total) * weight[:, None]
    p_values = _p_values(parts, size, generator, rate)
    seen_in = SCORE if p_values[0] <= p_values[1] else PULL
    first = _place(reference, chunk, seen_in)
    old = np.average(reference.score, weights=reference.weight)
    after = chunk.weight[first:]
    new = np.average(chunk.score[first:], weights=after) if after.sum() > 0 else old
    return PermutationResult(min(1.0, 2 * min(p_values)), seen_in, float(new - old), first)


def _p_values(
    parts: np.ndarray, size: int, generator: np.random.Generator, rate: float
) -> tuple[float, float]:
    """Of the score, on both sides, and of the pull: for the last rows against random ones."""
    observed = parts[-size:].sum(axis=0)
    score, pull = float(observed[0]), float(observed[1:] @ observed[1:])
    rough = _approximate(parts, size, score, pull)
    if min(rough) > HARMLESS:
        return rough
    # The rows that are left over sum to the opposite: the fewer of both are drawn.
    drawn = min(size, len(parts) - size)
    if drawn < size:
        score = -score
    scores, pulls = np.empty(0), np.empty(0)
    wanted, found = FIRST_LOOK, rough
    while wanted <= MOST_PERMUTATIONS:
        sums = _permuted_sums(parts, drawn, wanted - len(scores), generator)
        scores = np.concatenate([scores, sums[:, 0]])
        pulls = np.concatenate([pulls, np.einsum("ij,ij->i", sums[:, 1:], sums[:, 1:])])
        lower, few_lower = _tail_probability(-scores, -score)
        upper, few_upper = _tail_probability(scores, score)
        beyond, few_beyond = _tail_probability(pulls, pull)
        two_sided = min(1.0, 2 * min(lower, upper))
        found = (two_sided, beyond)
        unsure = few_lower or few_upper if two_sided < beyond else few_beyond
        if not unsure or 2 * min(found) < CLEARLY * rate:
            break
        wanted *= 2
    return found


def _approximate(parts: np.ndarray, size: int, score: float, pull: float) -> tuple[float, float]:
    """By the first two moments of the permutations: a normal, and a scaled chi-squared."""
    count = len(parts)
    share = size * (count - size) / (count * max(count - 1, 1))
    covariance = share * (parts.T @ parts)
    deviation = math.sqrt(covariance[0, 0])
    one_sided = special.ndtr(-abs(score) / deviation) if deviation > 0 else 0.5
    mean = float(np.trace(covariance[1:, 1:]))
    square = float(np.sum(covariance[1:, 1:] ** 2))
    if not square > 0:
        return float(2 * one_sided), 1.0
    return float(2 * one_sided), float(special.chdtrc(mean**2 / square, pull * mean / square))


def _permuted_sums(
    parts: np.ndarray, size: int, wanted: int, generator: np.random.Generator
) -> np.ndarray:
    """Sums over random rows; every permutation gives as many sums as there is room for."""
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
    """Share of numbers as large, and whether they were too few to count."""
    extreme = int(np.sum(drawn >= observed - 1e-12 * abs(observed)))
    if extreme >= ENOUGH_EXTREME:
        return (extreme + 1) / (len(drawn) + 1), False
    tail = np.sort(drawn)[-TAIL - 1 :]
    excess = tail[1:] - tail[0]
    mean, variance = float(excess.mean()), float(excess.var(ddof=1))
    if not variance > 0:  # all alike: nothing to go by
        return (extreme + 1) / (len(drawn) + 1), True
    # Generalised Pareto by moments. A shape below 0 would put an end to the tail.
    shape = 0.5 * (1.0 - mean**2 / variance)
    shape = min(max(shape, 0.0), 0.45)
    scale = mean * (1.0 - shape)
    beyond = max(observed - float(tail[0]), 0.0) / scale
    survival = math.exp(-beyond) if shape < 1e-6 else (1.0 + shape * beyond) ** (-1.0 / shape)
    return max(TAIL / len(drawn) * survival, SMALLEST), True


def _place(reference: Signs, chunk: Signs, seen_in: str) -> int:
    """The row of the chunk from which on it differs most clearly from the reference.

    Along the direction of the difference, with the mean before known, it is the maximum of the
    likelihood ratio: the squared sum of what follows, by its number.
    """
    if seen_in == SCORE:
        before, after = reference.score[:, None], chunk.score[:, None]
    else:
        before, after = reference.pull, chunk.pull
    centre = np.average(before, axis=0, weights=reference.weight)
    direction = chunk.weight @ (after - centre)
    along = chunk.weight * ((after - centre) @ direction)
    following = np.cumsum(along[::-1])[::-1]
    count = np.maximum(np.cumsum(chunk.weight[::-1])[::-1], np.finfo(float).tiny)
    candidates = max(len(along) - FEWEST_AFTER + 1, 1)
    ratio = np.where(following > 0, following**2 / count, 0.0)[:candidates]
    return int(np.argmax(ratio))
