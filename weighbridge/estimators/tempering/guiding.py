"""Few rows that guide the moves on data that are in memory, chosen anew from step to step."""

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

# Rows times coordinates from which on a guide pays for its compilation.
GUIDED_FROM = 20_000
# By how much the power may grow in the step that the guide is for.
GROWTH = 2.0
# Below this noise a guide is as good as the target anywhere near.
QUIET = 1e-3


class GuidedLikelihood:
    """The term of all rows, guided by as many of them as the particles need.

    The guide is set up around the particles' centre after every step, and what it differs by from
    the target is measured at some of them. It changes no target; that it is chosen by particles of
    all islands, among them those that it moves, ties them no more than the schedule does.

    Args:
        model: whose likelihood it is.
        term: all of it.
        seed: of the order in which rows stand from now on.
        first_island: of the run; other islands have another order.
        possible: whether moves follow guides at all; where they do not, or where there is too
            little to be saved, the term stays what it is.
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
        """Whether there is enough to be saved, and curvatures are to be had."""
        if model.dimension > FIRST_ORDER_ABOVE or int(term.stop) * model.dimension < GUIDED_FROM:
            return False
        try:
            _sums.shape(model, np.zeros(model.dimension), term.rows, 1)
        except Exception:  # a gradient of the user's own may have none
            return False
        return True

    def path(self) -> Path:
        """From the prior to the posterior, with the guide as it is now."""
        return Path(self.model, (), self.plain if self.term is None else self.term)

    def path_beyond(self) -> Path:
        """For particles that may go anywhere: with a guide only if that does as well."""
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
        # Every so many of the particles, by their weights: systematic resampling without a draw.
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
                # A few particles far away have most of the noise; what is typical is accepted.
                typical = float(np.median(np.abs(apart - np.median(apart))))
                noise = (MEDIAN_TO_DEVIATION * typical) ** 2
                self.term = replace(guided, guide_rows=guide._replace(noise=noise))
                return
            size = max(wanted_rows(size, noise, num_rows, allowed), 2 * size)


def _unguided(model: Model, term: Span, seed: int, first_island: int) -> Guided:
    """All rows in random order, and all of them as the guide."""
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
    """By how much the guide differs from the term, at every probe."""

    def difference(position: Array) -> Array:
        parameters = model.transform(position)[0]
        guide, exact = term.guide(), term(model, position, parameters)
        return guide(model, position, parameters) - exact

    found: Array = jax.vmap(difference)(probes)
    return found
