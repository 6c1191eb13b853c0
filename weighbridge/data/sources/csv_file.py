"""Read CSV, from a file or a stream, in blocks of whole records."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core.errors import DataError
from weighbridge.core.optional import require
from weighbridge.data.columns import NumpyArray
from weighbridge.data.quarantine import Unread
from weighbridge.data.sources.csv_header import MOST_COLUMNS, read_header
from weighbridge.data.sources.csv_records import RawBlock, shorten, whole_records
from weighbridge.data.sources.reading import (
    Block,
    NoRowsError,
    Position,
    Reader,
    file_changed,
    make_head,
)
from weighbridge.data.sources.requested_columns import Request, check_present
from weighbridge.data.sources.text_columns import (
    infer_kinds,
    infer_kinds_leniently,
    parse_column,
    parse_leniently,
    place_of,
)


class _Batch(NamedTuple):
    """Records of a block as columns of text, and the errors of records of another length."""

    raw: RawBlock
    columns: Any
    ragged: dict[int, str]

    @property
    def num_rows(self) -> int:
        return len(self.ragged) + (0 if self.columns is None else int(self.columns.num_rows))


def read_csv(source: Any, request: Request, position: Position | None = None) -> Reader:
    """Read every column as text and convert it here, so that an error can name row and value.

    Args:
        source: a path, or a binary stream.
        request: the columns to read. If it is lenient, a value that cannot be read is NaN and is
            listed with its block; otherwise it is a DataError.
        position: position of a block at which to begin.
    """
    columns, lenient = request.columns, request.lenient
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(open(source, "rb")) if isinstance(source, Path) else source
        header, line = read_header(stream)
        check_present(header, request.named)
        if columns is None and len(header) > MOST_COLUMNS:
            raise DataError(
                f"There are {len(header):,} columns, but at most {MOST_COLUMNS:,} are read "
                "together. Name those that you need, with columns=[...] or --features."
            )
        body = stream.tell() if position else 0
        table = _CsvColumns(header, request)
        batches = table.batches(whole_records(stream, 0, line, lenient=lenient))
        begun = table.learn(batches)
        yield make_head(list(table.kinds), columns or header, None)
        row = 0
        if position is not None:
            row, byte = position["row"], position["byte"]
            at = position.get("line") or line + _lines_before(stream, body, byte)
            _seek_line(stream, body, byte)
            begun = []
            batches = table.batches(whole_records(stream, byte, at, lenient=lenient), row)
        for some in (begun, batches):
            for batch in some:
                place = {"byte": batch.raw.byte, "row": row, "line": batch.raw.line}
                yield table.block(batch, place)
                row += batch.num_rows


class _CsvColumns:
    """The types of the columns, and the conversion of blocks of text to values."""

    def __init__(self, header: list[str], request: Request) -> None:
        columns, self.schema, self.lenient = request
        self.header = header
        self.wanted = columns or header
        self.all_wanted = columns is not None
        self.kinds: dict[str, str] = {}

    def learn(self, batches: Iterator[_Batch]) -> list[_Batch]:
        """Infer the types from the first block with rows; returns the blocks read for this."""
        begun = []
        for batch in batches:
            begun.append(batch)
            if batch.columns is None or not batch.columns.num_rows:
                continue
            if self.lenient:
                self.kinds = infer_kinds_leniently(batch.columns, self.schema, self.all_wanted)
            else:
                where = _Where(batch, 0)
                self.kinds = infer_kinds(batch.columns, self.schema, self.all_wanted, where)
            return begun
        if begun:  # no record can be read: all are bad rows
            if not self.all_wanted:
                reason = begun[0].raw.broken or next(iter(begun[0].ragged.values()))
                raise DataError(f"No record can be read. The first: {reason}")
            self.kinds = dict.fromkeys(self.wanted, "float64")
            return begun
        raise NoRowsError("There are no rows after the header. Write at least one row of data.")

    def batches(self, blocks: Iterable[RawBlock], row: int = 0) -> Iterator[_Batch]:
        """Blocks of records as columns of text; `row` is the number of the first record."""
        for raw in blocks:
            batch = _Batch(raw, None, {0: raw.broken}) if raw.broken else self._parse(raw, row)
            if batch.num_rows:
                yield batch
            row += batch.num_rows

    def _parse(self, raw: RawBlock, row: int) -> _Batch:
        pyarrow = require("pyarrow")
        ragged: dict[int, str] = {}

        def note_ragged_row(invalid: Any) -> str:
            ragged[invalid.number - 1] = (
                f"has {invalid.actual_columns} fields, but the header has "
                f"{invalid.expected_columns}: {shorten(repr(invalid.text))}."
            )
            return "skip" if self.lenient else "error"

        try:
            found = parse_text(raw.text, self.header, self.wanted, note_ragged_row)
        except pyarrow.ArrowInvalid as error:
            if not ragged:
                reason = shorten(str(error), 200)
                raise DataError(
                    f"The CSV cannot be read from line {raw.line} on ({reason}). Correct the file."
                ) from error
            ((number, what),) = ragged.items()
            line = next(line for k, (line, _) in enumerate(raw.records()) if k == number)
            where = place_of(row + number, line).capitalize()
            raise DataError(f"{where} {what} Correct that line.") from error
        return _Batch(raw, found, ragged)

    def block(self, batch: _Batch, place: Position) -> Block:
        """The values of a block, and its rows that could not be parsed."""
        row = place["row"]
        where = _Where(batch, row)
        if not self.lenient:
            values = {
                name: parse_column(
                    batch.columns.column(name), name, kind, row, name in self.schema, where
                )
                for name, kind in self.kinds.items()
            }
            return Block(place, values)
        if batch.columns is None:
            return Block(
                place,
                {name: np.full(1, np.nan) for name in self.kinds},
                {0: Unread(batch.raw.broken, _text(batch.raw.text), batch.raw.line)},
            )
        columns, reasons = {}, dict[int, list[str]]()
        for name, kind in self.kinds.items():
            text = batch.columns.column(name)
            columns[name], bad = parse_leniently(text, name, kind, name in self.schema, where)
            for number, reason in bad.items():
                reasons.setdefault(where.rows[number], []).append(reason)
        values = {name: _spread(column, where.rows, batch) for name, column in columns.items()}
        told = {number: " ".join(some) for number, some in reasons.items()}
        for number, what in batch.ragged.items():
            told[number] = f"{place_of(row + number, where.line(number)).capitalize()} {what}"
        unread = {n: Unread(told[n], where.text(n), where.line(n)) for n in sorted(told)}
        return Block(place, values, unread)


class _Where:
    """Places of the rows of a block; records are split when the first place is needed."""

    def __init__(self, batch: _Batch, row: int) -> None:
        self._batch, self._row = batch, row
        self._records: list[tuple[int, bytes]] = []
        # For each parsed row, its number among all rows of the block.
        self.rows: Sequence[int] = range(batch.num_rows)
        if batch.ragged:
            self.rows = [k for k in range(batch.num_rows) if k not in batch.ragged]

    def __call__(self, parsed: int) -> str:
        number = self.rows[parsed]
        return place_of(self._row + number, self.line(number))

    def line(self, number: int) -> int:
        return self._record(number)[0]

    def text(self, number: int) -> str:
        return _text(self._record(number)[1])

    def _record(self, number: int) -> tuple[int, bytes]:
        if not self._records:
            self._records = list(self._batch.raw.records())
        return self._records[number]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").rstrip("\r\n")


def _spread(column: NumpyArray, rows: Sequence[int], batch: _Batch) -> NumpyArray:
    """A column with NaN in the rows that were not parsed."""
    if not batch.ragged:
        return column
    full = np.full(batch.num_rows, np.nan)
    full[rows] = column
    return full


def parse_text(text: bytes, header: list[str], wanted: list[str], on_ragged: Any) -> Any:
    """Records as Arrow columns of text."""
    pyarrow, arrow_csv = require("pyarrow"), require("pyarrow.csv")
    return arrow_csv.read_csv(
        pyarrow.BufferReader(_as_utf8(text)),
        # One block, however long a record is: Arrow refuses records that are longer than its block.
        arrow_csv.ReadOptions(
            column_names=header, use_threads=False, block_size=max(1 << 20, len(text) + 1)
        ),
        arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=on_ragged),
        arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(header, pyarrow.string()),
            include_columns=wanted,
            strings_can_be_null=True,
            check_utf8=False,
        ),
    ).combine_chunks()


def _as_utf8(text: bytes) -> bytes:
    """Replace bytes that are not UTF-8: Arrow cannot report a ragged row that contains such."""
    if text.isascii():
        return text
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").encode()
    return text


def _lines_before(stream: Any, body: int, byte: int) -> int:
    """Number of lines between the header and a byte, for a position saved without its line."""
    stream.seek(body)
    lines, left = 0, byte
    while left and (piece := stream.read(min(left, 1 << 20))):
        lines, left = lines + piece.count(b"\n"), left - len(piece)
    return lines


def _seek_line(stream: Any, body: int, byte: int) -> None:
    """Go to a byte of the body at which a line begins."""
    size = stream.seek(0, os.SEEK_END) - body
    if byte:
        stream.seek(body + byte - 1)
    if byte > size or (byte and stream.read(1) != b"\n"):
        raise file_changed(f"{size} bytes after the header", f"byte {byte}, where no line begins")
    stream.seek(body + byte)


def count_csv_rows(path: Path) -> int | None:
    """Number of rows of a CSV file, by a quick pass; None if it cannot be read as CSV.

    Errors are reported by the pass that reads the values.
    """
    pyarrow = require("pyarrow")
    rows = 0
    try:
        with open(path, "rb") as stream:
            header, line = read_header(stream)
            for raw in whole_records(stream, 0, line):
                rows += parse_text(raw.text, header, header[:1], None).num_rows
    except (DataError, OSError, pyarrow.ArrowInvalid):
        return None
    return rows
