"""Likelihoods around an anchor: exact sums to second order, and the rest from mini-batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.models.priors import Parameters
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import SPAN_BLOCK, Span
from weighbridge.models.targets.term import ExactTerm

# From this dimension on curvatures are left out: they take D^2 numbers, and D passes.
FIRST_ORDER_ABOVE = 300
# Rows from which the variance of gradients is estimated, at most.
VARIANCE_ROWS = 512


class Sums(NamedTuple):
    """The log-likelihood of some rows around an anchor, to second order.

    Attributes:
        value: L, the sum at the anchor.
        gradient: G.
        curvature: H; None for sums of first order.
    """

    value: Array
    gradient: Array
    curvature: Array | None

    def at(self, offset: Array) -> Array:
        """L + G.d + d'Hd / 2 at an offset d from the anchor."""
        slope = self.gradient
        if self.curvature is not None:
            slope = slope + 0.5 * self.curvature @ offset
        return self.value + offset @ slope

    def moved(self, offset: Array) -> Sums:
        """The same polynomial around another anchor."""
        if self.curvature is None:
            return Sums(self.at(offset), self.gradient, None)
        return Sums(self.at(offset), self.gradient + self.curvature @ offset, self.curvature)

    def plus(self, other: Sums, times: float = 1.0) -> Sums:
        """The sums of these rows and of others, which may count several times."""
        total: Sums = jax.tree_util.tree_map(lambda mine, its: mine + times * its, self, other)
        return total

    def times(self, factor: float) -> Sums:
        """The sums where every row counts so many times."""
        scaled: Sums = jax.tree_util.tree_map(lambda leaf: factor * leaf, self)
        return scaled

    @staticmethod
    def zero(dimension: int) -> Sums:
        """Of no rows."""
        curvature = np.zeros((dimension, dimension)) if dimension <= FIRST_ORDER_ABOVE else None
        return Sums(np.zeros(()), np.zeros(dimension), curvature)  # type: ignore[arg-type]


def sums_at(model: Model, anchor: Array, span: Span, block: int = SPAN_BLOCK) -> Sums:
    """L, G and H of some rows at an anchor, in one pass and in blocks."""

    def add(rows: Rows, carry: Sums) -> Sums:
        def total(position: Array) -> Array:
            return rows(model, position, model.transform(position)[0])

        def slope(position: Array) -> tuple[Array, tuple[Array, Array]]:
            value, gradient = jax.value_and_grad(total)(position)
            return gradient, (value, gradient)

        if carry.curvature is None:
            return carry.plus(Sums(*slope(anchor)[1], None))
        curvature, (value, gradient) = jax.jacfwd(slope, has_aux=True)(anchor)
        return carry.plus(Sums(value, gradient, curvature))

    zero = jax.tree_util.tree_map(jnp.asarray, Sums.zero(model.dimension))
    sums: Sums = span.over_blocks(add, zero, block)
    return sums


@dataclass(frozen=True)
class GuideTerm(ExactTerm):
    """What the polynomial of all rows and the residual of some of them tell of all.

    It lives only while it is traced: the numbers of a pytree are with ``Anchored`` and ``Guided``.

    Args:
        span: the rows whose residual counts.
        anchor: what the sums are around.
        sums: L, G and H of all rows.
        own: those of the span.
        scale: how often the residual counts.
    """

    span: Span
    anchor: Array | np.ndarray
    sums: Sums
    own: Sums
    scale: Array | float

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """The estimate at a position."""
        offset = position - self.anchor
        beyond = self.span(model, position, parameters) - self.own.at(offset)
        return self.sums.at(offset) + self.scale * beyond


class GuideRows(NamedTuple):
    """The first rows of a batch, where they are enough to guide moves.

    Attributes:
        sums: L, G and H over them.
        size: how many they are.
        scale: n / size.
        noise: variance of the log density that they give, relative to that of the batch.
    """

    sums: Sums
    size: Array | int
    scale: Array | float
    noise: Array | float


