"""The noise of mini-batches: its measurement, and the batch size that it requires."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import Anchored
from weighbridge.models.targets.span import SPAN_BLOCK

# The noise is measured from at least this many batches, at this many positions.
LEAST_BATCHES = 8
NUM_PROBES = 32
# The first guess of a batch size, and the smallest batch size.
FIRST_BATCH, SMALLEST_BATCH = 256, 64
# Safety factor of the batch size, because the measured noise may change a little later.
MARGIN = 1.3
# If a batch needs a larger share of the rows than this, all rows are used.
NEARLY_ALL = 0.6
# Allowed variance of a term of the log density over the rows that guide the trajectories. This
# variance only lowers the acceptance; two such terms lower it by a quarter.
GUIDE_NOISE = 0.1


class Noise(NamedTuple):
    """Variance over mini-batches of an estimated log-likelihood, in squared nats.

    Attributes:
        relative: variance of the difference from the particles' mean, averaged over particles. It
            heats the particles.
        common: variance of the mean itself. It is the same shift for all particles.
    """

    relative: float
    common: float

    def that_matters(self, absolute: bool) -> float:
        """For moves only the relative part; for weights (``absolute``) the sum of both."""
        return self.relative + (self.common if absolute else 0.0)

    def scaled(self, factor: float) -> Noise:
        """Both parts times a factor."""
        return Noise(self.relative * factor, self.common * factor)


NOISELESS = Noise(0.0, 0.0)


def measured(model: Model, term: Anchored, probes: np.ndarray) -> Noise:
    """The noise of a term over several batches, averaged over the probes."""
    relative, common = noises_at(model, term, probes)
    return Noise(float(np.mean(relative)), common)


def noises_at(model: Model, term: Anchored, probes: np.ndarray) -> tuple[np.ndarray, float]:
    """The relative noise at every probe, and the common noise."""
    values = values_at(model, term, probes)
    freedom = len(values) - 1
    with np.errstate(invalid="ignore"):  # NaN where the likelihood of a row is zero
        apart = values - values.mean(axis=0)
        centre = apart.mean(axis=1, keepdims=True)
        relative = np.sum((apart - centre) ** 2, axis=0) / freedom
    return relative, float(np.sum(centre**2)) / freedom


def values_at(model: Model, term: Anchored, probes: np.ndarray) -> np.ndarray:
    """The value of the term for every batch and probe, batches x probes."""
    return np.asarray(_values(model, replace(term, guide_rows=None), probes))


def wanted_rows(size: int, variance: float, num_kept: int, allowed: float) -> int:
    """The batch size B with the allowed variance, which is proportional to 1/B - 1/N."""
    if size >= num_kept or not variance > 0:
        return SMALLEST_BATCH
    for_one = variance / (1 / size - 1 / num_kept)
    rows = MARGIN / (allowed / min(for_one, 1e300) + 1 / num_kept)
    return max(math.ceil(rows / SPAN_BLOCK) * SPAN_BLOCK, SMALLEST_BATCH)


def floor_of(noise: Noise, size: int, num_kept: int, num_rows: int) -> Noise:
    """The noise of a batch of all kept rows, from that of a batch of B: noise is ~ 1/B - 1/N."""
    if num_kept == num_rows:
        return NOISELESS
    if size == num_kept:  # a single row: its noise cannot be measured
        return Noise(math.inf, math.inf)
    return noise.scaled((1 / num_kept - 1 / num_rows) / (1 / size - 1 / num_kept))


@jit
def _values(model: Model, term: Anchored, probes: Array) -> Array:
    def of_group(term: Anchored) -> Array:
        return jax.vmap(lambda u: term(model, u, model.transform(u)[0]))(probes)

    found: Array = jax.vmap(of_group, in_axes=(term.axes,))(term)
    return found
