"""How many moves a walk has, from how far the walkers of earlier batches have decorrelated."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.estimators.nested.moves.walk import Place
from weighbridge.estimators.nested.points import Points

# Rank correlation between the likelihoods at the starts and the ends of walks that is aimed at
# (``python -m benchmarks.nested.moves``).
AIM = 0.1
# Share of the earlier batches in the running mean of the correlation, which is noisy.
EARLIER = 0.8
# How fast the number of moves follows a correlation that differs from the aim, and the bounds of
# its change from one batch to the next.
GAIN = 4.0
SLOWEST, FASTEST = 0.9, 1.5
# Bounds on the number of moves: a floor, a part of it for each coordinate, and a ceiling. The floor
# of random walks, whose moves are smaller, is a multiple of it.
FLOOR, FLOOR_FOR_EACH = 2, 2.0
WALKS_FLOOR = 10
CEILING, CEILING_FOR_EACH = 100, 40
# While at least this share of the walkers jump (``jumps``), walks have this part of the moves.
MOST_JUMP, OF_JUMPERS = 0.8, 0.25
# Share of the draws that must be above the contour; below it, each walker tries one draw only.
LEAST_FOUND = 0.12
# Share of the walkers that should be within reach of jumps, and how fast the reach follows.
WITHIN_REACH, REACH_GAIN = 0.97, 0.5
LEAST_REACH, MOST_REACH = 0.8, 1.5
# Share of the earlier batches in the running means of jumps.
EARLIER_JUMPS = 0.5


class Tuning(NamedTuple):
    """The settings of the next walk.

    Attributes:
        length: number of moves of walkers that do not jump, before it is rounded.
        step_size: scale of random-walk steps.
        remembered: running mean of the correlation that a walk leaves.
        floor: least length.
        jumped: running mean of the share of the walkers that jumped.
        found: running mean of the share of the draws for jumps that were above the contour.
        reach: of jumps: the radius of ellipsoids, relative to their farthest point.
    """

    length: float
    step_size: float
    remembered: float
    floor: float
    jumped: float = 0.65
    found: float = 0.5
    reach: float = 1.05

    def num_moves(self, jumps: bool) -> int:
        """Number of moves of a walk.

        Args:
            jumps: whether walkers try to jump before they walk.
        """
        short = jumps and self.jumped >= MOST_JUMP
        return max(1, round(self.length * OF_JUMPERS if short else self.length))

    @staticmethod
    def first(dimension: int, walks: bool) -> Tuning:
        """The settings before the first walk; random walks need more moves."""
        floor = (FLOOR + FLOOR_FOR_EACH * dimension) * (WALKS_FLOOR if walks else 1)
        return Tuning(floor, 2.4 / math.sqrt(dimension), AIM, floor)

    def with_floor(self, least: float) -> Tuning:
        """The settings with at least this many moves."""
        floor = max(self.floor, least)
        return self._replace(length=max(self.length, floor), floor=floor)

    def after(
        self, remembered: float, acceptance: float, dimension: int, fixed: int | None
    ) -> Tuning:
        """The settings after a walk.

        Args:
            remembered: correlation between the likelihoods at the starts and the ends of the walk.
            acceptance: share of the moves that changed the position.
            dimension: number of coordinates.
            fixed: number of moves that the user wants.
        """
        mean = EARLIER * self.remembered + (1 - EARLIER) * remembered
        factor = min(max(1.0 + GAIN * (mean - AIM), SLOWEST), FASTEST)
        ceiling = CEILING + CEILING_FOR_EACH * dimension
        length = min(max(self.length * factor, self.floor), ceiling)
        best = 0.234 + 0.206 / dimension
        step_size = min(max(self.step_size * math.exp(acceptance - best), 1e-3), 10.0)
        return self._replace(length=float(fixed or length), step_size=step_size, remembered=mean)

    def after_jumps(self, jumped: float, within: float, found: float | None) -> Tuning:
        """The settings after the jumps of a batch.

        Args:
            jumped: share of the walkers that jumped.
            within: share of the walkers within reach.
            found: share of the draws that were above the contour; None if there were none.
        """
        keep, new = EARLIER_JUMPS, 1.0 - EARLIER_JUMPS
        reach = self.reach * math.exp(REACH_GAIN * (WITHIN_REACH - within))
        return self._replace(
            jumped=keep * self.jumped + new * jumped,
            found=self.found if found is None else keep * self.found + new * found,
            reach=min(max(reach, LEAST_REACH), MOST_REACH),
        )


def memory(starts: Points, place: Place, num_islands: int) -> float:
    """Rank correlation between the likelihoods at which walkers start and end, within an island.

    Other contours would look like memory. Positions are not compared: walkers remember their mode,
    and may. Every survivor starts as many walkers as any other, so that modes keep their shares of
    the points; within a mode, the floor of the number of moves takes care of positions.

    Args:
        starts: where the walkers started.
        place: where they are.
        num_islands: number of islands; all have the same number of walkers.
    """
    # Tie numbers are drawn anew in every move, so that points of a plateau have no memory.
    levels = ((starts.log_likelihood, starts.tie), (place.log_likelihood, place.tie))
    orders = (np.lexsort([u.reshape(num_islands, -1) for u in pair[::-1]]) for pair in levels)
    return _rank_correlation(*(np.argsort(order) for order in orders))


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's correlation along the last axis."""
    count = one.shape[-1]
    if count < 3:
        return 0.0
    ranks = [np.argsort(np.argsort(values)) - (count - 1) / 2 for values in (one, other)]
    return float(np.mean(ranks[0] * ranks[1]) * 12 / (count**2 - 1))
