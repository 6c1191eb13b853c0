"""Reads CSV, from a file or a stream, in blocks of whole lines."""

from __future__ import annotations

import contextlib
import csv
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from weighbridge.base import DataError
from weighbridge.data import looks_numeric, refuse_duplicates, require, row_name
from weighbridge.sources.columns import Columns, Schema, check_present
from weighbridge.sources.reading import NoRowsError, Position, Reader, file_changed, make_head
from weighbridge.sources.text_columns import infer_kinds, parse_column

BLOCK_BYTES = 1 << 20


def read_csv(
    source: Any, columns: Columns, schema: Schema, position: Position | None = None
) -> Reader:
    """Read every column as text and convert it here, so that an error can name row and value."""
    pyarrow = require("pyarrow")
    ragged: list[Any] = []
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(open(source, "rb")) if isinstance(source, Path) else source
        header = _read_header(stream)
        check_present(header, [*(columns or []), *schema])
        body = stream.tell() if position else 0
        row = 0
        try:
            batches = _csv_batches(_whole_lines(stream), header, columns, ragged)
            first = next(batches, None)
            if first is None:
                raise NoRowsError(
                    "There are no rows after the header. Write at least one row of data."
                )
            kinds = infer_kinds(first[1], schema, columns is not None)
            yield make_head(list(kinds), columns or header, None)
            batches = itertools.chain([first], batches)
            if position is not None:
                row, byte = position["row"], position["byte"]
                _seek_line(stream, body, byte)
                batches = _csv_batches(_whole_lines(stream, byte), header, columns, ragged)
            for byte, batch in batches:
                yield (
                    {"byte": byte, "row": row},
                    {
                        name: parse_column(batch.column(name), name, kind, row, name in schema)
                        for name, kind in kinds.items()
                    },
                )
                row += batch.num_rows
        except pyarrow.ArrowInvalid as error:
            if ragged:
                where = row_name(row + ragged[0].number - 1).capitalize()
                raise DataError(
                    f"{where} has {ragged[0].actual_columns} fields, and the header has "
                    f"{ragged[0].expected_columns}: {ragged[0].text!r}. Correct that line."
                ) from error
            raise DataError(f"The CSV cannot be read ({error}). Correct the file.") from error


def _csv_batches(
    blocks: Iterable[tuple[int, bytes]], header: list[str], columns: Columns, ragged: list[Any]
) -> Iterator[tuple[int, Any]]:
    """Blocks of lines as columns of text, each after its byte; notes the first row of another
    length."""
    pyarrow, arrow_csv = require("pyarrow"), require("pyarrow.csv")

    def note_ragged_row(invalid: Any) -> str:
        ragged.append(invalid)
        return "error"

    for byte, block in blocks:
        batch = arrow_csv.read_csv(
            pyarrow.BufferReader(block),
            arrow_csv.ReadOptions(column_names=header, use_threads=False),
            arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note_ragged_row),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(header, pyarrow.string()),
                include_columns=columns or header,
                strings_can_be_null=True,
                check_utf8=False,
            ),
        ).combine_chunks()
        if batch.num_rows:
            yield byte, batch


def _seek_line(stream: Any, body: int, byte: int) -> None:
    """Go to a byte of the body that begins a line."""
    size = stream.seek(0, os.SEEK_END) - body
    if byte:
        stream.seek(body + byte - 1)
    if byte > size or (byte and stream.read(1) != b"\n"):
        raise file_changed(f"{size} bytes after the header", f"byte {byte}, which begins no line")
    stream.seek(body + byte)


def _whole_lines(stream: Any, byte: int = 0) -> Iterator[tuple[int, bytes]]:
    """Cut a stream into blocks that end where a line does, and not inside quotes.

    Each comes after the byte that it begins at, and is cut in a way that depends on that alone.
    pyarrow's own streaming reader would do it on a thread of its own, which cannot be stopped
    while it waits for a pipe.
    """
    rest, window = b"", BLOCK_BYTES
    while True:
        while len(rest) < window and (piece := stream.read(window - len(rest))):
            rest += piece
        cut = len(rest)
        if cut == window:
            cut = rest.rfind(b"\n") + 1
            while cut and rest.count(b'"', 0, cut) % 2:
                cut = rest.rfind(b"\n", 0, cut - 1) + 1
            if not cut:
                window += BLOCK_BYTES
                continue
        if rest[:cut].strip():
            yield byte, rest[:cut]
        if len(rest) < window:
            return
        rest, byte, window = rest[cut:], byte + cut, BLOCK_BYTES


def _read_header(stream: Any) -> list[str]:
    lines = (line.decode("utf-8-sig", "replace") for line in iter(stream.readline, b""))
    header = next(filter(None, csv.reader(lines)), None)
    if header is None:
        raise NoRowsError("The CSV is empty. It needs a header line with column names, then rows.")
    if all(map(looks_numeric, header)):
        raise DataError(
            f"The CSV has no header: its first line is {','.join(header)!r}. "
            "Add a first line with the column names."
        )
    refuse_duplicates(header)
    return header


def count_csv_rows(path: Path) -> int | None:
    """Rows of a CSV file, by a quick pass over it; None if it cannot be read as one.

    What is wrong with it is said by the pass that reads the values.
    """
    pyarrow, arrow_csv = require("pyarrow"), require("pyarrow.csv")
    rows = 0
    try:
        with open(path, "rb") as stream:
            header = _read_header(stream)
            for _, block in _whole_lines(stream):
                rows += arrow_csv.read_csv(
                    pyarrow.BufferReader(block),
                    arrow_csv.ReadOptions(column_names=header, use_threads=False),
                    arrow_csv.ParseOptions(newlines_in_values=True),
                    arrow_csv.ConvertOptions(
                        column_types={header[0]: pyarrow.string()},
                        include_columns=header[:1],
                        check_utf8=False,
                    ),
                ).num_rows
    except (DataError, OSError, pyarrow.ArrowInvalid):
        return None
    return rows
