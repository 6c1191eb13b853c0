"""The checks that rows pass before a model is weighed on them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from weighbridge.core.errors import DataError, MethodError
from weighbridge.core.status import Status
from weighbridge.core.types import PyTree
from weighbridge.data.quarantine import Quarantine
from weighbridge.data.row_checking import RowChecker, RowPolicy
from weighbridge.data.values import LeftOut, num_rows
from weighbridge.models.column_scales import scale_remark
from weighbridge.models.columns_read import columns_needed, refuse_if_read
from weighbridge.models.model import Model
from weighbridge.models.parameters_read import CONSTANT, reads_parameters, row_shapes
from weighbridge.models.resolution import largest_value, unresolved
from weighbridge.models.row_likelihood import check_row_function

QuarantineFile = str | os.PathLike[str] | Quarantine


def require_model(model: Any) -> None:
    """Refuse an object that is not a model."""
    if isinstance(model, Model):
        return
    refuse_pymc(model)
    if callable(model):
        raise MethodError(
            f"model must be a wb.Model, not the function {getattr(model, '__name__', model)!r}. "
            "If it is a NumPyro model, give wb.from_numpyro(function, data)."
        )
    raise MethodError(
        f"model must be a wb.Model, not {type(model).__name__}. For a NumPyro function use "
        "wb.from_numpyro."
    )


def refuse_pymc(model: Any) -> None:
    """Raise an error that explains what to do with a PyMC model."""
    if type(model).__module__.split(".")[0] == "pymc":
        raise MethodError(
            "This is a PyMC model, which cannot be read yet. Write it as wb.Model: each free "
            "variable becomes an entry of the prior, a NumPyro distribution (pm.Normal(mu, sigma) "
            "is dist.Normal(mu, sigma)), and the observed ones become the log_likelihood of one "
            "row, dist.Normal(...).log_prob(row['y']). Draws of PyMC can be kept for wb.loo and "
            "plots as arrays, chains x draws."
        )


def nothing_to_weigh(rows_left_out: int) -> str:
    """The message if no row is left."""
    reason = ", or every row was skipped." if rows_left_out else "."
    return f"There is no row to weigh: the data is empty{reason}"


class Admission:
    """The checks that every block of rows passes, for one model.

    Args:
        model: the model for which the rows are.
        on_bad_row: what to do with rows that cannot be used.
        quarantine: the file for bad rows.
        left_out: columns that were left out because they do not hold numbers; the model may not
            read them. This is the same dict as that of the reader of the rows, which may add to it.
    """

    def __init__(
        self,
        model: Model,
        on_bad_row: RowPolicy,
        quarantine: QuarantineFile | None = None,
        left_out: LeftOut | None = None,
    ) -> None:
        require_model(model)
        self.left_out: LeftOut = {} if left_out is None else left_out
        self.model = model
        self.checker = RowChecker(on_bad_row, self.check_rows, quarantine, self.columns_read)
        self._columns_read: tuple[set[str] | None] | None = None  # None until known
        self.weight_counts_rows: bool | None = None
        self.scale_remark = ""
        self._row: PyTree | None = None  # the shapes of a row; None until known
        # Row, column and size of the largest accepted value, if it is large.
        self.largest: tuple[int, str, float] | None = None

    def admit(
        self,
        values: PyTree,
        unusable: np.ndarray | None = None,
        shown: PyTree | None = None,
    ) -> PyTree:
        """Check a block of rows; the first block also checks the model against its columns.

        Args:
            values: the rows.
            unusable: rows that another model cannot use, which are left out here too.
            shown: the rows in their original form, for the quarantine.
        """
        before, rows_read = self.weight_counts_rows, self.checker.rows_read
        self.check_model(values)
        try:
            admitted = self.checker(values, unusable, shown)
        except DataError:
            self.weight_counts_rows = before
            raise
        self.note_largest(values, admitted, rows_read)
        return admitted

    def note_largest(self, values: PyTree, admitted: PyTree, first_row: int) -> None:
        """Remember the place of the largest value; ``first_row`` is the number of the first row."""
        found = largest_value(values, admitted)
        if found is not None and (self.largest is None or found[2] > self.largest[2]):
            self.largest = (first_row + found[0], *found[1:])

    def find_bad(self, values: PyTree) -> np.ndarray:
        """Which rows of a block this model cannot use; nothing is counted."""
        self.check_model(values)
        return self.checker.find_bad(values)

    def check_model(self, values: PyTree) -> None:
        """Check the model against the columns of the first rows, and compare their scales."""
        if num_rows(values) and self._row is None:
            self._row = row_shapes(values)
        if num_rows(values) and self.weight_counts_rows is None:
            refuse_if_read(self.model, values, self.left_out)
            self.weight_counts_rows = check_row_function(self.model, values)
            self.scale_remark = scale_remark(self.model, values)

    def columns_read(self, values: PyTree) -> set[str] | None:
        """The columns that the model reads, which must have no missing values; None for all."""
        if self._columns_read is None:
            read = columns_needed(self.model, values) if isinstance(values, dict) else None
            self._columns_read = (None if read is None else read | {"weight"},)
        return self._columns_read[0]

    def noticed(self) -> dict[str, Any]:
        """Facts about the rows that a result should report."""
        return {
            "rows_skipped": self.checker.rows_skipped,
            "rows_quarantined": self.checker.rows_quarantined,
            "weighted_rows": bool(self.weight_counts_rows),
            "columns_left_out": [str(name) for name in self.left_out],
            "scale_remark": self.scale_remark,
            **({} if self.largest is None else {"largest_value": self._largest_text(self.largest)}),
        }

    def about_flatness(self, flags: Sequence[Status]) -> dict[str, Any]:
        """A diagnostic that makes a flat likelihood exact: that it reads no parameter.

        It is looked at only where the likelihood was found to be flat.
        """
        if Status.FLAT not in flags or self._row is None:
            return {}
        return {} if reads_parameters(self.model, self._row) else {CONSTANT: True}

    @staticmethod
    def _largest_text(largest: tuple[int, str, float]) -> str:
        row, column, size = largest
        return f"row {row} of {column!r} is {size:.3g}"

    def check_rows(self, values: PyTree) -> dict[str, np.ndarray]:
        """The rows that are impossible, too large to compute, or have a negative weight."""
        flags = {} if self.model.check_rows is None else dict(self.model.check_rows(values))
        if self.weight_counts_rows and np.ndim(values["weight"]) == 1:
            flags["column 'weight' counts repeated rows and is negative"] = values["weight"] < 0
        return flags | unresolved(self.model, values, bool(self.weight_counts_rows))
