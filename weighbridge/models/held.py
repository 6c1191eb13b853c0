"""All observations of a model, checked and held in memory."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import numpy as np

from weighbridge.core.errors import DataError
from weighbridge.core.types import PyTree
from weighbridge.data.cutting import join
from weighbridge.data.fingerprint import Fingerprint
from weighbridge.data.row_checking import RowPolicy
from weighbridge.data.sources.opening import open_source
from weighbridge.data.values import LeftOut, num_rows
from weighbridge.models.columns_read import refuse_if_read
from weighbridge.models.model import Model
from weighbridge.models.row_gate import Admission, QuarantineFile, nothing_to_weigh
from weighbridge.models.row_likelihood import split_weight


class Held(Admission):
    """All observations of a model, checked and held in memory, for methods that need them."""

    def __init__(
        self,
        model: Model,
        on_bad_row: RowPolicy,
        quarantine: QuarantineFile | None = None,
        left_out: LeftOut | None = None,
    ) -> None:
        super().__init__(model, on_bad_row, quarantine, left_out)
        self.blocks: list[PyTree] = []

    def add(
        self,
        values: PyTree,
        unusable: np.ndarray | None = None,
        shown: PyTree | None = None,
    ) -> None:
        """Add one block; a likelihood that does not factorise has no rows to check.

        Args:
            values: the block.
            unusable: its rows that another model cannot use.
            shown: its rows in their original form, for the quarantine.
        """
        if self.model.log_likelihood is not None:
            values = self.admit(values, unusable, shown)
        else:
            if not self.blocks:
                refuse_if_read(self.model, values, self.left_out)
            if unusable is not None and unusable.any():
                values = jax.tree_util.tree_map(lambda leaf: leaf[~unusable], values)
        if values is not None and num_rows(values):
            self.blocks.append(values)

    def contents(self) -> tuple[PyTree, np.ndarray | None]:
        """All rows and their weights; no weights for a likelihood that does not factorise."""
        values: PyTree = join(self.blocks) if self.blocks else None
        if self.model.log_likelihood is None:
            return values, None
        if values is None:
            raise DataError(nothing_to_weigh(self.checker.rows_left_out))
        return split_weight(values, bool(self.weight_counts_rows))

    def values(self) -> PyTree:
        """All rows as the model takes them; None without data."""
        return self.contents()[0]

    @cached_property
    def fingerprint(self) -> Fingerprint | None:
        """The fingerprint of all rows; None without data."""
        values, weight = self.contents()
        if values is None:
            return None
        counts = np.ones(num_rows(values)) if weight is None else weight
        return Fingerprint().add(values, counts, ordered=weight is None)


def hold(
    model: Model,
    data: Any,
    caller: str,
    on_bad_row: RowPolicy = "raise",
    quarantine: QuarantineFile | None = None,
) -> tuple[PyTree, np.ndarray | None]:
    """All observations for a model, checked, and their weights; ``caller`` is for messages."""
    return take(model, data, caller, on_bad_row, quarantine).contents()


def take(
    model: Model,
    data: Any,
    caller: str,
    on_bad_row: RowPolicy = "raise",
    quarantine: QuarantineFile | None = None,
) -> Held:
    """All observations for a model, and what was noticed; ``caller`` is for messages."""
    if data is None and model.log_likelihood is not None:
        raise DataError(f"{caller} needs rows for this model: give it data.")
    if data is None:
        return Held(model, on_bad_row, quarantine)
    source = open_source(data, on_bad_row=on_bad_row)
    held = Held(model, on_bad_row, quarantine, source.left_out)
    held.checker.unread = source.unread
    for block in source.blocks():
        held.add(block)
    return held
