"""Columns of text made numbers, with errors that name row and value."""

from __future__ import annotations

import bisect
from typing import Any

from weighbridge.base import DataError
from weighbridge.data import NumpyArray, as_values, looks_numeric, require, row_name
from weighbridge.sources.columns import Schema, cast


def infer_kinds(batch: Any, schema: Schema, all_wanted: bool) -> dict[str, str]:
    """The Arrow type of each numeric column, from the schema or else from the first block."""
    kinds = {}
    for name in batch.schema.names:
        column = batch.column(name)
        candidates = ["int64", "float64", "bool"]
        if name in schema:
            candidates = ["float64" if schema[name] is float else "int64"]
        elif column.null_count == len(column):
            candidates = ["float64"]
        kind = next((k for k in candidates if _parse_text(column, k) is not None), None)
        if kind is not None:
            kinds[name] = kind
        elif all_wanted or name in schema or _begins_with_number(column):
            parse_column(column, name, candidates[0] if name in schema else "float64", 0, True)
    return kinds


def _begins_with_number(column: Any) -> bool:
    """Whether a column that is not numeric turned into text only after its first value."""
    first = column.drop_null().slice(0, 1)
    return len(first) > 0 and _parse_text(first, "float64") is not None


def _parse_text(column: Any, kind: str) -> Any:
    """The column as an Arrow array of numbers, or None if a value is not of that kind."""
    pyarrow, compute = require("pyarrow"), require("pyarrow.compute")
    for trim in (False, True):
        try:
            return (compute.ascii_trim_whitespace(column) if trim else column).cast(kind)
        except pyarrow.ArrowInvalid:
            pass
    return None


def parse_column(column: Any, name: str, kind: str, first_row: int, fixed: bool) -> NumpyArray:
    """A column as numbers of that kind; DataError at the first value that is not."""
    parsed = _parse_text(column, kind)
    if parsed is None:
        # A prefix parses until it includes the first bad value, so bisection finds that value.
        position = bisect.bisect_left(
            range(1, len(column) + 1),
            True,
            key=lambda length: _parse_text(column.slice(0, length), kind) is None,
        )
        text = column.cast("binary")[position].as_py().decode("utf-8", "replace")
        where = f"{text!r} at {row_name(first_row + position)}"
        if kind == "int64" and looks_numeric(text):
            raise DataError(
                f"Column {name!r} {'is int in schema' if fixed else 'began with whole numbers'}, "
                f"but is {where}. Read it as floats: schema={{{name!r}: float}}."
            )
        what = "true/false" if kind == "bool" else "numbers"
        raise DataError(
            f"Column {name!r} should hold {what}, but is {where}. Correct that value (a missing "
            "one is written NA, or left empty), or leave the column out with columns=[...]."
        )
    values: NumpyArray = as_values(parsed)
    return cast(values, name, int, first_row) if fixed and kind == "int64" else values
