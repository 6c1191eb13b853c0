"""New points by rejection: draws from the prior until enough of them are above the contour."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.random import random_key
from weighbridge.estimators.annealing.cloud import draw_cloud
from weighbridge.estimators.nested.moves.walk import Contour, Place
from weighbridge.estimators.nested.walkers import Density

# Draws of every island that are evaluated together.
AT_ONCE = 128


class Drawn(NamedTuple):
    """Independent points above the contours.

    Attributes:
        place: the points, islands x points.
        num_evaluations, num_undefined: evaluations, and those whose log-likelihood was NaN.
    """

    place: Place
    num_evaluations: int
    num_undefined: int


def draw_above(
    density: Density,
    contour: Contour,
    islands: np.ndarray,
    num_new: int,
    generator: np.random.Generator,
) -> Drawn:
    """The first draws from the prior, in the order of drawing, that are above the contour.

    They are independent and have the distribution that nested sampling needs, exactly: whether a
    draw is kept depends on nothing but its own likelihood, and how many are needed on nothing that
    was seen.

    Args:
        density: prior and likelihood.
        contour: one for each island.
        islands: numbers of the islands.
        num_new: points that each island needs.
        generator: random numbers of this batch.
    """
    contour = Contour(*(leaf[:, None] for leaf in contour))
    kept: list[list[Place]] = [[] for _ in islands]
    found = np.zeros(len(islands), int)
    evaluations = undefined = 0
    while (lacking := found < num_new).any():
        interrupts.check()
        key = random_key(int(generator.integers(2**63)))
        position = draw_cloud(density.model, key, islands, AT_ONCE).position
        tie = generator.random((len(islands), AT_ONCE))
        some = position[lacking]
        told = density.at(some.reshape(-1, some.shape[2]))
        level = told.log_likelihood.reshape(len(some), AT_ONCE)
        places = Place(some, told.log_prior.reshape(level.shape), level, tie[lacking])
        above = Contour(*(leaf[lacking] for leaf in contour)).below(level, places.tie)
        for row, island in enumerate(np.flatnonzero(lacking)):
            kept[island].append(Place(*(leaf[row][above[row]] for leaf in places)))
        found[lacking] += above.sum(axis=1)
        evaluations += level.size
        undefined += int(np.isnan(level).sum())
    each = [[np.concatenate(leaves)[:num_new] for leaves in zip(*pieces)] for pieces in kept]
    return Drawn(Place(*map(np.stack, zip(*each))), evaluations, undefined)