@partial(
    register_dataclass,
    data_fields=["anchor", "sums", "rows", "batch_sums", "size", "scale", "batch", "guide_rows"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Anchored:
    r"""The log-likelihood of n rows: exact to second order, the residual from a mini-batch.

    .. math:: \ell(\theta) \approx L + G \cdot d + \tfrac12 d^\top H d
              + \frac{n}{|B|} \sum_{k \in B} r_k(\theta), \qquad d = \theta - \theta^*

    with r_k what is left of row k beyond its own second-order terms. Near the anchor it is of third
    order in d, so the noise of the estimate falls with n. With all rows as the batch it is exact.

    Args:
        anchor: theta*, an unconstrained position.
        sums: L, G and H over all n rows.
        rows: those of the mini-batches, one after the other; every island has its own.
        batch_sums: L, G and H over each batch.
        size: rows of a batch.
        scale: n / |B|.
        batch: the one in use; ``subsample`` changes it. Where there is only one it stays, so that
            moves conserve energy.
        guide_rows: the rows whose gradient guides moves; None for all of the batch.
    """

    anchor: Array | np.ndarray
    sums: Sums
    rows: Rows
    batch_sums: Sums
    size: Array | int
    scale: Array | float
    batch: Array | int = 0
    guide_rows: GuideRows | None = None

    @property
    def axes(self) -> Any:
        """Islands have their own rows, and the same numbers of them."""
        of_guide_rows: Any = (0, None, None, None)
        guide_rows = None if self.guide_rows is None else GuideRows(*of_guide_rows)
        parts: Any = (None, None, 0, 0, None, None, None, guide_rows)
        return Anchored(*parts)

    def guide(self) -> Anchored:
        """The same term on fewer rows."""
        if self.guide_rows is None:
            return self
        sums, size, scale, _ = self.guide_rows
        return replace(self, batch_sums=sums, size=size, scale=scale, guide_rows=None)

    def guide_noise(self) -> Array | float:
        """As it was measured."""
        return 0.0 if self.guide_rows is None else self.guide_rows.noise

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """The estimate at a position."""
        own: Sums = jax.tree_util.tree_map(lambda leaf: leaf[self.batch], self.batch_sums)
        estimate = GuideTerm(self.span(), self.anchor, self.sums, own, self.scale)
        return estimate(model, position, parameters)

    def faded(self, factor: float) -> Anchored:
        """The term where every row counts so many times."""
        guide_rows = self.guide_rows
        if guide_rows is not None:
            noise = factor**2 * guide_rows.noise
            guide_rows = guide_rows._replace(scale=factor * guide_rows.scale, noise=noise)
        sums = self.sums.times(factor)
        return replace(self, sums=sums, scale=factor * self.scale, guide_rows=guide_rows)

    def emptied(self) -> Anchored:
        """A term of no rows, of the same shapes."""

        def nothing(sums: Sums) -> Sums:
            zero: Sums = jax.tree_util.tree_map(jnp.zeros_like, sums)
            return zero

        guide_rows = self.guide_rows and GuideRows(nothing(self.guide_rows.sums), 0, 0.0, 0.0)
        return replace(
            self,
            sums=nothing(self.sums),
            batch_sums=nothing(self.batch_sums),
            size=0,
            scale=0.0,
            guide_rows=guide_rows,
        )

    def span(self) -> Span:
        """The rows of the batch in use."""
        return Span(self.rows, self.batch * self.size, (self.batch + 1) * self.size)

    def subsample(self, step: Array) -> Anchored:
        """Go to the batch of this step."""
        return replace(self, batch=step % self.batch_sums.value.shape[0])

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """Estimate (n / |B|)^2 |B| (1 - |B| / n) Var_k[grad r_k] from some rows of the batches.

        No row is twice in a batch, so that one of all rows has no noise.
        """
        function = model.require_rows()
        offset = position - self.anchor

        def residual(row: Any, weight: Array) -> Array:
            slope = jax.grad(lambda u: function(model.transform(u)[0], row))
            expected = slope(self.anchor)
            if self.sums.curvature is not None:
                expected, change = jax.jvp(slope, (self.anchor,), (offset,))
                expected = expected + change
            beyond: Array = weight * (slope(position) - expected)
            return beyond

        some = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf)[:VARIANCE_ROWS], self.rows)
        residuals = jax.vmap(residual)(some.values, some.weight)
        drawn = jnp.minimum(self.size * self.batch_sums.value.shape[0], residuals.shape[0])
        used = (jnp.arange(residuals.shape[0]) < drawn)[:, None]
        mean = jnp.sum(jnp.where(used, residuals, 0.0), axis=0) / drawn
        squares = jnp.sum(jnp.where(used, (residuals - mean) ** 2, 0.0), axis=0)
        spread: Array = squares / jnp.maximum(drawn - 1, 1)
        return jnp.maximum(self.scale - 1, 0.0) * self.scale * self.size * spread


@partial(
    register_dataclass,
    data_fields=["rows", "stop", "anchor", "sums", "guide_rows"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Guided(ExactTerm):
    r"""The exact log-likelihood of n rows, with a guide: what the first of them tell.

    .. math:: L + G \cdot d + \tfrac12 d^\top H d + \frac{n}{b} \sum_{k < b} r_k(\theta)

    with r_k as in ``Anchored``. The rows must be in random order.

    Args:
        rows: a store, a multiple of ``SPAN_BLOCK`` rows.
        stop: how many of them count.
        anchor: an unconstrained position among the particles.
        sums: L, G and H of all rows there.
        guide_rows: those of the first b rows.
    """

    rows: Rows
    stop: Array | int
    anchor: Array | np.ndarray
    sums: Sums
    guide_rows: GuideRows

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """The sum over all rows."""
        return Span(self.rows, 0, self.stop)(model, position, parameters)

    def guide(self) -> GuideTerm:
        """What the first rows tell."""
        own, size, scale, _ = self.guide_rows
        return GuideTerm(Span(self.rows, 0, size), self.anchor, self.sums, own, scale)

    def guide_noise(self) -> Array | float:
        """As it was measured."""
        return self.guide_rows.noise
