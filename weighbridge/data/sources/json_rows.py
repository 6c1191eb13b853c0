"""Convert rows that are JSON objects, one per line, to columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core.errors import DataError
from weighbridge.data.columns import NumpyArray
from weighbridge.data.sources.line_blocks import Line
from weighbridge.data.sources.requested_columns import Request
from weighbridge.data.sources.row_form import ColumnForm

SHOWN = 80


class Run(NamedTuple):
    """Consecutive rows from number `start` on; a bad row is a run by itself, with a reason."""

    start: int
    values: dict[str, NumpyArray]
    reason: str | None = None


class RowParser:
    """Converts JSON objects to columns; the first object defines the columns and their shapes.

    Numbers become floats, because JSON does not distinguish 1 from 1.0; a schema can request
    integers. A null is a missing value, NaN.

    Args:
        request: the columns to read, by default all columns of the first object that hold
            numbers. If it is lenient, a line that cannot be used becomes a row of NaN, which the
            row policy handles; otherwise it is a DataError.
        identifier: a field that identifies the row and is not a column.

    >>> parser = RowParser(Request())
    >>> parser.learn(Line(0, 1, b'{"x": [1, 2.5], "y": 3, "name": "a"}'))
    >>> parser.kept, parser.ignored
    (['x', 'y'], ['name'])
    >>> parser.values([Line(37, 2, b'{"x": [0, 1], "y": 4}')])
    {'x': array([[0., 1.]]), 'y': array([4.])}
    """

    def __init__(self, request: Request, identifier: str | None = None) -> None:
        self.columns, self.schema, self.lenient = request
        self.identifier = identifier
        self.ignored: list[str] = []
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._booleans: set[str] = set()

    @property
    def kept(self) -> list[str]:
        """The columns; known after `learn`."""
        return list(self._shapes)

    @property
    def form(self) -> list[ColumnForm]:
        """Columns and shapes, if known; saved in a cursor."""
        return [ColumnForm(n, shape, n in self._booleans) for n, shape in self._shapes.items()]

    def fresh(self) -> RowParser:
        """A parser with the same settings that has not seen an object."""
        return RowParser(Request(self.columns, self.schema, self.lenient), self.identifier)

    def restore(self, form: Sequence[ColumnForm]) -> None:
        """Use the columns that an earlier reading has learned."""
        known = {column.name: column for column in form}
        if self.identifier in known:
            raise DataError(
                f"The run was started with {self.identifier!r} as a column, but now it is the "
                "identifier. Use the first setting, or start a new run."
            )
        for name in [*(self.columns or []), *self.schema]:
            if name not in known:
                raise DataError(
                    f"The run was started without the column {name!r}; it has: "
                    f"{_names(list(known))}. Use these columns, or start a new run."
                )
        kept = [known[name] for name in self.columns] if self.columns else form
        self._shapes = {column.name: column.shape for column in kept}
        self._booleans = {c.name for c in kept if c.boolean and c.name not in self.schema}

    def no_rows(self) -> dict[str, NumpyArray]:
        """The columns without rows, with their types and shapes."""
        empty = {n: np.empty((0, *shape)) for n, shape in self._shapes.items()}
        for name in empty:
            if name in self._booleans:
                empty[name] = empty[name].astype(np.bool_)
            elif self.schema.get(name) is int:
                empty[name] = empty[name].astype(np.int64)
        return empty

    def learn(self, first: Line | Mapping[str, Any]) -> None:
        """Take the columns and their shapes from the first object."""
        row = decode(first.text) if isinstance(first, Line) else first
        where = f"line {first.number}" if isinstance(first, Line) else "the first entry"
        if isinstance(row, str):
            raise DataError(f"The columns are defined by {where}, but {row}. Correct it.")
        wanted = [name for name in row if name != self.identifier]
        for name in [*(self.columns or []), *self.schema]:
            if name not in wanted:
                raise DataError(
                    f"There is no column {name!r} in {where}. It has: {_names(wanted)}."
                )
        shapes = {}
        for name in self.columns or wanted:
            array = _numbers(row[name])
            if array is not None:
                shapes[name] = array.shape
                if array.dtype == np.bool_ and name not in self.schema:
                    self._booleans.add(name)
            elif self.columns is not None or name in self.schema:
                shown = _shorten(_shown(row[name]))
                raise DataError(f"Column {name!r} holds {shown} in {where}, not numbers.")
        if not shapes:
            raise DataError(f"No column of {where} holds numbers (columns: {_names(wanted)}).")
        self.ignored = [name for name in wanted if name not in shapes]
        self._shapes = shapes

    def values(self, lines: Sequence[Line]) -> dict[str, NumpyArray]:
        """The columns of lines that must all be valid."""
        rows = [decode(line.text) for line in lines]
        (run,) = self.runs(rows, [f"Line {line.number}" for line in lines])
        return run.values

    def runs(self, rows: Sequence[Mapping[str, Any] | str], names: Sequence[str]) -> list[Run]:
        """Objects as columns, in runs of good rows and single bad rows.

        Args:
            rows: for each line the object that `decode` returned, or the error text.
            names: the name of each row in messages.
        """
        columns = self._columns(rows)
        if columns is not None:
            return [Run(0, columns)]
        if len(rows) > 1:  # find the bad rows by bisection
            half = len(rows) // 2
            earlier = self.runs(rows[:half], names[:half])
            return _merge(earlier, self.runs(rows[half:], names[half:]), half)
        reason = rows[0] if isinstance(rows[0], str) else self._complaint(rows[0])
        if not self.lenient:
            raise DataError(f"{names[0]} cannot be used: {reason}. Correct it.")
        blank = {n: np.full((1, *shape), np.nan) for n, shape in self._shapes.items()}
        return [Run(0, blank, f"{names[0]} cannot be used: {reason}.")]

    def _columns(self, rows: Sequence[Mapping[str, Any] | str]) -> dict[str, NumpyArray] | None:
        """All rows as columns; None if one of them cannot be used."""
        columns = {}
        for name, shape in self._shapes.items():
            try:
                array = _numbers([row[name] for row in rows])  # type: ignore[index]
            except (KeyError, TypeError):
                return None
            if array is None or array.shape != (len(rows), *shape):
                return None
            fitted = self._fit(name, array)
            if fitted is None:
                return None
            columns[name] = fitted
        return columns

    def _fit(self, name: str, array: NumpyArray) -> NumpyArray | None:
        """The numbers of a column in its type; None if they do not have this type."""
        if name in self._booleans:
            return array if array.dtype == np.bool_ else None
        if self.schema.get(name) is not int:
            return array.astype(np.float64, copy=False)
        if array.dtype.kind in "bi":
            return array.astype(np.int64, copy=False)
        if not (np.abs(array) < 2.0**53).all() or (array != np.round(array)).any():
            return None
        return array.astype(np.int64)

    def _complaint(self, row: Mapping[str, Any]) -> str:
        for name, shape in self._shapes.items():
            if name not in row:
                return f"it has no {name!r}"
            shown = _shorten(_shown(row[name]))
            array = _numbers(row[name])
            if array is None:
                return f"its {name!r} is {shown}, not numbers"
            if array.shape != shape:
                return f"its {name!r} has shape {array.shape}, but the first row's has {shape}"
            if self._fit(name, array) is None:
                kind = "true or false" if name in self._booleans else "whole numbers"
                return f"its {name!r} is {shown}, not {kind}"
        return "its values cannot be converted to columns"


def decode(text: bytes | str) -> dict[str, Any] | str:
    """The JSON object of a line, or a text that explains what is wrong with it.

    >>> decode('{"y": 1}'), decode("[1]")
    ({'y': 1}, "it is not a JSON object: '[1]'")
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
    return f"it is not a JSON object: {_shorten(repr(shown[: 2 * SHOWN].strip()))}"


