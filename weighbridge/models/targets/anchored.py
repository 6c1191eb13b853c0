"""Likelihoods around an anchor: exact sums to second order, the residual from mini-batches."""

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

# Above this dimension curvatures are left out: they need D^2 numbers for each batch of each island,
# and D^2 multiplications at each particle. One Hessian at a mode is taken up to 1,000 parameters
# (``estimators.sgais.at_once``).
FIRST_ORDER_ABOVE = 300
# Largest number of rows from which the variance of gradients is estimated.
VARIANCE_ROWS = 512


class Sums(NamedTuple):
    """The log-likelihood of some rows around an anchor, to second order.

    Attributes:
        value: L, the sum at the anchor.
        gradient: G, the sum of gradients.
        curvature: H, the sum of Hessians; None for sums of first order.
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
        """The sums if every row counts this many times."""
        scaled: Sums = jax.tree_util.tree_map(lambda leaf: factor * leaf, self)
        return scaled

    @staticmethod
    def zero(dimension: int, *, curved: bool | None = None) -> Sums:
        """The sums over no rows; by default with H up to ``FIRST_ORDER_ABOVE`` parameters."""
        if curved is None:
            curved = dimension <= FIRST_ORDER_ABOVE
        curvature = np.zeros((dimension, dimension)) if curved else None
        return Sums(np.zeros(()), np.zeros(dimension), curvature)  # type: ignore[arg-type]


def sums_at(
    model: Model,
    anchor: Array,
    span: Span,
    block: int = SPAN_BLOCK,
    *,
    curved: bool | None = None,
) -> Sums:
    """L, G and H of some rows at an anchor, in one pass over blocks; ``curved`` as in ``zero``."""

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

    zero = jax.tree_util.tree_map(jnp.asarray, Sums.zero(model.dimension, curved=curved))
    sums: Sums = span.over_blocks(add, zero, block)
    return sums


@dataclass(frozen=True)
class GuideTerm(ExactTerm):
    """An estimate from the polynomial of all rows and the residual of some of them.

    It exists only while a program is traced; its numbers are leaves of ``Anchored`` and ``Guided``.

    Args:
        span: the rows whose residual is used.
        anchor: the position around which the sums are taken.
        sums: L, G and H of all rows.
        own: the sums of the rows of the span.
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
    """The first rows of a batch, if they are enough to guide moves.

    Attributes:
        sums: L, G and H over these rows.
        size: number of these rows.
        scale: n / size.
        noise: variance of their log density estimate, relative to that of the batch.
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

    where r_k is the log-likelihood of row k minus its own second-order expansion. Near the anchor
    it is of third order in d, so the noise of the estimate decreases with n. If the batch is all
    rows, the estimate is exact.

    Args:
        anchor: theta*, an unconstrained position.
        sums: L, G and H over all n rows.
        rows: the rows of the mini-batches, one batch after the other; every island has its own.
        batch_sums: L, G and H over each batch.
        size: number of rows of a batch.
        scale: n / |B|.
        batch: the batch in use; ``subsample`` changes it. A single batch does not change, so that
            moves conserve energy.
        guide_rows: the rows whose gradient guides the moves; None for all rows of the batch.
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
        """Islands have different rows, but the same number of them."""
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
        """The noise of the guide, as measured."""
        return 0.0 if self.guide_rows is None else self.guide_rows.noise

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """The estimate at a position."""
        own: Sums = jax.tree_util.tree_map(lambda leaf: leaf[self.batch], self.batch_sums)
        estimate = GuideTerm(self.span(), self.anchor, self.sums, own, self.scale)
        return estimate(model, position, parameters)

    def faded(self, factor: float) -> Anchored:
        """The term if every row counts this many times."""
        guide_rows = self.guide_rows
        if guide_rows is not None:
            noise = factor**2 * guide_rows.noise
            guide_rows = guide_rows._replace(scale=factor * guide_rows.scale, noise=noise)
        sums = self.sums.times(factor)
        return replace(self, sums=sums, scale=factor * self.scale, guide_rows=guide_rows)

    def emptied(self) -> Anchored:
        """A term of no rows, with the same shapes."""

        def nothing(sums: Sums) -> Sums:
            zero: Sums = jax.tree_util.tree_map(np.zeros_like, sums)
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
        """Use the batch of this step."""
        return replace(self, batch=step % self.batch_sums.value.shape[0])

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """Estimate (n / |B|)^2 |B| (1 - |B| / n) Var_k[grad r_k] from some rows of the batches.

        No row is in a batch twice, so a batch of all rows has no noise.
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
    r"""The exact log-likelihood of n rows, with a guide: an estimate from the first rows.

    .. math:: L + G \cdot d + \tfrac12 d^\top H d + \frac{n}{b} \sum_{k < b} r_k(\theta)

    with r_k as in ``Anchored``. The rows must be in random order.

    Args:
        rows: a store with a multiple of ``SPAN_BLOCK`` rows.
        stop: how many of them count.
        anchor: an unconstrained position among the particles.
        sums: L, G and H of all rows there.
        guide_rows: the sums of the first b rows.
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
        """The estimate from the first rows."""
        own, size, scale, _ = self.guide_rows
        return GuideTerm(Span(self.rows, 0, size), self.anchor, self.sums, own, scale)

    def guide_noise(self) -> Array | float:
        """The noise of the guide, as measured."""
        return self.guide_rows.noise
