"""The number of next rows that can be taken before the weights of particles degenerate."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.powers import conditional_ess
from weighbridge.estimators.sequential import row_log_likelihoods
from weighbridge.models.model import Model
from weighbridge.models.targets.rows import Rows


class Ahead(NamedTuple):
    """The effect of the next rows on the weights.

    Attributes:
        num_taken: the number of rows that can be taken before the weights degenerate.
        gained: log-likelihood of the rows of the stage at each particle, these included.
        undefined: for each row, the number of particles with a log-likelihood that is NaN.
        unbounded: for each row, the number of particles with a log-likelihood of +inf.
    """

    num_taken: Array
    gained: Array
    undefined: Array
    unbounded: Array


@jit
def look_ahead(
    model: Model, cloud: Cloud, gained: np.ndarray, rows: Rows, first: int, target_ess: float
) -> Ahead:
    """Add rows one by one to the log-likelihood of a stage, until the ESS is too low.

    Args:
        model: the model of the rows.
        cloud: the particles, with their weights at the start of the stage.
        gained: log-likelihood of the rows of the stage so far, at each particle.
        rows: the next rows, padded by rows of weight 0.
        first: index of the first row that was not taken before.
        target_ess: the lowest ESS, averaged over islands, as a fraction of the particles.
    """
    num_particles = cloud.log_weight.shape[1]
    index = jnp.arange(rows.weight.shape[0])
    counted = jnp.asarray(rows.weight > 0) & (index >= first)
    raw = row_log_likelihoods(model, cloud.position, rows.values)
    undefined = jnp.isnan(raw)
    gain = jnp.where(counted, rows.weight * jnp.where(undefined, -jnp.inf, raw), 0.0)
    total = jnp.asarray(gained)[..., None] + jnp.cumsum(gain, axis=-1)

    def mean_ess(total: Array) -> Array:
        return jnp.mean(
            jax.vmap(conditional_ess, in_axes=(0, 0, None))(total, cloud.log_weight, 1.0)
        )

    enough = jax.vmap(mean_ess, in_axes=-1)(total) >= target_ess * num_particles
    enough = enough | (index < first)
    count = jnp.sum(jnp.cumprod(enough)) - first
    reached = jnp.where(count > 0, total[..., jnp.maximum(first + count - 1, 0)], gained)
    alive = jnp.isfinite(cloud.log_weight)[..., None]
    lost, unbounded = (
        jnp.sum(found & counted & alive, axis=(0, 1)) for found in (undefined, raw == jnp.inf)
    )
    return Ahead(count, reached, lost, unbounded)
