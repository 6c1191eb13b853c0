"""The noise of mini-batches: its measurement, and the number of rows that it requires."""

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

# The fewest batches to measure the noise with, and the number of positions to measure it at.
LEAST_BATCHES = 8
NUM_PROBES = 32
# The first guess of a batch's size, and the smallest one.
FIRST_BATCH, SMALLEST_BATCH = 256, 64
# A batch is larger than the measured noise requires by this factor: later noise may differ.
MARGIN = 1.3
# Instead of a batch with at least this share of all rows, all rows are used.
NEARLY_ALL = 0.6
# Variance of a term of the log density that is allowed for the rows of a guide of moves. It only
# lowers the acceptance rate of moves; the noise of two terms lowers it by a quarter.
GUIDE_NOISE = 0.1
# Mini-batches whose variance is larger are useless.
TOO_NOISY = 1.0


class Noise(NamedTuple):
    """Variance over mini-batches of an estimated log-likelihood, in squared nats.

    Attributes:
        relative: variance of the difference from the mean over particles, averaged over particles;
            this noise heats them.
        common: variance of the mean over particles; this noise shifts all particles equally.
    """

    relative: float
    common: float

    def relevant(self, absolute: bool) -> float:
        """The variance that affects moves (the relative part), or weights (both parts)."""
        return self.relative + (self.common if absolute else 0.0)

    def scaled(self, factor: float) -> Noise:
        """Both parts times a factor."""
        return Noise(self.relative * factor, self.common * factor)


NOISELESS = Noise(0.0, 0.0)


def measured(model: Model, term: Anchored, probes: np.ndarray) -> Noise:
    """The noise of a term on several batches, at some positions."""
    relative, common = noises_at(model, term, probes)
    return Noise(float(np.mean(relative)), common)


def noises_at(model: Model, term: Anchored, probes: np.ndarray) -> tuple[np.ndarray, float]:
    """The relative noise at every probe, and the common noise."""
    values = values_at(model, term, probes)
    freedom = len(values) - 1
    with np.errstate(invalid="ignore"):  # impossible rows give NaN
        apart = values - values.mean(axis=0)
        centre = apart.mean(axis=1, keepdims=True)
        relative = np.sum((apart - centre) ** 2, axis=0) / freedom
    return relative, float(np.sum(centre**2)) / freedom


def values_at(model: Model, term: Anchored, probes: np.ndarray) -> np.ndarray:
    """The term at every probe, for every batch: batches x probes."""
    return np.asarray(_values(model, replace(term, leader=None), probes))


def wanted_rows(size: int, variance: float, num_kept: int, allowed: float) -> int:
    """Rows of a batch with the allowed variance, which is proportional to 1/B - 1/N."""
    if size >= num_kept or not variance > 0:
        return SMALLEST_BATCH
    for_one = variance / (1 / size - 1 / num_kept)
    rows = MARGIN / (allowed / min(for_one, 1e300) + 1 / num_kept)
    return max(math.ceil(rows / SPAN_BLOCK) * SPAN_BLOCK, SMALLEST_BATCH)


def floor_of(noise: Noise, size: int, num_kept: int, num_rows: int) -> Noise:
    """The noise of all kept rows, from that of a batch; it is proportional to 1/B - 1/N."""
    if num_kept == num_rows:
        return NOISELESS
    if size == num_kept:  # there is one row: the noise of a batch is unknown
        return Noise(math.inf, math.inf)
    return noise.scaled((1 / num_kept - 1 / num_rows) / (1 / size - 1 / num_kept))


@jit
def _values(model: Model, term: Anchored, probes: Array) -> Array:
    def of_group(term: Anchored) -> Array:
        return jax.vmap(lambda u: term(model, u, model.transform(u)[0]))(probes)

    found: Array = jax.vmap(of_group, in_axes=(term.axes,))(term)
    return found
