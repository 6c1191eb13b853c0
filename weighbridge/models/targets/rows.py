"""The exact log-likelihood of some rows, summed in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, PyTree
from weighbridge.models.model import Model
from weighbridge.models.priors import Parameters
from weighbridge.models.targets.term import ExactTerm

# Rows are summed in blocks of this size, so that memory does not grow with the data size.
BLOCK_ROWS = 4096


@partial(register_dataclass, data_fields=["values", "weight"], meta_fields=[])
@dataclass(frozen=True)
class Rows(ExactTerm):
    """The exact log-likelihood of some rows, sum_k weight_k log p(row_k | theta).

    Padding rows have weight 0 and contribute exactly 0.
    """

    values: PyTree
    weight: Array | np.ndarray

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """Sum over the rows, block by block."""
        num_rows = self.weight.shape[0]
        if num_rows <= BLOCK_ROWS:
            return weighted_sum(model, parameters, self)
        num_blocks = num_rows // BLOCK_ROWS
        head = jax.tree_util.tree_map(
            lambda leaf: leaf[: num_blocks * BLOCK_ROWS].reshape(
                num_blocks, BLOCK_ROWS, *leaf.shape[1:]
            ),
            self,
        )
        add = jax.checkpoint(lambda rows: weighted_sum(model, parameters, rows))
        total, _ = jax.lax.scan(lambda carry, rows: (carry + add(rows), None), 0.0, head)
        tail = jax.tree_util.tree_map(lambda leaf: leaf[num_blocks * BLOCK_ROWS :], self)
        return total + weighted_sum(model, parameters, tail)


def weighted_sum(model: Model, parameters: Parameters, rows: Rows) -> Array:
    """Sum over all rows at once; rows of weight 0 contribute 0, even if they are NaN."""
    log_likelihoods = model.row_log_likelihoods(parameters, rows.values)
    return jnp.sum(jnp.where(rows.weight > 0, rows.weight * log_likelihoods, 0.0))
