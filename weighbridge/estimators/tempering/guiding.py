"""A few rows that guide the trajectories on data in memory, chosen again after every step."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.constants import MEDIAN_TO_DEVIATION
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.cloud import Cloud, centre, shares
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import StepInfo
from weighbridge.estimators.batch_noise import (
    GUIDE_NOISE,
    NEARLY_ALL,
    NUM_PROBES,
    SMALLEST_BATCH,
    wanted_rows,
)
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import FIRST_ORDER_ABOVE, Guided, GuideRows, Sums, sums_at
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import Span
from weighbridge.models.targets.term import Term

# With at least this many rows x coordinates, a guide saves more time than its compilation takes.
GUIDED_FROM = 20_000
# The guide allows for this growth of the power in the next step.
GROWTH = 2.0
# With less noise than this, a guide is as good as the target itself.
QUIET = 1e-3


class GuidedLikelihood:
    """The term of all rows, with a guide made of some of the rows.

    After every step the guide is expanded around the mean of the particles, and its difference
    from the target is measured at some particles. The guide changes no target. It is chosen with
    particles of all islands, also of those that it moves; this makes islands no more dependent
    than the common schedule does.

    Args:
        model: the model.
        term: the likelihood of all rows.
        seed: of the random order of the rows.
        first_island: first island of the run; other islands have another order.
        possible: whether the moves can use a guide. If not, or if a guide would save too little
            time, the term stays unchanged.
    """

    def __init__(
        self, model: Model, term: Term, seed: int, first_island: int = 0, *, possible: bool
    ) -> None:
        self.model, self.plain, self.unguided = model, term, None
        if possible and isinstance(term, Span) and self.pays(model, term):
            self.unguided = _unguided(model, term, seed, first_island)
        self.term = self.unguided

    @staticmethod
    def pays(model: Model, term: Span) -> bool:
        """Whether a guide saves enough time, and the log-likelihood has second derivatives."""
        if model.dimension > FIRST_ORDER_ABOVE or int(term.stop) * model.dimension < GUIDED_FROM:
            return False
        try:
            _sums.shape(model, np.zeros(model.dimension), term.rows, 1)
        except Exception:  # a custom gradient may have no second derivative
            return False
        return True

    def path(self) -> Path:
        """The path from the prior to the posterior, with the current guide."""
        return Path(self.model, (), self.plain if self.term is None else self.term)

    def path_beyond(self) -> Path:
        """The path for particles that may go anywhere: with a guide only if its noise is small."""
        if self.term is not None and not self.term.guide_rows.noise <= QUIET:
            self.term = self.unguided
        return self.path()

    def follow(self, cloud: Cloud, step: StepInfo) -> None:
        """Choose the guide for the next step."""
        self.term = self.unguided
        if self.unguided is None or not np.any(np.isfinite(cloud.log_weight)):
            return
        rows, num_rows = self.unguided.rows, int(self.unguided.stop)
        share, anchor = shares(cloud), centre(cloud)
        position = np.asarray(cloud.position).reshape(len(share), -1)
        # Choose probes by systematic resampling with a fixed offset.
        places = (np.arange(NUM_PROBES) + 0.5) / NUM_PROBES
        chosen = np.minimum(np.searchsorted(np.cumsum(share), places), len(share) - 1)
        sums = _sums(self.model, anchor, rows, num_rows)
        allowed = GUIDE_NOISE / min(GROWTH * float(step.power), 1.0) ** 2
        size = SMALLEST_BATCH
        while size < NEARLY_ALL * num_rows:
            guide = GuideRows(_sums(self.model, anchor, rows, size), size, num_rows / size, 0.0)
            guided = Guided(rows, num_rows, anchor, sums, guide)
            apart = np.asarray(_differences(self.model, guided, position[chosen]))
            noise = float(np.var(apart, ddof=1))
            if not math.isfinite(noise):
                return
            if noise <= allowed:
                # A few distant particles cause most of the noise; use a robust measure.
                typical = float(np.median(np.abs(apart - np.median(apart))))
                noise = (MEDIAN_TO_DEVIATION * typical) ** 2
                self.term = replace(guided, guide_rows=guide._replace(noise=noise))
                return
            size = max(wanted_rows(size, noise, num_rows, allowed), 2 * size)


def _unguided(model: Model, term: Span, seed: int, first_island: int) -> Guided:
    """All rows in random order, with all of them as the guide."""
    num_rows = int(term.stop)
    order = random_numbers(seed, Stream.GUIDE_ROWS, first_island).permutation(num_rows)
    place = np.concatenate([order, np.arange(num_rows, len(term.rows.weight))])
    rows = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf[place]), term.rows)
    zero = Sums.zero(model.dimension)
    origin = np.zeros(model.dimension)
    return Guided(rows, num_rows, origin, zero, GuideRows(zero, num_rows, 1.0, 0.0))


@jit
def _sums(model: Model, position: Array, rows: Rows, stop: Array) -> Sums:
    return sums_at(model, position, Span(rows, 0, stop))


@jit
def _differences(model: Model, term: Guided, probes: Array) -> Array:
    """The guide minus the term, at every probe."""

    def difference(position: Array) -> Array:
        parameters = model.transform(position)[0]
        guide, exact = term.guide(), term(model, position, parameters)
        return guide(model, position, parameters) - exact

    found: Array = jax.vmap(difference)(probes)
    return found
