"""Opens whatever holds rows, files and streams and what is in memory, as a `Source`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax import tree_util

from weighbridge.base import DataError
from weighbridge.data import (
    LeftOut,
    TableReader,
    Values,
    is_table,
    num_rows,
    take_columns,
)
from weighbridge.sources.columns import Columns, Schema, check_request, not_numbers, select
from weighbridge.sources.csv_file import read_csv
from weighbridge.sources.files import expand, head_of_all, read_file
from weighbridge.sources.reading import Head
from weighbridge.sources.source import Source


def open_source(
    data: Any, *, columns: Sequence[str] | None = None, schema: Mapping[str, type] | None = None
) -> Source:
    """Open observations for reading in blocks.

    Args:
        data: anything `as_values` takes; a path, a glob or a list of paths to .csv, .parquet,
            .npz or .jsonl files; "-" (CSV on standard input) or a binary stream of CSV; or an
            iterable of chunks, each of which `as_values` takes. A list of arrays is one pytree of
            columns, a list of tables or dicts is a list of chunks.
        columns: the columns to read, in a file by default all that are numeric.
        schema: column -> float or int, where the type should not be inferred from the first block.

    Returns:
        A `Source`.

    >>> source = open_source({"x": [1.0, 2.0], "y": [0, 1]}, columns=["y"])
    >>> source.num_rows, list(source.blocks())
    (2, [{'y': array([0, 1])}])
    """
    columns, types = check_request(columns, schema)
    if isinstance(data, Source):
        if columns is not None or types:
            raise DataError("data is already a Source. Give columns and schema when opening it.")
        return data
    if isinstance(data, str) and data == "-":
        data = sys.stdin
    if hasattr(data, "readline"):
        return _open_stream(data, columns, types)
    if isinstance(data, str | os.PathLike):
        return _open_files(expand(data), columns, types)
    if isinstance(data, list | tuple) and data:
        if all(isinstance(item, str | os.PathLike) for item in data):
            paths = [path for item in data for path in expand(item)]
            return _open_files(paths, columns, types)
        if type(data) is list and all(map(is_table, data)):
            return _open_chunks(data, columns, types, in_memory=True)
    is_container = is_table(data) or not tree_util.all_leaves([data])
    if isinstance(data, Iterable) and not is_container and not hasattr(data, "__array__"):
        return _open_chunks(data, columns, types, reopenable=iter(data) is not data)
    taken, left_out = take_columns(data)
    values = select(taken, columns, types, 0, left_out)
    return Source(
        lambda: iter([values]), num_rows=num_rows(values), in_memory=True, left_out=left_out
    )


def _open_chunks(
    chunks: Iterable[Any],
    columns: Columns,
    schema: Schema,
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
                yield select(values, columns, schema, row, reader.left_out)
                row += num_rows(values)

    return Source(start, reopenable=reopenable, in_memory=in_memory, left_out=reader.left_out)


def _open_files(paths: list[Path], columns: Columns, schema: Schema) -> Source:
    head = head_of_all(paths, columns, schema)

    def start() -> Iterator[Values]:
        for path in paths:
            with contextlib.closing(read_file(path, head.kept, schema)) as reader:
                next(reader)
                for _, values in reader:
                    yield values

    # Of several NPZ files only one at a time is in memory.
    in_memory = len(paths) == 1 and paths[0].suffix.lower() == ".npz"
    left_out = _not_numbers(head, columns)
    return Source(start, num_rows=head.num_rows, in_memory=in_memory, left_out=left_out)


def _open_stream(stream: Any, columns: Columns, schema: Schema) -> Source:
    binary = getattr(stream, "buffer", stream)
    if isinstance(binary.read(0), str):
        raise DataError("The stream is text. Open it in binary mode: open(path, 'rb').")
    reader = read_csv(binary, columns, schema)
    head: Head = next(reader)
    blocks = (values for _, values in reader)
    return Source(lambda: blocks, reopenable=False, left_out=_not_numbers(head, columns))


def _not_numbers(head: Head, columns: Columns) -> LeftOut:
    """The columns of a file that do not hold numbers; who named columns has left out the others."""
    return {} if columns is not None else {name: not_numbers(name) for name in head.ignored}
