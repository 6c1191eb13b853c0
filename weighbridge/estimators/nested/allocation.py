r"""Where further points help most: between which contours, and how many.

Higson, Handley, Hobson & Lasenby (2019), Dynamic nested sampling: an improved algorithm for
parameter estimation and evidence calculation, Statistics and Computing 29:891-913.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.estimators.nested.points import PRIOR_CONTOUR, Points, num_live
from weighbridge.estimators.nested.volumes import log_shrinkage, log_sums

GOALS = ("evidence", "posterior")
# Share of the points that the first run gets; the others are added where they help.
FIRST_SHARE = 0.4
# Points are added so many times; each time the importance is computed from all points so far.
BLOCKS = 2
# Points are added where the importance is more than this, relative to its maximum.
IMPORTANT = 0.25
# Draws from the prior for each live point. The lowest die without being replaced: a draw costs one
# evaluation, a walker many. Rejection down to the volume 1/8 in three halvings has 1 + 1 + 2 + 4
# evaluations for each live point, the same number, and fewer live points on the way.
PRIOR_DRAWS = 8
# Log prior mass that costs as much as the walks to the first points at a contour.
START_DEPTH = 2.0


def live_in_first_run(num_live: int, goal: str) -> int:
    """Live points of the first run, if there are so many on average.

    >>> live_in_first_run(100, ""), live_in_first_run(100, "posterior")
    (100, 40)
    """
    return max(2, round(FIRST_SHARE * num_live)) if goal else num_live


class AddedBlock(NamedTuple):
    """Points that are added between two contours.

    Attributes:
        contour: log-likelihood and tie number above which they start; ``PRIOR_CONTOUR`` for none.
        until: log-likelihood at which their run ends.
        num_live: live points of an island.
    """

    contour: tuple[float, float]
    until: float
    num_live: int


def importance(log_weights: np.ndarray, nlive: np.ndarray, goal: str) -> np.ndarray:
    r"""How much one more point at the place of each point helps, relative to its maximum.

    .. math:: I_Z(i) \propto Z_{\ge i} / n_i, \qquad I_{posterior}(i) \propto L_i w_i

    Args:
        log_weights: normalised, of the points from the lowest to the highest.
        nlive: live points.
        goal: "evidence" or "posterior".

    >>> importance(np.log(np.array([0.5, 0.25, 0.25])), np.array([2, 2, 1]), "evidence").tolist()
    [1.0, 0.5, 0.5]
    """
    share = np.exp(log_weights)
    found = share if goal == "posterior" else np.cumsum(share[::-1])[::-1] / nlive
    return np.asarray(found / found.max())


def plan_block(
    points: Points, goal: str, budget: float, blocks_left: int, least: int
) -> AddedBlock | None:
    """The next points to add; None if too little of the budget is left.

    Args:
        points: all points so far.
        goal: "evidence" or "posterior".
        budget: walkers of an island that may still be made.
        blocks_left: how often points can still be added, this time included.
        least: fewest live points of an island.
    """
    ordered = points.sorted()
    nlive = num_live(ordered)
    sums = log_sums(ordered.log_likelihood, log_shrinkage(nlive))
    helpful = np.flatnonzero(importance(sums.log_weights, nlive, goal) > IMPORTANT)
    first, last = int(helpful[0]), int(helpful[-1])
    # Down to here live points are left over of the draws from the prior, without walkers.
    drawn = -math.log(PRIOR_DRAWS)
    if sums.log_volumes[first] > drawn:
        contour, above, start = PRIOR_CONTOUR, drawn, 0.0
    else:
        contour = (float(ordered.log_likelihood[first - 1]), float(ordered.tie[first - 1]))
        above, start = float(sums.log_volumes[first]), START_DEPTH
    # A live point needs about one walker for each nat of the prior mass.
    cost = max(above - float(sums.log_volumes[last]), 1.0) + start
    count = math.floor(budget / blocks_left / cost)
    if count < least:
        count = math.floor(budget / cost)
    if 2 * count < least:
        return None
    return AddedBlock(contour, float(ordered.log_likelihood[last]), max(count, least))


def alive_at(points: Points, contour: tuple[float, float]) -> Points:
    """The points that live at a contour: born there or below, and above it.

    >>> ends = np.array([1.0, 3.0, 4.0]), np.array([0.0, 0.0, 2.5])
    >>> half, none = np.full(3, 0.5), np.zeros(3)
    >>> points = Points(none, none, ends[0], half, ends[1], half, none, none, np.arange(3))
    >>> alive_at(points, (2.0, 0.5)).island.tolist()
    [1]
    """
    level, tie = contour
    above = (points.log_likelihood > level) | (
        (points.log_likelihood == level) & (points.tie > tie)
    )
    born = (points.birth < level) | ((points.birth == level) & (points.birth_tie <= tie))
    return points.take(above & born)