def identified(row: dict[str, Any] | str, field: str) -> dict[str, Any] | str:
    """The row, or what is wrong with the field that should identify it."""
    if isinstance(row, str):
        return row
    found = row.get(field)
    if isinstance(found, str | int) and not isinstance(found, bool):
        return row
    return f"its {field!r} is {_shorten(_shown(found))}, not text or a whole number"


def _names(names: list[str]) -> str:
    """The first names, for a message."""
    more = f" and {len(names) - 20:,} more" if len(names) > 20 else ""
    return ", ".join(map(_shorten, names[:20])) + more


def _shown(value: Any) -> str:
    """Any value as text, for a message."""
    try:
        return repr(value)
    except (RecursionError, ValueError):  # deeply nested, or thousands of digits
        return f"a {type(value).__name__} that is too deep or too long to show"


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _numbers(value: Any) -> NumpyArray | None:
    """Nested lists of numbers as an array of floats, integers or booleans; otherwise None."""
    try:
        array = np.asarray(value)
        if array.dtype == object:  # contains null, or numbers beyond 64 bits
            flat = array.reshape(-1).tolist()
            if not all(item is None or isinstance(item, int | float) for item in flat):
                return None
            filled = [np.nan if item is None else float(item) for item in flat]
            array = np.array(filled, dtype=np.float64).reshape(array.shape)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return array if array.dtype.kind in "biuf" else None


def _merge(earlier: list[Run], later: list[Run], shift: int) -> list[Run]:
    """Join the runs of two halves; adjacent runs of good rows become one."""
    later = [run._replace(start=run.start + shift) for run in later]
    before, after = earlier[-1], later[0]
    if before.reason is None and after.reason is None:
        joined = {n: np.concatenate([before.values[n], after.values[n]]) for n in before.values}
        return [*earlier[:-1], Run(before.start, joined), *later[1:]]
    return [*earlier, *later]
