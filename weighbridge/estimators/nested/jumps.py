r"""Draws to which walkers jump: from ellipsoids around the clusters of other live points.

Other nested samplers draw from such ellipsoids alone, so they are biased if an ellipsoid cuts off a
part of the region above the contour, and must enlarge it. Here a cut makes jumps rare, and nothing
else. With a density q on the ellipsoids and a constant c, let B be the set

.. math:: B = \{(u, y) : L(u) > L^*, \; 0 < y < \min(p(u), c \, q(u))\}

A walker at u draws its height y ~ U(0, p(u)). In B, it is replaced by an independent draw from B;
this is exact because a point that is uniform in a set stays so if it is drawn anew within a part of
the set. A walker outside B stays, and the slice moves that follow mix the two parts. Draws from B
are draws from q with a height below c q(u) that are kept if they are below p(u) and above the
contour. Only the last test needs the likelihood.

q and c come from points of other folds (``guides``), never from the walker itself. How many draws
there are depends on nothing but how many walkers are in B.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.estimators.nested.ellipsoids import Ellipsoids
from weighbridge.estimators.nested.guides import Guide
from weighbridge.estimators.nested.moves.walk import Place, Script
from weighbridge.estimators.nested.walkers import Density

# Most draws of a walker whose likelihood is asked for, and draws of q for each of them.
MOST_TRIES, DRAWS = 16, 2
# Share of the points at which c q(u) is at least p(u).
UNDER_Q = 0.97
# Beyond this many coordinates hardly any draw is above the contour.
MOST_COORDINATES = 20


class Jumps(NamedTuple):
    """Draws for walkers.

    Attributes:
        script: the draws.
        in_region: whether each walker is in B.
    """

    script: Script
    in_region: np.ndarray


def draw_jumps(
    density: Density,
    generator: np.random.Generator,
    guides: list[Guide],
    place: Place,
    stretch: float,
    most_tries: int,
) -> Jumps:
    """Draws for the walkers in B, dealt out in the order of drawing.

    Args:
        density: for the prior.
        generator: random numbers.
        guides: the walkers, with the points that the ellipsoids are around.
        place: where the walkers are.
        stretch: radius of the ellipsoids relative to that of the farthest point.
        most_tries: most draws of one walker.
    """
    count, dimension = place.position.shape
    regions = [Ellipsoids.around(guide, stretch) for guide in guides]
    drawn = [
        region.draw(generator, DRAWS * most_tries * len(guide.walkers))
        for region, guide in zip(regions, guides)
    ]
    direction = np.zeros((MOST_TRIES, count, dimension))
    in_region, num_tries = np.zeros(count, bool), np.zeros(count, int)
    for guide, region, some, log_priors in zip(
        guides, regions, drawn, _log_priors(density, guides, drawn)
    ):
        own = guide.walkers
        positions = (guide.points, some, place.position[own])
        log_q = [region.log_density(each) for each in positions]
        log_c = _log_bound(log_priors[0] - log_q[0])
        within = own[_below(generator, place.log_prior[own], log_c + log_q[2])]
        usable = some[_below(generator, log_c + log_q[1], log_priors[1])]
        if len(within):
            usable = usable[: most_tries * len(within)]
            row, walker = np.divmod(np.arange(len(usable)), len(within))
            direction[MOST_TRIES - 1 - row, within[walker]] = usable
            num_tries[within] = np.bincount(walker, minlength=len(within))
            in_region[within] = True
    uniform = generator.random((MOST_TRIES, count, 4))
    script = Script(direction, uniform, np.int64(MOST_TRIES), first=MOST_TRIES - num_tries)
    return Jumps(script, in_region)


def _log_priors(
    density: Density, guides: list[Guide], drawn: list[np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Log prior at the points of each guide and at its draws, evaluated together."""
    pieces = [piece for guide, some in zip(guides, drawn) for piece in (guide.points, some)]
    together = density.log_prior(np.concatenate(pieces))
    each = np.split(together, np.cumsum([len(piece) for piece in pieces])[:-1])
    return list(zip(each[::2], each[1::2]))


def _log_bound(log_ratio: np.ndarray) -> float:
    """Log of c, from log p - log q at points."""
    known = log_ratio[np.isfinite(log_ratio)]
    return float(np.quantile(known, UNDER_Q)) if len(known) else -math.inf


def _below(
    generator: np.random.Generator, log_top: np.ndarray, log_limit: np.ndarray
) -> np.ndarray:
    """Whether heights that are uniform between 0 and the top are below the limit."""
    return np.asarray(np.log(generator.random(len(log_top))) + log_top < log_limit)
