"""The exact log-likelihood of any number of consecutive rows of a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.models.priors import Parameters
from weighbridge.models.targets.rows import Rows, weighted_sum
from weighbridge.models.targets.term import ExactTerm

# Rows per block if their number is not known beforehand. It is small, so that an incomplete last
# block wastes little, and a block for a thousand particles fits into the cache.
SPAN_BLOCK = 64

Carry = TypeVar("Carry")


@partial(register_dataclass, data_fields=["rows", "start", "stop"], meta_fields=[])
@dataclass(frozen=True)
class Span(ExactTerm):
    r"""The exact log-likelihood of any number of consecutive rows of a store.

    .. math:: \sum_{start \le k < stop} w_k \log p(y_k | \theta)

    Both ends are leaves of the pytree: a stream may grow within its store, and a chunk may have any
    size, without a new trace. The cost is that of the blocks from start to stop. The gradient is
    summed together with the value, so that memory does not grow; there is no second derivative.

    Args:
        rows: the store, a multiple of ``SPAN_BLOCK`` rows; rows that are not yet in use must be
            valid for the model.
        start: the first row.
        stop: the row after the last.

    >>> import numpyro.distributions as dist
    >>> model = Model({"mu": dist.Normal(0, 1)}, lambda p, y: -0.5 * (y - p["mu"]) ** 2)
    >>> store = Rows(np.arange(64.0), np.ones(64))
    >>> float(Span(store, 1, 4)(model, jnp.ones(1), {"mu": jnp.ones(())}))
    -2.5
    """

    rows: Rows
    start: Array | np.ndarray | int
    stop: Array | np.ndarray | int

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """Sum over the rows, block by block."""
        return _span_sum(model, parameters, self)

    def over_blocks(
        self, add: Callable[[Rows, Carry], Carry], carry: Carry, block: int = SPAN_BLOCK
    ) -> Carry:
        """Loop over the blocks that contain the rows; other rows of a block get weight 0."""

        def body(number: Array, carry: Carry) -> Carry:
            first = number * block
            rows = jax.tree_util.tree_map(
                lambda leaf: jax.lax.dynamic_slice_in_dim(jnp.asarray(leaf), first, block),
                self.rows,
            )
            index = first + jnp.arange(block)
            inside = (index >= self.start) & (index < self.stop)
            return add(Rows(rows.values, jnp.where(inside, rows.weight, 0.0)), carry)

        begin, end = self.start // block, -(-self.stop // block)
        return cast(Carry, jax.lax.fori_loop(begin, end, body, carry))


@jax.custom_vjp
def _span_sum(model: Model, parameters: Parameters, span: Span) -> Array:
    return span.over_blocks(
        lambda rows, total: total + weighted_sum(model, parameters, rows),
        jnp.zeros(()),
    )


def _span_forward(model: Model, parameters: Parameters, span: Span) -> tuple[Array, Parameters]:
    # A loop of unknown length has no reverse mode, so the gradient is computed in the forward pass.
    def add(rows: Rows, carry: tuple[Array, Parameters]) -> tuple[Array, Parameters]:
        found = jax.value_and_grad(weighted_sum, argnums=1)(model, parameters, rows)
        return cast(tuple[Array, Parameters], jax.tree_util.tree_map(jnp.add, carry, found))

    zero = (jnp.zeros(()), jax.tree_util.tree_map(jnp.zeros_like, parameters))
    return span.over_blocks(add, zero)


def _span_backward(gradient: Parameters, cotangent: Array) -> tuple[None, Parameters, None]:
    return None, {name: cotangent * slope for name, slope in gradient.items()}, None


_span_sum.defvjp(_span_forward, _span_backward)
