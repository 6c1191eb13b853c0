"""The metric of moves: a square root of the covariance of particles."""

from __future__ import annotations

import numpy as np

from weighbridge.core.islands import ENOUGH_PARTICLES
from weighbridge.core.resampling import relative_weights
from weighbridge.estimators.annealing.cloud import Cloud


def others_scale(cloud: Cloud, *, dense: bool) -> np.ndarray:
    """For each island a square root of the covariance of particles of other islands.

    Even islands use the odd ones, odd islands the even ones; a single island uses itself.
    """
    num_islands = cloud.position.shape[0]
    if num_islands == 1:
        return particle_scale(cloud, dense=dense)[None]
    halves = [Cloud(*(leaf[first::2] for leaf in cloud)) for first in (1, 0)]
    roots = np.stack([particle_scale(half, dense=dense) for half in halves])
    return np.asarray(roots[np.arange(num_islands) % 2])


def particle_scale(cloud: Cloud, *, dense: bool) -> np.ndarray:
    """A square root of the covariance of all particles.

    With N effective particles and D dimensions, the covariance is shrunk towards its diagonal if
    N < 4 D; the diagonal has the weight D / (N + D). With more particles it is not shrunk, because
    shrinkage would lose the narrow directions of a strongly correlated posterior.
    """
    dimension = cloud.position.shape[-1]
    # All islands have the same total weight; particles within an island have their weights.
    weight, _ = relative_weights(cloud.log_weight)
    total = weight.sum(axis=1, keepdims=True)
    share = (weight / np.where(total > 0, total, 1.0)).reshape(-1)
    used = share > 0
    if not used.any():
        return np.eye(dimension) if dense else np.ones(dimension)
    position, share = cloud.position.reshape(-1, dimension)[used], share[used] / share.sum()
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
