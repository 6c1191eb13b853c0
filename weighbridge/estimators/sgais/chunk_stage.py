"""One chunk of an SGAIS run, ready to be annealed in."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, cast

import jax
import numpy as np

from weighbridge.core.types import PyTree
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.labels import Labels
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import StepInfo
from weighbridge.estimators.sgais.anchored_terms import Estimate
from weighbridge.estimators.sgais.anchoring import Anchor
from weighbridge.models.targets.anchored import Anchored, Sums

# Particles are resampled and moved when the ESS is below this; before, weights are enough.
RESAMPLE_BELOW = 0.6
# All rows are used only if the chunk has at least this share of them. For the many small chunks of
# a stream this would cost more each time.
LARGE_CHUNK = 0.25


class ChunkRows(NamedTuple):
    """The rows of a chunk, and how often each counts."""

    values: PyTree
    weight: np.ndarray

    @property
    def num_observations(self) -> float:
        """Rows, repeated rows counted."""
        return float(self.weight.sum())

    def gather(self, chosen: np.ndarray) -> tuple[PyTree, np.ndarray]:
        """Some of the rows, by their indices."""
        values, weight = jax.tree_util.tree_map(
            lambda leaf: np.take(leaf, chosen, axis=0), tuple(self)
        )
        return values, weight


class Stage(NamedTuple):
    """One chunk, ready to be annealed in.

    Attributes:
        path: the densities from the posterior before the chunk to the posterior with it.
        cloud: the particles; with an anchor they have one labelling.
        anchor: the anchor, with the sums of all rows before; None while all rows are used.
        chunk_sums: L, G and H of the chunk at the anchor.
        past: the estimated term of the rows before; None while all rows are used.
        chunk: the estimated term of the chunk.
        labels: the labelling of the particles, if there is one.
        fade: the factor by which the rows before count.
        noise: the largest noise so far of the past, and of the chunk.
        heat: error of log Z that the noise of the past may have caused so far, in nats.
        num_followed: how often the anchor was compared with the particles.
    """

    path: Path
    cloud: Cloud
    anchor: Anchor | None
    chunk_sums: Sums | None
    past: Estimate | None
    chunk: Estimate
    labels: Labels
    fade: float = 1.0
    noise: tuple[float, float] = (0.0, 0.0)
    heat: float = 0.0
    num_followed: int = 0

    def after(self, step: StepInfo, past: float, chunk: float) -> Stage:
        r"""The stage after a step, with the noise of the step and the error that it may cause.

        Averaged over batches, moves sample the density times e^{s^2(theta) / 2}, where s^2 is the
        variance of the log density over batches. This changes the mean of a step's weights, whose
        relative spread is c, by at most about s^2 c / 2.
        """
        increment, variance = np.asarray(step.increment), np.asarray(step.variance)
        spread = float(np.max(increment) * np.sqrt(np.mean(variance)))
        noise = (max(self.noise[0], past), max(self.noise[1], chunk))
        return self._replace(noise=noise, heat=self.heat + 0.5 * past * spread)

    def faded(self, fade: float) -> Stage:
        """The stage in which all rows before count by a factor."""
        if fade == 1.0:
            return self
        past = tuple(cast(Anchored, term).faded(fade) for term in self.path.past)
        anchor = self.anchor
        if anchor is not None:
            anchor = anchor._replace(sums=anchor.sums.times(fade))
        return self._replace(path=replace(self.path, past=past), anchor=anchor, fade=fade)
