"""All rows of a run in arrays whose shapes seldom change, for targets that need every row."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from weighbridge.core.types import PyTree
from weighbridge.estimators.sequential import Kept
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import SPAN_BLOCK

# Rows that a store has room for at first, so that runs with fewer rows share their programs.
FIRST_CAPACITY = 64 * SPAN_BLOCK


class Store:
    """All rows so far, in arrays whose length doubles when they are full."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.columns: list[np.ndarray] = []  # leaves of the values, then the weights
        self.layout: Any = None

    @property
    def weight(self) -> np.ndarray:
        """How often each row counts."""
        return self.columns[-1][: self.num_rows]

    def append(self, values: PyTree, weight: np.ndarray) -> None:
        """Append rows that were checked."""
        leaves, self.layout = jax.tree_util.tree_flatten(values)
        self.extend([*leaves, np.asarray(weight, float)])

    def extend(self, columns: list[np.ndarray]) -> None:
        """Append rows given as the columns of a store."""
        start, stop = self.num_rows, self.num_rows + len(columns[-1])
        capacity = len(self.columns[-1]) if self.columns else 0
        if stop > capacity:
            size = FIRST_CAPACITY * 2 ** max(math.ceil(math.log2(stop / FIRST_CAPACITY)), 0)
            # Rows that are not yet in use repeat the first one, which is valid for the model.
            grown = [np.repeat(column[:1], size, axis=0) for column in self.columns or columns]
            for new, old in zip(grown, self.columns):
                new[:start] = old[:start]
            self.columns = grown
        for column, new in zip(self.columns, columns):
            column[start:stop] = new
        self.num_rows = stop

    def cut(self, num_rows: int) -> None:
        """Remove all rows but the first ``num_rows``."""
        if not num_rows:  # the next rows may have other columns
            self.columns = []
        for column in self.columns:
            column[num_rows : self.num_rows] = column[:1]
        self.num_rows = num_rows

    def kept(self) -> Kept | None:
        """All rows; None after a restart, until new rows show the layout of the columns."""
        if not self.num_rows or self.layout is None:
            return None
        *leaves, weight = [column[: self.num_rows].copy() for column in self.columns]
        return Kept(jax.tree_util.tree_unflatten(self.layout, leaves), weight, True)

    def rows(self) -> Rows:
        """A copy of all rows, with the room for more; later changes do not affect it."""
        *leaves, weight = (jax.device_put(column.copy()) for column in self.columns)
        return Rows(jax.tree_util.tree_unflatten(self.layout, leaves), weight)
