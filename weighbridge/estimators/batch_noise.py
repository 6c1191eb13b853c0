"""The noise of mini-batches: how it is measured, and how many rows it asks for."""

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

# Batches from whose differences the noise is measured, at least, and positions it is measured at.
LEAST_BATCHES = 8
NUM_PROBES = 32
# The first guess of a batch's size, and the smallest one.
FIRST_BATCH, SMALLEST_BATCH = 256, 64
# A batch is this much larger than the noise asks for: what follows is a little different.
MARGIN = 1.3
# A batch of so many of all rows is all of them.
NEARLY_ALL = 0.6
# Variance that a term of the log density may have by the rows that guide the moves. It enters
# nothing but the share of moves that are accepted, of which that of two terms takes a quarter.
GUIDE_NOISE = 0.1
# Variance beyond which mini-batches are of no use at all.
TOO_NOISY = 1.0


class Noise(NamedTuple):
    """Variance over mini-batches of an estimated log-likelihood, in squared nats.

    Attributes:
        relative: of the difference from the particles' centre, averaged over particles: what heats.
        common: of the centre itself: what shifts all particles alike.
    """

    relative: float
    common: float

    def that_matters(self, absolute: bool) -> float:
        """Of moves the relative part alone; of weights both."""
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
    """Relative noise at every probe, and the common one."""
    values = values_at(model, term, probes)
    freedom = len(values) - 1
    with np.errstate(invalid="ignore"):  # where rows are impossible, noise is not a number
        apart = values - values.mean(axis=0)
        centre = apart.mean(axis=1, keepdims=True)
        relative = np.sum((apart - centre) ** 2, axis=0) / freedom
    return relative, float(np.sum(centre**2)) / freedom


def values_at(model: Model, term: Anchored, probes: np.ndarray) -> np.ndarray:
    """The term at every probe, by every batch: batches x probes."""
    return np.asarray(_values(model, replace(term, guide_rows=None), probes))


def wanted_rows(size: int, variance: float, num_kept: int, allowed: float) -> int:
    """Rows of a batch that would have the variance allowed: it goes as 1/B - 1/N."""
    if size >= num_kept or not variance > 0:
        return SMALLEST_BATCH
    for_one = variance / (1 / size - 1 / num_kept)
    rows = MARGIN / (allowed / min(for_one, 1e300) + 1 / num_kept)
    return max(math.ceil(rows / SPAN_BLOCK) * SPAN_BLOCK, SMALLEST_BATCH)


def floor_of(noise: Noise, size: int, num_kept: int, num_rows: int) -> Noise:
    """The noise of all rows that are kept, from that of a batch: it goes as 1/B - 1/N."""
    if num_kept == num_rows:
        return NOISELESS
    if size == num_kept:  # one row alone: nothing is known of the others
        return Noise(math.inf, math.inf)
    return noise.scaled((1 / num_kept - 1 / num_rows) / (1 / size - 1 / num_kept))


@jit
def _values(model: Model, term: Anchored, probes: Array) -> Array:
    def of_group(term: Anchored) -> Array:
        return jax.vmap(lambda u: term(model, u, model.transform(u)[0]))(probes)

    found: Array = jax.vmap(of_group, in_axes=(term.axes,))(term)
    return found
