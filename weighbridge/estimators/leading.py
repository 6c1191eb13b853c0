"""Few rows that lead the moves on data that are in memory, chosen anew from step to step."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.anchor import FIRST_ORDER_ABOVE, Guide, Led, Sums, sums_at
from weighbridge.base import Array
from weighbridge.estimators.anchoring import (
    GUIDE_NOISE,
    NEARLY_ALL,
    NUM_PROBES,
    SMALLEST_BATCH,
    wanted_rows,
)
from weighbridge.estimators.anneal import Cloud, Path, StepInfo, shares
from weighbridge.model import Model
from weighbridge.numerics import jit
from weighbridge.target import Rows, Span

# Rows times coordinates from which on a guide pays for its compilation.
LED_FROM = 20_000
# A normal distribution's standard deviation, as a multiple of its median absolute deviation.
NORMAL = 1.4826
# By how much the power may grow in the step that the guide is for.
GROWTH = 2.0
# Below this noise a guide is as good as the target anywhere near.
QUIET = 1e-3


class Lead:
    """The term of all rows, and as many of them in the lead as the particles need.

    The guide is set up around the particles' centre after every step, and what it differs by from
    the target is measured at some of them. It changes no target; that it is chosen by particles of
    all islands, among them those that it moves, ties them no more than the schedule does.

    Args:
        model: whose rows they are.
        term: all of them.
        seed: of the order in which they stand from now on.
    """

    def __init__(self, model: Model, term: Span, seed: int) -> None:
        self.model, self.num_rows, self.power = model, int(term.stop), 0.0
        order = np.random.default_rng(seed).permutation(self.num_rows)
        place = np.concatenate([order, np.arange(self.num_rows, len(term.rows.weight))])
        rows = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf[place]), term.rows)
        zero = Sums.zero(model.dimension)
        self.unled = Led(
            rows, self.num_rows, np.zeros(model.dimension), zero,
            Guide(zero, self.num_rows, 1.0, 0.0),
        )  # fmt: skip
        self.term = self.unled

    @staticmethod
    def pays(model: Model, term: object) -> bool:
        """Whether there is enough to be saved, and curvatures are to be had."""
        if not isinstance(term, Span) or model.dimension > FIRST_ORDER_ABOVE:
            return False
        if int(term.stop) * model.dimension < LED_FROM:
            return False
        try:
            jax.eval_shape(_sums, model, np.zeros(model.dimension), term.rows, 0, 1)
        except Exception:  # a gradient of the user's own may have none
            return False
        return True

    def within(self, path: Path) -> Path:
        """The path with the guide as it is now."""
        return replace(path, chunk=self.term)

    def beyond(self, path: Path) -> Path:
        """The path for particles that may go anywhere: with a guide only if that does as well."""
        return replace(path, chunk=self.term if self.term.leader.noise <= QUIET else self.unled)

    def follow(self, cloud: Cloud, step: StepInfo) -> None:
        """Choose the guide for the next step."""
        self.power += float(np.max(step.increment))
        self.term = self.unled
        if not np.any(np.isfinite(cloud.log_weight)):
            return
        share = shares(cloud)
        position = np.asarray(cloud.position).reshape(len(share), -1)
        anchor = share @ position
        # Every so many of the particles, by their weights: systematic resampling without a draw.
        places = (np.arange(NUM_PROBES) + 0.5) / NUM_PROBES
        chosen = np.minimum(np.searchsorted(np.cumsum(share), places), len(share) - 1)
        sums = _sums(self.model, anchor, self.unled.rows, 0, self.num_rows)
        probes = position[chosen]
        heights = np.asarray(_heights(self.model, self.unled.rows, probes, self.num_rows))
        allowed, size = GUIDE_NOISE / min(GROWTH * self.power, 1.0) ** 2, SMALLEST_BATCH
        while size < NEARLY_ALL * self.num_rows:
            own, beyond = _front(self.model, anchor, self.unled.rows, probes, size)
            guessed = np.asarray(_polynomials(sums, probes - anchor))
            apart = guessed + self.num_rows / size * np.asarray(beyond) - heights
            noise = float(np.var(apart, ddof=1))
            if not math.isfinite(noise):
                return
            if noise <= allowed:
                # A few particles far away have most of the noise; what is typical is accepted.
                typical = NORMAL * float(np.median(np.abs(apart - np.median(apart))))
                guide = Guide(own, size, self.num_rows / size, typical**2)
                self.term = Led(self.unled.rows, self.num_rows, anchor, sums, guide)
                return
            size = max(wanted_rows(size, noise, self.num_rows, allowed), 2 * size)


@jit
def _sums(model: Model, position: Array, rows: Rows, start: Array, stop: Array) -> Sums:
    return sums_at(model, position, Span(rows, start, stop))


@jit
def _heights(model: Model, rows: Rows, probes: Array, stop: Array) -> Array:
    """Log-likelihood of all rows at the probes."""
    return _at_probes(model, Span(rows, 0, stop), probes)


@jit
def _front(
    model: Model, anchor: Array, rows: Rows, probes: Array, size: Array
) -> tuple[Sums, Array]:
    """The sums of the first rows, and what these leave of them at the probes."""
    span = Span(rows, 0, size)
    own = sums_at(model, anchor, span)
    return own, _at_probes(model, span, probes) - jax.vmap(own.at)(probes - anchor)


def _at_probes(model: Model, span: Span, probes: Array) -> Array:
    found: Array = jax.vmap(lambda u: span(model, u, model.transform(u)[0]))(probes)
    return found


@jit
def _polynomials(sums: Sums, offsets: Array) -> Array:
    found: Array = jax.vmap(sums.at)(offsets)
    return found
