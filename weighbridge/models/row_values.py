"""The log-likelihood of every row at every draw, in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.types import Array, PyTree
from weighbridge.data.cutting import pad, split
from weighbridge.data.values import num_rows

if TYPE_CHECKING:
    from weighbridge.models.model import Model

# Log-likelihoods computed at once, and held at once: memory does not grow with rows or draws.
BLOCK_VALUES = 65_536
HELD_VALUES = 4 * BLOCK_VALUES


def row_blocks(
    model: Model, samples: Mapping[str, np.ndarray], values: PyTree
) -> Iterator[tuple[slice, np.ndarray]]:
    """Log-likelihoods of some rows at all draws (draws x rows), in blocks of rows."""
    num_draws, count = num_rows(samples), num_rows(values)
    rows_at_once = min(count, max(HELD_VALUES // num_draws, 1))
    draws_at_once = min(num_draws, max(BLOCK_VALUES // rows_at_once, 1))
    for first, rows in enumerate(split(values, rows_at_once)):
        size = num_rows(rows)
        padded, _ = pad(rows, np.ones(size), rows_at_once)
        found = []
        for some in split(dict(samples), draws_at_once):
            block, _ = pad(some, np.ones(num_rows(some)), draws_at_once)
            found.append(np.asarray(_row_values(model, block, padded))[: num_rows(some), :size])
        start = first * rows_at_once
        yield slice(start, start + size), np.concatenate(found)


@jit
def _row_values(model: Model, samples: Mapping[str, Array], values: PyTree) -> Array:
    result: Array = jax.vmap(lambda p: model.row_log_likelihoods(p, values))(samples)
    return result
