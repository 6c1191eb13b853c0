"""How many moves a walk has, from how far the walkers of earlier batches have decorrelated."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.estimators.nested.clusters import Cluster

# Correlation between the start and the end of a walk that is aimed at.
DECORRELATED = 0.1
# Memory of the running means over batches.
MEMORY = 0.8
# The number of moves changes by at most this factor from one batch to the next.
FASTEST = 1.5
# Bounds on the number of moves: a floor for each coordinate, and a ceiling.
FLOOR, FLOOR_FOR_EACH = 4, 1.0
CEILING, CEILING_FOR_EACH = 100, 40


class Tuning(NamedTuple):
    """The settings of the next walk.

    Attributes:
        num_moves: number of moves.
        step_size: scale of random-walk steps.
        rate: running mean of minus the log of the correlation that one move leaves.
    """

    num_moves: int
    step_size: float
    rate: float

    @staticmethod
    def first(dimension: int, walks: bool) -> Tuning:
        """The settings before the first walk; random walks need more moves."""
        num_moves = (4 + 2 * dimension) * (5 if walks else 1)
        return Tuning(num_moves, 2.4 / math.sqrt(dimension), -math.log(DECORRELATED) / num_moves)

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
        # A correlation within its noise tells only that the walk was long enough.
        now = -math.log(min(max(remembered, 0.02), 0.99)) / self.num_moves
        rate = MEMORY * self.rate + (1 - MEMORY) * now
        wanted = -math.log(DECORRELATED) / rate
        wanted = min(max(wanted, self.num_moves / FASTEST), self.num_moves * FASTEST)
        floor = FLOOR + FLOOR_FOR_EACH * dimension
        num_moves = round(min(max(wanted, floor), CEILING + CEILING_FOR_EACH * dimension))
        best = 0.234 + 0.206 / dimension
        step_size = min(max(self.step_size * math.exp(acceptance - best), 1e-3), 10.0)
        return Tuning(fixed or num_moves, step_size, rate)


def correlation(
    start: np.ndarray, end: np.ndarray, level: tuple[np.ndarray, np.ndarray], cluster: Cluster
) -> float:
    """How much of their starts the walkers remember: positions in one metric, and likelihoods.

    Args:
        start, end: positions of the walkers, walkers x coordinates.
        level: log-likelihoods at the starts and at the ends.
        cluster: the cluster of all live points.
    """
    first, second = (np.linalg.solve(cluster.scale, (u - cluster.mean).T) for u in (start, end))
    # Ranks, because a few walkers far away would dominate a correlation.
    of_positions = np.mean([_rank_correlation(a, b) for a, b in zip(first, second)])
    return float(max(of_positions, _rank_correlation(*level)))


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    if len(one) < 3:
        return 0.0
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])
