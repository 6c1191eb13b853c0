"""Open any data (files, streams, arrays, chunks) as a `Source`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax import tree_util

from weighbridge.core.errors import DataError
from weighbridge.data.quarantine import Unread
from weighbridge.data.row_checking import RowPolicy
from weighbridge.data.sources.csv_file import read_csv
from weighbridge.data.sources.files import check_file, expand, head_of_all, read_file
from weighbridge.data.sources.reading import Block, Head
from weighbridge.data.sources.requested_columns import (
    Request,
    check_request,
    not_numbers,
    select,
)
from weighbridge.data.sources.source import Source
from weighbridge.data.values import LeftOut, TableReader, Values, is_table, num_rows, take_columns

# Memory for the texts of bad rows, kept until their block is checked, maybe some blocks later.
KEPT_BYTES = 64 << 20


def open_source(
    data: Any,
    *,
    columns: Sequence[str] | None = None,
    schema: Mapping[str, type] | None = None,
    on_bad_row: RowPolicy = "raise",
) -> Source:
    """Open observations for reading in blocks.

    Args:
        data: any data that `as_values` accepts; a path, a glob or a list of paths to .csv,
            .parquet, .npz or .jsonl files; "-" (CSV on standard input) or a binary stream of CSV;
            or an iterable of chunks, each of which `as_values` accepts. A list of arrays is one
            pytree of columns, a list of tables or dicts is a list of chunks.
        columns: the columns to read; by default all numeric columns.
        schema: column -> float or int, for types that should not be inferred from the first block.
        on_bad_row: the row policy. With "raise", a row of a file that cannot be read is a
            DataError. Otherwise its values are NaN, and a file that cannot be read is skipped: see
            `unread` and `set_aside` of the source.

    Returns:
        A `Source`.

    >>> source = open_source({"x": [1.0, 2.0], "y": [0, 1]}, columns=["y"])
    >>> source.num_rows, list(source.blocks())
    (2, [{'y': array([0, 1])}])
    """
    request = check_request(columns, schema, lenient=on_bad_row != "raise")
    if isinstance(data, Source):
        if request.named:
            raise DataError("data is already a Source. Give columns and schema when opening it.")
        return data
    if isinstance(data, str) and data == "-":
        data = sys.stdin
    if hasattr(data, "readline"):
        return _open_stream(data, request)
    if isinstance(data, str | os.PathLike):
        return _open_files(expand(data), request)
    if isinstance(data, list | tuple) and data:
        if all(isinstance(item, str | os.PathLike) for item in data):
            paths = [path for item in data for path in expand(item)]
            return _open_files(paths, request)
        if type(data) is list and all(map(is_table, data)):
            return _open_chunks(data, request, in_memory=True)
    is_container = is_table(data) or not tree_util.all_leaves([data])
    if isinstance(data, Iterable) and not is_container and not hasattr(data, "__array__"):
        return _open_chunks(data, request, reopenable=iter(data) is not data)
    taken, left_out = take_columns(data)
    values = select(taken, request, 0, left_out)
    return Source(
        lambda: iter([values]), num_rows=num_rows(values), in_memory=True, left_out=left_out
    )


def _open_chunks(
    chunks: Iterable[Any],
    request: Request,
    *,
    reopenable: bool = True,
    in_memory: bool = False,
) -> Source:
    reader = TableReader()

    def start() -> Iterator[Values]:
        row = 0
        for chunk in chunks:
            values = reader(chunk, row)
            if num_rows(values):  # an empty list has no columns to select from
                yield select(values, request, row, reader.left_out)
                row += num_rows(values)

    return Source(start, reopenable=reopenable, in_memory=in_memory, left_out=reader.left_out)


def _open_files(paths: list[Path], request: Request) -> Source:
    head = head_of_all(paths, request)
    kept, lenient = request._replace(columns=head.kept), request.lenient
    failures = _Failures()

    def start() -> Iterator[Values]:
        failures.begin()
        for path in paths:
            try:
                if lenient:
                    check_file(path)
                reader = read_file(path, kept)
                with contextlib.closing(reader):
                    next(reader)
                    yield from failures.values(reader)
            except DataError as error:
                if not lenient:
                    raise
                failures.set_aside[str(path)] = str(error)

    # Only one of several NPZ files is in memory at a time.
    in_memory = len(paths) == 1 and paths[0].suffix.lower() == ".npz"
    left_out = _not_numbers(head, request)
    return Source(
        start,
        num_rows=head.num_rows,
        in_memory=in_memory,
        left_out=left_out,
        unread=failures.unread,
        set_aside=failures.set_aside,
    )


def _open_stream(stream: Any, request: Request) -> Source:
    binary = getattr(stream, "buffer", stream)
    if isinstance(binary.read(0), str):
        raise DataError("The stream is text. Open it in binary mode: open(path, 'rb').")
    reader = read_csv(binary, request)
    head: Head = next(reader)
    failures = _Failures()
    blocks = failures.values(reader)
    return Source(
        lambda: blocks,
        reopenable=False,
        left_out=_not_numbers(head, request),
        unread=failures.unread,
    )


class _Failures:
    """Rows and files of a source that could not be read."""

    def __init__(self) -> None:
        self.unread: dict[int, Unread] = {}
        self.set_aside: dict[str, str] = {}
        self.begin()

    def begin(self) -> None:
        """Start counting rows from 0 again."""
        self.unread.clear()
        self._row = self._size = 0

    def values(self, reader: Iterable[Block]) -> Iterator[Values]:
        """The values of blocks; the latest unread rows are kept for the check of the values."""
        for block in reader:
            for number, row in block.unread.items():
                self.unread[self._row + number] = row
                self._size += _size(row)
            while self._size > KEPT_BYTES and self.unread:
                self._size -= _size(self.unread.pop(next(iter(self.unread))))
            self._row += num_rows(block.values)
            yield block.values


def _size(row: Unread) -> int:
    """Approximate memory of the record of an unread row."""
    return 500 + len(row.text) + len(row.reason)


def _not_numbers(head: Head, request: Request) -> LeftOut:
    """Columns of a file without numbers; empty if the user named the columns to read."""
    return {} if request.columns is not None else {name: not_numbers(name) for name in head.ignored}
