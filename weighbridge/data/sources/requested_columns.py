"""The requested columns: whether they exist, which are kept, and their types."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from weighbridge.core.errors import DataError
from weighbridge.data.columns import NumpyArray, row_name
from weighbridge.data.values import LeftOut, Values, refuse_duplicates

Columns = list[str] | None
MOST_COMPARED = 1000  # names that a misspelled name is compared with
Schema = Mapping[str, type]


class Request(NamedTuple):
    """What a reader of rows is asked for; every reader and feed of files takes one.

    Attributes:
        columns: the columns to read; None for all that are numeric.
        schema: column -> float or int, for types that should not be inferred.
        lenient: if true, a row that cannot be parsed becomes a bad row, and a file that cannot be
            read gives a notice; otherwise each is a DataError.
    """

    columns: Columns = None
    schema: Schema = MappingProxyType({})
    lenient: bool = False

    @property
    def named(self) -> list[str]:
        """The columns that must be there: those of `columns` and of `schema`."""
        return [*(self.columns or []), *self.schema]


# A strict request without names or types.
ALL_COLUMNS = Request()


def check_request(
    columns: Sequence[str] | None, schema: Mapping[str, type] | None, *, lenient: bool = False
) -> Request:
    """The request for these columns and types; DataError if they are not valid."""
    types = dict(schema or {})
    if columns is not None:
        columns = [columns] if isinstance(columns, str) else list(columns)
        if not columns:
            raise DataError("columns is empty. Name at least one column, or leave it out.")
        refuse_duplicates(columns)
        check_present(columns, types)  # a type for a column that is not read is an error
    for name, kind in types.items():
        if kind not in (float, int):
            raise DataError(f"schema[{name!r}] is {kind!r}. Use float or int (the types).")
    return Request(columns, types, lenient)


def check_present(present: Sequence[str], names: Iterable[str]) -> None:
    """Raise a DataError for the first name that is not present."""
    known = set(present)
    for name in names:
        if name not in known:
            near = nearest(name, [str(one) for one in present[:MOST_COMPARED]])
            raise DataError(
                f"There is no column {name!r}.{near} The columns are: {named(present)}."
            )


def named(columns: Sequence[str], most: int = 20) -> str:
    """Names of columns for a message; only the first ones if there are many."""
    shown = [text if len(text := str(name)) <= 80 else f"{text[:77]}..." for name in columns[:most]]
    more = len(columns) - most
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint with the most similar known name; empty if none is similar."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def not_numbers(name: str) -> DataError:
    """The error for reading a column of a file that was left out."""
    return DataError(
        f"Column {name!r} was left out, because it does not hold numbers. Convert it to numbers "
        "in the file (labels to 0, 1, 2, ...), or do not use it."
    )


def select(
    values: Values, request: Request, first_row: int, left_out: LeftOut | None = None
) -> Values:
    """Keep the requested columns of a block and give them the types of the schema.

    A requested column that was left out is an error. Columns that the user did not request are not
    reported as left out.
    """
    columns, schema, _ = request
    for name in request.named:
        if left_out and name in left_out:
            raise left_out[name]
    if columns is not None and left_out:
        left_out.clear()
    if not request.named:
        return values
    if not isinstance(values, dict):
        raise DataError("columns and schema need named columns. Pass a dict: {'x': array}.")
    check_present(list(values), request.named)
    return {
        name: cast(values[name], name, schema.get(name), first_row) for name in columns or values
    }


def cast(leaf: NumpyArray, name: str, kind: type | None, first_row: int) -> NumpyArray:
    """A column in the type of the schema; DataError at a value that is not whole."""
    if kind is float:
        return leaf.astype(np.float64, copy=False)
    if kind is int and leaf.dtype == np.float64:
        whole = np.isfinite(leaf) & (np.abs(leaf) < 2.0**53) & (leaf == np.round(leaf))
        if not whole.all():
            index = tuple(np.argwhere(~whole)[0])
            where = row_name(first_row + int(index[0]))
            raise DataError(
                f"Column {name!r} is int in schema, but is {leaf[index]} at {where}. "
                f"Use schema={{{name!r}: float}}, or correct it."
            )
    return leaf if kind is None else leaf.astype(np.int64, copy=False)
