"""The first live points: draws from the prior, or walkers that start at a contour."""

from __future__ import annotations

from typing import Any

import numpy as np

from weighbridge.core.errors import ModelError
from weighbridge.core.random import random_key
from weighbridge.estimators.annealing.cloud import draw_cloud
from weighbridge.estimators.nested.allocation import PRIOR_DRAWS
from weighbridge.estimators.nested.points import PRIOR_CONTOUR, Points
from weighbridge.estimators.nested.walkers import Density

# Later draws from the prior of the same island have numbers of their own.
LATER = 2**32


def draw_prior(
    model: Any, seed: int, islands: np.ndarray, num_live: int, later: int = 0
) -> np.ndarray:
    """Draws from the prior: islands x draws x coordinates.

    Args:
        model: the model.
        seed: of the run.
        islands: numbers of the islands.
        num_live: live points of an island; there are more draws than that.
        later: number of the draws of these islands; 0 for their first.
    """
    names = islands + LATER * later
    return draw_cloud(model, random_key(seed), names, PRIOR_DRAWS * num_live).position


def at_prior(
    density: Density, position: np.ndarray, islands: np.ndarray, generator: np.random.Generator
) -> Points:
    """Draws from the prior as points, islands x draws.

    Args:
        density: prior and likelihood.
        position: the draws, islands x draws x coordinates.
        islands: numbers of the islands.
        generator: for tie numbers.
    """
    shape = position.shape[:2]
    told = density.at(position.reshape(-1, position.shape[2]))
    return Points(
        position=position,
        log_prior=told.log_prior.reshape(shape),
        log_likelihood=told.log_likelihood.reshape(shape),
        tie=generator.random(shape),
        birth=np.full(shape, PRIOR_CONTOUR[0]),
        birth_tie=np.full(shape, PRIOR_CONTOUR[1]),
        insertion=np.full(shape, -1),
        among=np.zeros(shape, int),
        island=np.broadcast_to(islands[:, None], shape).copy(),
    )


def lowest_first(points: Points, num_lowest: int) -> tuple[Points, Points]:
    """The lowest points of every island, in their order, and the others."""
    order = np.lexsort((points.tie, points.log_likelihood), axis=1)
    lowest, others = np.split(order, [num_lowest], axis=1)
    return points.along(lowest), points.along(others)


def check_start(log_likelihood: np.ndarray) -> None:
    """Refuse NaN at draws from the prior, and -inf at all of them."""
    undefined = int(np.isnan(log_likelihood).sum())
    if undefined:
        raise ModelError(
            f"The log-likelihood is not a number (NaN) for {undefined} prior draws. Check it for "
            "log(0), 0/0 or overflow; it must return -inf where the density is zero."
        )
    if not np.isfinite(log_likelihood).any():
        raise ModelError(
            "The log-likelihood of these data is -inf for every prior draw: no parameter value "
            "that was tried can have produced them. Check the support of the likelihood and the "
            "scale of the data, or use more live points."
        )
