"""How many moves a walk has, from how far the walkers of earlier batches have decorrelated."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.estimators.nested.clusters import Cluster
from weighbridge.estimators.nested.moves.walk import Place
from weighbridge.estimators.nested.points import Points

# Rank correlations between the starts and the ends of walks that are aimed at: of likelihoods, and
# of positions. More moves change no answer (``python -m benchmarks.nested.moves``).
LEVEL_AIM, POSITION_AIM = 0.1, 0.5
# Share of the earlier batches in the running mean of the correlation, which is noisy.
EARLIER = 0.8
# How fast the number of moves follows a correlation that differs from the aim, and the bounds of
# its change from one batch to the next.
GAIN = 0.3
SLOWEST, FASTEST = 0.9, 1.5
# Bounds on the number of moves: a floor, a part of it for each coordinate, and a ceiling. The floor
# of random walks, whose moves are smaller, is a multiple of it.
FLOOR, FLOOR_FOR_EACH = 3, 1.0
WALKS_FLOOR = 5
CEILING, CEILING_FOR_EACH = 100, 40


class Tuning(NamedTuple):
    """The settings of the next walk.

    Attributes:
        length: number of moves, before it is rounded.
        step_size: scale of random-walk steps.
        remembered: running mean of the correlation that a walk leaves, in units of the aim.
        floor: least number of moves.
    """

    length: float
    step_size: float
    remembered: float
    floor: float

    @property
    def num_moves(self) -> int:
        """Number of moves."""
        return round(self.length)

    @staticmethod
    def first(dimension: int, walks: bool) -> Tuning:
        """The settings before the first walk; random walks need more moves."""
        floor = (FLOOR + FLOOR_FOR_EACH * dimension) * (WALKS_FLOOR if walks else 1)
        return Tuning(floor, 2.4 / math.sqrt(dimension), 1.0, floor)

    def after(
        self, remembered: Memory, acceptance: float, dimension: int, fixed: int | None
    ) -> Tuning:
        """The settings after a walk.

        Args:
            remembered: correlations between the starts and the ends of the walk.
            acceptance: share of the moves that changed the position.
            dimension: number of coordinates.
            fixed: number of moves that the user wants.
        """
        now = max(remembered.level / LEVEL_AIM, remembered.position / POSITION_AIM)
        mean = EARLIER * self.remembered + (1 - EARLIER) * now
        factor = min(max(1.0 + GAIN * (mean - 1.0), SLOWEST), FASTEST)
        ceiling = CEILING + CEILING_FOR_EACH * dimension
        length = min(max(self.length * factor, self.floor), ceiling)
        best = 0.234 + 0.206 / dimension
        step_size = min(max(self.step_size * math.exp(acceptance - best), 1e-3), 10.0)
        return Tuning(float(fixed or length), step_size, mean, self.floor)


class Memory(NamedTuple):
    """Rank correlations between the starts and the ends of walks."""

    position: float
    level: float


def memory(starts: Points, place: Place, clusters: list[Cluster], num_islands: int) -> Memory:
    """How much of their starts the walkers remember.

    Likelihoods are compared within an island: other contours would look like memory. Positions are
    compared if there is one cluster. With several, walkers remember their mode, and may: every
    survivor starts as many walkers as any other, so that modes keep their shares of the points.

    Args:
        starts: where the walkers started.
        place: where they are.
        clusters: clusters of the surviving points.
        num_islands: number of islands; all have the same number of walkers.
    """
    position = 0.0
    if len(clusters) == 1:
        (_, mean, scale) = clusters[0]
        whitened = (np.linalg.solve(scale, (u - mean).T) for u in (starts.position, place.position))
        position = float(np.mean([_rank_correlation(a, b) for a, b in zip(*whitened)]))
    # Tie numbers are drawn anew in every move, so that points of a plateau have no memory.
    levels = ((starts.log_likelihood, starts.tie), (place.log_likelihood, place.tie))
    orders = (np.lexsort([u.reshape(num_islands, -1) for u in pair[::-1]]) for pair in levels)
    return Memory(position, _rank_correlation(*(np.argsort(order) for order in orders)))


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's correlation along the last axis; ranks, because of walkers far away."""
    count = one.shape[-1]
    if count < 3:
        return 0.0
    ranks = [np.argsort(np.argsort(values)) - (count - 1) / 2 for values in (one, other)]
    return float(np.mean(ranks[0] * ranks[1]) * 12 / (count**2 - 1))
