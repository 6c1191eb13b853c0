"""The metric of moves: a square root of the covariance of particles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from weighbridge.core.islands import ENOUGH_PARTICLES
from weighbridge.estimators.annealing.cloud import Cloud, shares


def others_scale(cloud: Cloud, *, dense: bool) -> np.ndarray:
    """For each island a square root of the covariance of particles of other islands.

    The covariance is shrunk if there are few particles (see ``particle_scale``).
    """
    return np.asarray(from_other_islands(cloud, partial(particle_scale, dense=dense)))


def from_other_islands(cloud: Cloud, scale: Callable[[Cloud], Any]) -> Any:
    """For each island the scale of particles of other islands.

    Even islands use the odd ones, odd islands the even ones; a single island uses itself.

    Args:
        cloud: particles of all islands.
        scale: returns an array, or a tuple of arrays, for some of the islands.
    """
    num_islands = len(cloud.position)
    halves = [cloud]
    if num_islands > 1:
        halves = [Cloud(*(leaf[first::2] for leaf in cloud)) for first in (1, 0)]
    half_of = np.arange(num_islands) % len(halves)
    found = map(scale, halves)
    return jax.tree_util.tree_map(lambda *leaves: np.stack(leaves)[half_of], *found)


def particle_scale(cloud: Cloud, *, dense: bool) -> np.ndarray:
    """A square root of the covariance of all particles.

    With N effective particles and D dimensions, the covariance is shrunk towards its diagonal if
    N < 4 D; the diagonal has the weight D / (N + D). With more particles it is not shrunk, because
    shrinkage would lose the narrow directions of a strongly correlated posterior.
    """
    dimension = cloud.position.shape[-1]
    share = shares(cloud)
    used = share > 0
    if not used.any():
        return np.eye(dimension) if dense else np.ones(dimension)
    position, share = cloud.position.reshape(-1, dimension)[used], share[used]
    deviations = centred(position, share @ position)
    variance = share @ deviations**2
    variance = np.where(variance > 0, variance, 1.0)
    if not dense:
        return np.asarray(np.sqrt(variance))
    covariance = (deviations * share[:, None]).T @ deviations
    # Copies from resampling count once.
    effective = min(1.0 / np.sum(share**2), float(len(np.unique(position[:, 0]))))
    few = effective < ENOUGH_PARTICLES * dimension
    trust = effective / (effective + dimension) if few else 1.0
    shrunk = trust * covariance
    diagonal = np.arange(dimension)
    shrunk[diagonal, diagonal] += (1 - trust + 1e-10) * variance
    return np.linalg.cholesky(shrunk)


def centred(values: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Deviations from the mean; those at the level of rounding are set to zero."""
    deviation = values - mean
    return np.where(np.abs(deviation) > 1e-12 * np.abs(mean), deviation, 0.0)
