"""Few rows that lead the moves on data that are in memory, chosen anew from step to step."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.anchor import FIRST_ORDER_ABOVE, Guide, Led, Sums, sums_at
from weighbridge.base import Array
from weighbridge.estimators.anchoring import GUIDE_NOISE, NUM_PROBES, SMALLEST_BATCH, wanted_rows
from weighbridge.estimators.anneal import Cloud, Path, StepInfo, shares
from weighbridge.model import Model
from weighbridge.numerics import jit
from weighbridge.target import Rows, Span

# Rows times coordinates from which on a guide pays for its compilation.
LED_FROM = 20_000
# Groups of rows from whose differences a guide's noise is measured: at most, and at least.
NUM_GROUPS, LEAST_GROUPS = 8, 3
# By how much the power may grow in the step that the guide is for.
GROWTH = 2.0
# Below this noise a guide is as good as the target anywhere near.
QUIET = 1e-3


class Lead:
    """The term of all rows, and as many of them in the lead as the particles need.

    The guide is set up around the particles' centre after every step. It changes no target, so
    that it may be chosen by the particles that it moves.

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
        allowed, size = GUIDE_NOISE / min(GROWTH * self.power, 1.0) ** 2, SMALLEST_BATCH
        while size * LEAST_GROUPS <= self.num_rows:
            own, noises = self._measure(anchor, sums, position[chosen], size)
            if np.mean(noises) <= allowed:
                guide = Guide(own, size, self.num_rows / size, float(np.median(noises)))
                self.term = Led(self.unled.rows, self.num_rows, anchor, sums, guide)
                return
            size = max(wanted_rows(size, float(np.mean(noises)), self.num_rows, allowed), 2 * size)

    def _measure(
        self, anchor: np.ndarray, sums: Sums, probes: np.ndarray, size: int
    ) -> tuple[Sums, np.ndarray]:
        """The sums of the first rows, and the noise of so many at every probe."""
        num_groups = min(NUM_GROUPS, self.num_rows // size)
        own, beyond = _groups(self.model, anchor, self.unled.rows, probes, size, num_groups)
        values = self.num_rows / size * np.asarray(beyond)[:num_groups]
        apart = values - values.mean(axis=1, keepdims=True)
        noises = np.var(apart, axis=0, ddof=1) * (1 - size / self.num_rows)
        first: Sums = jax.tree_util.tree_map(lambda leaf: leaf[0], own)
        return first, noises


@jit
def _sums(model: Model, position: Array, rows: Rows, start: Array, stop: Array) -> Sums:
    return sums_at(model, position, Span(rows, start, stop))


@jit
def _groups(
    model: Model, anchor: Array, rows: Rows, probes: Array, size: Array, num_groups: Array
) -> tuple[Sums, Array]:
    """Of each group of rows its sums, and what these leave of it at the probes."""

    def group(number: Array) -> tuple[Sums, Array]:
        inside = jnp.where(number < num_groups, size, 0)
        span = Span(rows, number * size, number * size + inside)
        own = sums_at(model, anchor, span)

        def beyond(u: Array) -> Array:
            return span(model, u, model.transform(u)[0]) - own.at(u - anchor)

        return own, jax.vmap(beyond)(probes)

    found: tuple[Sums, Array] = jax.lax.map(group, jnp.arange(NUM_GROUPS))
    return found
