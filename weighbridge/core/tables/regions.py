"""Highest-density regions of weighted draws: one interval, or several for several modes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from weighbridge.core.tables.summaries import highest_density_interval

# The gap between two intervals must have fewer draws than the level of the region asks for, and the
# smaller interval more than the gap would have, by this many standard deviations of their counts:
# noise makes no intervals.
SIGNIFICANT = 4.0
# With fewer effective draws than this, there is one interval.
LEAST_EFFECTIVE = 50.0
# The probability is divided among the intervals in this many parts.
PARTS = 200


class Interval(NamedTuple):
    """An interval, and the probability inside it."""

    low: float
    high: float
    mass: float


def highest_density_regions(
    values: np.ndarray,
    weights: np.ndarray,
    probability: float,
    num_effective: float | None = None,
) -> list[Interval]:
    r"""The shortest set of intervals between draws that holds a given probability.

    .. math:: \min \sum_k (b_k - a_k) \quad \text{with} \quad
              \sum_k P(a_k \le x \le b_k) \ge p

    This is where the density is above some level. The number of intervals comes from a histogram
    with bins of equal probability: two intervals are separated only if the bins between them have
    a density that is significantly below the level. With one interval it is the highest-density
    interval of ``summary``. Hyndman (1996), The American Statistician 50:120-126.

    Args:
        values: the draws.
        weights: their weights, which add up to 1.
        probability: mass inside the intervals together.
        num_effective: effective number of draws; by default that of the weights.

    >>> draws = np.concatenate([np.linspace(0, 1, 500), np.linspace(9, 10, 500)])
    >>> found = highest_density_regions(draws, np.full(1000, 1e-3), 0.9)
    >>> [(round(part.low), round(part.high)) for part in found]
    [(0, 1), (9, 10)]
    """
    used = weights > 0
    order = np.argsort(values[used], kind="stable")
    ordered, shares = values[used][order], weights[used][order]
    shares = shares / shares.sum()
    worth = 1 / float(np.sum(shares**2)) if num_effective is None else num_effective
    worth = min(worth, float(len(ordered)))
    cuts = _cuts(ordered, shares, probability, worth) if worth >= LEAST_EFFECTIVE else []
    if not cuts:
        low, high = highest_density_interval(ordered, shares, probability)
        inside = (ordered >= low) & (ordered <= high)
        return [Interval(low, high, float(shares[inside].sum()))]
    groups = np.split(np.arange(len(ordered)), np.searchsorted(ordered, cuts))
    return _shortest([ordered[g] for g in groups], [shares[g] for g in groups], probability)


def _cuts(ordered: np.ndarray, shares: np.ndarray, probability: float, worth: float) -> list[float]:
    """Points that separate the intervals of the region."""
    count = int(2 * math.sqrt(worth))
    upto = np.cumsum(shares)
    place = np.searchsorted(upto, np.arange(1, count) / count * (1 - 1e-9))
    place = np.unique(np.concatenate([[0], place, [len(ordered) - 1]]))
    edges = ordered[place]
    # What lies at an edge belongs to the bin below it.
    mass = np.diff(np.concatenate([[0.0], upto[place[1:]]]))
    width = np.maximum(np.diff(edges), np.finfo(float).tiny)
    density = mass / width
    by_density = np.argsort(-density, kind="stable")
    last = int(np.searchsorted(np.cumsum(mass[by_density]), probability * (1 - 1e-9)))
    level = float(density[by_density[min(last, len(density) - 1)]])
    inside = density >= level
    starts = np.flatnonzero(inside & ~np.concatenate([[False], inside[:-1]]))
    ends = np.flatnonzero(inside & ~np.concatenate([inside[1:], [False]])) + 1
    runs = list(zip(starts.tolist(), ends.tolist()))

    def excess(first: int, after: int, above: float) -> float:
        """How far a range of bins is above a density, in standard deviations of its count."""
        expected = above * float(edges[after] - edges[first]) * worth
        found = float(mass[first:after].sum()) * worth
        return (found - expected) / math.sqrt(max(expected, found, 1.0))

    # Join the two intervals whose gap is least significantly below the level, while it is not.
    while len(runs) > 1:
        gaps = [-excess(before[1], after[0], level) for before, after in pairwise(runs)]
        least = int(np.argmin(gaps))
        if gaps[least] >= SIGNIFICANT:
            break
        runs[least : least + 2] = [(runs[least][0], runs[least + 1][1])]
    # Leave out intervals that are not significantly above the gap next to them.
    largest = int(np.argmax([mass[first:after].sum() for first, after in runs]))
    kept = []
    for number, (first, after) in enumerate(runs):
        if number != largest:
            gap = (after, runs[number + 1][0]) if number < largest else (runs[number - 1][1], first)
            valley = float(mass[gap[0] : gap[1]].sum() / (edges[gap[1]] - edges[gap[0]]))
            if excess(first, after, valley) < SIGNIFICANT:
                continue
        kept.append((first, after))
    runs = kept
    cuts = []
    for (_, after), (first, _) in pairwise(runs):
        emptiest = after + int(np.argmin(density[after:first]))
        here = ordered[(ordered >= edges[emptiest]) & (ordered <= edges[emptiest + 1])]
        widest = int(np.argmax(np.diff(here)))
        cuts.append(float(0.5 * (here[widest] + here[widest + 1])))
    return cuts


def _shortest(
    groups: list[np.ndarray], shares: list[np.ndarray], probability: float
) -> list[Interval]:
    """One interval in each group, none in some, with the least total length.

    Dynamic programming over the probability, in parts.
    """
    part = probability / PARTS
    best = np.full(PARTS + 1, np.inf)
    best[0] = 0.0
    chosen = []
    for values, share in zip(groups, shares):
        lengths = [0.0] + [_length(values, share, part * k) for k in range(1, PARTS + 1)]
        table = np.full((PARTS + 1, PARTS + 1), np.inf)  # parts so far x parts of this group
        for k, length in enumerate(lengths):
            if math.isfinite(length):
                table[k:, k] = best[: PARTS + 1 - k] + length
        chosen.append(np.argmin(table, axis=1))
        best = np.min(table, axis=1)
    left, found = PARTS, []
    for values, share, choice in reversed(list(zip(groups, shares, chosen))):
        parts = int(choice[left])
        left -= parts
        if parts:
            low, high = highest_density_interval(values, share, part * parts)
            inside = (values >= low) & (values <= high)
            found.append(Interval(low, high, float(share[inside].sum())))
    return found[::-1]


def _length(values: np.ndarray, share: np.ndarray, mass: float) -> float:
    """Length of the shortest interval that holds a mass; infinite if there is not enough."""
    if mass * (1 - 1e-9) > share.sum():
        return math.inf
    low, high = highest_density_interval(values, share, mass)
    return high - low
