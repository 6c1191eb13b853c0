"""Convert text columns to numbers, with errors that name row and value."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import numpy as np

from weighbridge.core.errors import DataError
from weighbridge.core.optional import require
from weighbridge.data.columns import NumpyArray, looks_numeric, row_name
from weighbridge.data.sources.csv_records import shorten
from weighbridge.data.sources.requested_columns import Schema, cast
from weighbridge.data.values import as_values

# Maps the number of a row in its block to the name of its place in messages.
Where = Callable[[int], str]


def infer_kinds(batch: Any, schema: Schema, all_wanted: bool, where: Where) -> dict[str, str]:
    """The Arrow type of each numeric column, from the schema or from the first block."""
    kinds = {}
    for name in batch.schema.names:
        column = batch.column(name)
        candidates = _candidates(column, name, schema)
        kind = next((k for k in candidates if _parse_text(column, k) is not None), None)
        if kind is not None:
            kinds[name] = kind
        elif all_wanted or name in schema or _begins_with_number(column):
            wanted = candidates[0] if name in schema else "float64"
            parse_column(column, name, wanted, 0, True, where)
    return kinds


def infer_kinds_leniently(batch: Any, schema: Schema, all_wanted: bool) -> dict[str, str]:
    """The Arrow type of each column that is mostly numbers; other values are bad cells."""
    kinds = {}
    for name in batch.schema.names:
        column = batch.column(name)
        candidates = _candidates(column, name, schema)
        kind = next((k for k in candidates if _parse_text(column, k) is not None), None)
        if kind is None:
            present = len(column) - column.null_count
            good = {k: int(_good_cells(column, k).sum()) for k in candidates}
            best = max(candidates, key=good.__getitem__)  # the first in case of a tie: int64
            if all_wanted or name in schema:
                kind = best if good[best] else "float64"
            elif 2 * good[best] > present:
                kind = best
        if kind is not None:
            kinds[name] = kind
    return kinds


def _candidates(column: Any, name: str, schema: Schema) -> list[str]:
    if name in schema:
        return ["float64" if schema[name] is float else "int64"]
    if column.null_count == len(column):
        return ["float64"]
    return ["int64", "float64", "bool"]


def _begins_with_number(column: Any) -> bool:
    """Whether the first value of a column is a number, although the column is not numeric."""
    first = column.drop_null().slice(0, 1)
    return len(first) > 0 and _parse_text(first, "float64") is not None


def _parse_text(column: Any, kind: str) -> Any:
    """The column as an Arrow array of numbers, or None if a value is not of that type."""
    pyarrow, compute = require("pyarrow"), require("pyarrow.compute")
    for trim in (False, True):
        try:
            return (compute.ascii_trim_whitespace(column) if trim else column).cast(kind)
        except pyarrow.ArrowInvalid:
            pass
    return None


def parse_column(
    column: Any, name: str, kind: str, first_row: int, fixed: bool, where: Where
) -> NumpyArray:
    """A column as numbers of that type; DataError at the first value that is not."""
    parsed = _parse_text(column, kind)
    if parsed is None:
        # A prefix can be parsed until it includes the first bad value, so bisection finds that
        # value.
        position = bisect.bisect_left(
            range(1, len(column) + 1),
            True,
            key=lambda length: _parse_text(column.slice(0, length), kind) is None,
        )
        raise DataError(complaint(column, position, name, kind, fixed, where))
    values: NumpyArray = as_values(parsed)
    return cast(values, name, int, first_row) if fixed and kind == "int64" else values


def parse_leniently(
    column: Any, name: str, kind: str, fixed: bool, where: Where
) -> tuple[NumpyArray, dict[int, str]]:
    """A column as numbers with NaN for bad values, and the reason for each bad value."""
    pyarrow, compute = require("pyarrow"), require("pyarrow.compute")
    good = None
    column = _one_piece(column)
    parsed = _parse_text(column, kind)
    if parsed is None:
        good = _good_cells(column, kind) | column.is_null().to_numpy(zero_copy_only=False)
        kept = compute.if_else(pyarrow.array(good), column, pyarrow.scalar(None, pyarrow.string()))
        parsed = _parse_text(kept, kind)
    values: NumpyArray = as_values(parsed)
    if parsed.null_count and values.dtype == np.bool_:
        values = values.astype(np.float64)
        values[parsed.is_null().to_numpy(zero_copy_only=False)] = np.nan
    if good is None:
        return values, {}
    bad = np.flatnonzero(~good).tolist()
    return values, {row: complaint(column, row, name, kind, fixed, where) for row in bad}


def _one_piece(column: Any) -> Any:
    """A column of a table as one Arrow array."""
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def _good_cells(column: Any, kind: str) -> NumpyArray:
    """Which values have the given type; missing values do not. Equal values are tested once."""
    compute = require("pyarrow.compute")
    encoded = _one_piece(column).dictionary_encode()
    words = encoded.dictionary
    # Plain whole numbers are recognised together, so that only the other values are tested singly.
    plain = compute.match_substring_regex(words, r"^-?[0-9]{1,15}$").to_numpy(zero_copy_only=False)
    good = plain & (kind != "bool")
    for word in np.flatnonzero(~good):
        good[word] = _parse_text(words.slice(int(word), 1), kind) is not None
    index = encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    result: NumpyArray = np.append(good, False)[index]
    return result


def complaint(column: Any, position: int, name: str, kind: str, fixed: bool, where: Where) -> str:
    """What is wrong with a value that does not have the type of its column."""
    text = column.slice(position, 1).cast("binary")[0].as_py().decode("utf-8", "replace")
    found = f"{shorten(repr(text))} at {where(position)}"
    if kind == "int64" and looks_numeric(text):
        return (
            f"Column {name!r} {'is int in schema' if fixed else 'began with whole numbers'}, "
            f"but is {found}. Read it as floats: schema={{{name!r}: float}}."
        )
    what = "true/false" if kind == "bool" else "numbers"
    return (
        f"Column {name!r} should hold {what}, but is {found}. Correct that value (a missing "
        "one is written NA, or left empty), or leave the column out with columns=[...]."
    )


def place_of(row: int, line: int) -> str:
    """The name of a row of a file in messages."""
    return f"{row_name(row)}, line {line}"
