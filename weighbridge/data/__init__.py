"""Observations in memory: normalising them, checking rows, cutting blocks.

Throughout, *values* are a pytree of NumPy arrays (float64, int64 or bool) with one leading axis.
"""

from weighbridge.data.checking import RowChecker, RowPolicy, open_quarantine
from weighbridge.data.columns import NumpyArray, is_numeric_arrow, looks_numeric, row_name
from weighbridge.data.cutting import check_weight, join, pad, rechunk, slice_rows, split
from weighbridge.data.optional import require
from weighbridge.data.values import (
    LeftOut,
    TableReader,
    Taken,
    Values,
    as_values,
    column_names,
    columns_remark,
    is_table,
    left_out_before,
    num_rows,
    refuse_duplicates,
    take_columns,
)

__all__ = [
    "LeftOut",
    "NumpyArray",
    "RowChecker",
    "RowPolicy",
    "TableReader",
    "Taken",
    "Values",
    "as_values",
    "check_weight",
    "column_names",
    "columns_remark",
    "is_numeric_arrow",
    "is_table",
    "join",
    "left_out_before",
    "looks_numeric",
    "num_rows",
    "open_quarantine",
    "pad",
    "rechunk",
    "refuse_duplicates",
    "require",
    "row_name",
    "slice_rows",
    "split",
    "take_columns",
]
