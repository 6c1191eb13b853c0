"""How many moves a walk has, from how far the walkers of earlier batches have decorrelated."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.estimators.nested.clusters import Cluster
from weighbridge.estimators.nested.moves.walk import Place
from weighbridge.estimators.nested.points import Points

# Correlation between the start and the end of a walk that is aimed at.
DECORRELATED = 0.04
# Share of the earlier batches in the running mean of the correlation, which is noisy.
EARLIER = 0.8
# How fast the number of moves follows a correlation that differs from the aim, and the bounds of
# its change from one batch to the next.
GAIN = 4.0
SLOWEST, FASTEST = 0.9, 1.5
# Correlations in clusters with fewer walkers are noise.
LEAST_WALKERS = 20
# Bounds on the number of moves: a floor for each coordinate, and a ceiling.
FLOOR, FLOOR_FOR_EACH = 8, 1.0
CEILING, CEILING_FOR_EACH = 100, 40


class Tuning(NamedTuple):
    """The settings of the next walk.

    Attributes:
        length: number of moves, before it is rounded.
        step_size: scale of random-walk steps.
        remembered: running mean of the correlation that a walk leaves.
    """

    length: float
    step_size: float
    remembered: float

    @property
    def num_moves(self) -> int:
        """Number of moves."""
        return round(self.length)

    @staticmethod
    def first(dimension: int, walks: bool) -> Tuning:
        """The settings before the first walk; random walks need more moves."""
        length = (8 + 4 * dimension) * (5 if walks else 1)
        return Tuning(float(length), 2.4 / math.sqrt(dimension), DECORRELATED)

    def after(
        self, remembered: float, acceptance: float, dimension: int, fixed: int | None
    ) -> Tuning:
        """The settings after a walk.

        Args:
            remembered: correlation between the starts and the ends of the walk.
            acceptance: share of the moves that changed the position.
            dimension: number of coordinates.
            fixed: number of moves that the user wants.
        """
        mean = EARLIER * self.remembered + (1 - EARLIER) * remembered
        factor = min(max(1.0 + GAIN * (mean - DECORRELATED), SLOWEST), FASTEST)
        floor = FLOOR + FLOOR_FOR_EACH * dimension
        ceiling = CEILING + CEILING_FOR_EACH * dimension
        length = min(max(self.length * factor, floor), ceiling)
        best = 0.234 + 0.206 / dimension
        step_size = min(max(self.step_size * math.exp(acceptance - best), 1e-3), 10.0)
        return Tuning(float(fixed or length), step_size, mean)


class Memory(NamedTuple):
    """Rank correlations between the starts and the ends of walks."""

    position: float
    level: float


def memory(
    starts: Points, place: Place, clusters: list[Cluster], own: np.ndarray, num_islands: int
) -> Memory:
    """How much of their starts the walkers remember.

    Positions are compared within the cluster of the start and likelihoods within an island: other
    clusters and other contours would look like memory.

    Args:
        starts: where the walkers started.
        place: where they are.
        clusters: clusters of the surviving points.
        own: index of the surviving point at which each walker started.
        num_islands: number of islands; all have the same number of walkers.
    """
    member_of = np.empty(sum(len(cluster.members) for cluster in clusters), int)
    for number, cluster in enumerate(clusters):
        member_of[cluster.members] = number
    mine = member_of[own]
    found = []
    for number, (_, mean, scale) in enumerate(clusters):
        some = mine == number
        if some.sum() < LEAST_WALKERS:
            continue
        pair = (np.linalg.solve(scale, (u[some] - mean).T) for u in (starts.position, place[0]))
        found.append((some.sum(), np.mean([_rank_correlation(a, b) for a, b in zip(*pair)])))
    position = sum(n * c for n, c in found) / sum(n for n, _ in found) if found else 0.0
    # Tie numbers are drawn anew in every move, so that points of a plateau have no memory.
    levels = ((starts.log_likelihood, starts.tie), (place.log_likelihood, place.tie))
    orders = (np.lexsort([u.reshape(num_islands, -1) for u in pair[::-1]]) for pair in levels)
    return Memory(float(position), _rank_correlation(*(np.argsort(order) for order in orders)))


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's correlation along the last axis; ranks, because of walkers far away."""
    count = one.shape[-1]
    if count < 3:
        return 0.0
    ranks = [np.argsort(np.argsort(values)) - (count - 1) / 2 for values in (one, other)]
    return float(np.mean(ranks[0] * ranks[1]) * 12 / (count**2 - 1))
