"""The number of next rows that can be taken before the weights of particles degenerate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.types import Array, PyTree
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.powers import Tilted
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

    num_taken: int
    gained: np.ndarray
    undefined: np.ndarray
    unbounded: np.ndarray


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
    index, weight = np.arange(len(rows.weight)), np.asarray(rows.weight)
    counted = (weight > 0) & (index >= first)
    # Rows are the first axis from here on, particles the last.
    raw = np.moveaxis(np.asarray(_row_values(model, cloud.position, rows.values)), -1, 0)
    undefined, some = np.isnan(raw), counted[:, None, None]
    finite = np.where(undefined, -np.inf, raw)
    gain = np.where(some, weight[:, None, None] * np.where(some, finite, 0.0), 0.0)
    total = gained + np.cumsum(gain, axis=0)
    ess = Tilted(total, cloud.log_weight).ess(1.0).mean(axis=-1)
    enough = (ess >= target_ess * total.shape[-1]) | (index < first)
    count = int(np.cumprod(enough).sum()) - first
    alive = np.isfinite(cloud.log_weight) & some
    lost, unbounded = ((found & alive).sum(axis=(1, 2)) for found in (undefined, raw == np.inf))
    return Ahead(count, total[first + count - 1] if count > 0 else gained, lost, unbounded)


@jit
def _row_values(model: Model, position: Array, values: PyTree) -> Array:
    return row_log_likelihoods(model, position, values)
