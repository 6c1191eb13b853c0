"""Sources of observations: files, streams and chunks, read block by block in bounded memory."""

from __future__ import annotations

import bisect
import contextlib
import csv
import difflib
import glob
import itertools
import os
import sys
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jax import tree_util

from weighbridge.base import DataError
from weighbridge.data import (
    NumpyArray,
    Values,
    as_values,
    is_numeric_arrow,
    is_table,
    looks_numeric,
    num_rows,
    refuse_duplicates,
    require,
    row_name,
)
from weighbridge.json_rows import RowParser
from weighbridge.line_blocks import first_line, line_blocks

_CSV_BLOCK_BYTES = 1 << 20
_PARQUET_BATCH_ROWS = 1 << 16


class Source:
    """Where rows come from, read block by block in bounded memory; see `open_source`.

    Args:
        start: begins an iteration over blocks of values, of any size, in order.
        num_rows: the number of rows, if known beforehand.
        reopenable: whether `blocks` can be called more than once.
        in_memory: whether all rows are in memory at once anyway (arrays, tables, one NPZ file).
        ignored_columns: columns of the file that are not numeric and were left out.
    """

    def __init__(
        self,
        start: Callable[[], Iterator[Values]],
        *,
        num_rows: int | None = None,
        reopenable: bool = True,
        in_memory: bool = False,
        ignored_columns: Sequence[str] = (),
    ) -> None:
        self._start = start
        self._started = False
        self.num_rows = num_rows
        self.reopenable = reopenable
        self.in_memory = in_memory
        self.ignored_columns = list(ignored_columns)

    def blocks(self) -> Iterator[Values]:
        """Iterate over the rows, in blocks of values."""
        if self._started and not self.reopenable:
            raise DataError(
                "This stream was already read and cannot be read twice. Open it again, or pass "
                "a file or an array."
            )
        self._started = True
        return self._start()


class _Head(NamedTuple):
    """What a file reader yields before the blocks."""

    kept: list[str]
    ignored: list[str]
    num_rows: int | None


class NoRowsError(DataError):
    """A file that is whole and has no rows."""


_Columns = list[str] | None
_Schema = Mapping[str, type]
Position = dict[str, int]
_Reader = Generator[Any, None, None]  # a _Head, then blocks, each after its position


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
            return Source(lambda: _chunk_blocks(data, columns, types), in_memory=True)
    is_container = isinstance(data, Mapping) or not tree_util.all_leaves([data])
    if isinstance(data, Iterable) and not is_container and not hasattr(data, "__array__"):
        once = iter(data) is data
        return Source(lambda: _chunk_blocks(data, columns, types), reopenable=not once)
    values = select(as_values(data), columns, types, 0)
    return Source(lambda: iter([values]), num_rows=num_rows(values), in_memory=True)


def check_request(
    columns: Sequence[str] | None, schema: Mapping[str, type] | None
) -> tuple[list[str] | None, dict[str, type]]:
    """The columns and types that were asked for; DataError if they make no sense."""
    types = dict(schema or {})
    if columns is not None:
        columns = [columns] if isinstance(columns, str) else list(columns)
        if not columns:
            raise DataError("columns is empty. Name at least one column, or leave it out.")
        refuse_duplicates(columns)
        _check_present(columns, types)  # a schema for a column that is not read is a mistake
    for name, kind in types.items():
        if kind not in (float, int):
            raise DataError(f"schema[{name!r}] is {kind!r}. Use float or int (the types).")
    return columns, types


def _chunk_blocks(chunks: Iterable[Any], columns: _Columns, schema: _Schema) -> Iterator[Values]:
    row = 0
    for chunk in chunks:
        values = as_values(chunk, row)
        if num_rows(values):  # an empty list has no columns to select from
            yield select(values, columns, schema, row)
            row += num_rows(values)


def expand(path: str | os.PathLike[str]) -> list[Path]:
    """The files that a path or a glob names, sorted."""
    text = os.fspath(path)
    if os.path.exists(text) or not glob.has_magic(text):
        return [Path(text)]
    found = sorted(glob.glob(text, recursive=True))
    if not found:
        raise DataError(f"No file matches {text!r}. Check the pattern and the folder.")
    return [Path(name) for name in found]


def check_file(path: Path) -> None:
    """DataError unless there is such a file, of a kind that can be read."""
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder. Pass its files, such as '{path}/*.csv'.")
    if not path.exists():
        folder = path.parent
        if not folder.is_dir():
            raise DataError(f"There is no file {str(path)!r}: {str(folder)!r} is not a folder.")
        hint = _nearest(path.name, os.listdir(folder)) or " Check the path."
        raise DataError(f"There is no file {path.name!r} in {str(folder)!r}.{hint}")
    if path.suffix.lower() not in _READERS:
        raise DataError(
            f"{str(path)!r} ends in {path.suffix!r}, which is not known. "
            f"Use one of {', '.join(_READERS)}, or pass the data as arrays."
        )


def is_readable(name: str) -> bool:
    """Whether a file of this name can be read; hidden ones are not for us."""
    return not name.startswith(".") and Path(name).suffix.lower() in _READERS


def read_file(
    path: Path, columns: _Columns, schema: _Schema, position: Position | None = None
) -> _Reader:
    """Read one file: a head that tells its columns, then pairs of a position and a block.

    Args:
        path: the file.
        columns: the columns to read; None for all that are numeric.
        schema: their types, where they should not be inferred.
        position: of a block that an earlier reading gave: begin there. Blocks are cut in a way
            that depends on their beginning alone, so they are the same from there on.
    """
    try:
        yield from _READERS[path.suffix.lower()](path, columns, schema, position)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    except DataError as error:
        raise type(error)(f"In {path}: {error}") from error


def head_of(path: Path, columns: _Columns, schema: _Schema) -> _Head:
    """The columns of a file, those left out, and its number of rows if it is known."""
    with contextlib.closing(read_file(path, columns, schema)) as reader:
        head: _Head = next(reader)
        return head


def head_of_all(paths: Sequence[Path], columns: _Columns, schema: _Schema) -> _Head:
    """The columns of the first file, which all others must have, and the rows of all together."""
    for path in paths:
        check_file(path)
    head = head_of(paths[0], columns, schema)
    total = head.num_rows
    for path in paths[1:]:
        if total is not None:
            rows = head_of(path, head.kept, schema).num_rows
            total = None if rows is None else total + rows
    return head._replace(num_rows=total)


def _open_files(paths: list[Path], columns: _Columns, schema: _Schema) -> Source:
    head = head_of_all(paths, columns, schema)

    def start() -> Iterator[Values]:
        for path in paths:
            with contextlib.closing(read_file(path, head.kept, schema)) as reader:
                next(reader)
                for _, values in reader:
                    yield values

    # Of several NPZ files only one at a time is in memory.
    in_memory = len(paths) == 1 and paths[0].suffix.lower() == ".npz"
    return Source(start, num_rows=head.num_rows, in_memory=in_memory, ignored_columns=head.ignored)


def _open_stream(stream: Any, columns: _Columns, schema: _Schema) -> Source:
    binary = getattr(stream, "buffer", stream)
    if isinstance(binary.read(0), str):
        raise DataError("The stream is text. Open it in binary mode: open(path, 'rb').")
    reader = _read_csv(binary, columns, schema)
    head: _Head = next(reader)
    blocks = (values for _, values in reader)
    return Source(lambda: blocks, reopenable=False, ignored_columns=head.ignored)


def _check_present(present: Sequence[str], names: Iterable[str]) -> None:
    for name in names:
        if name not in present:
            raise DataError(
                f"There is no column {name!r}.{_nearest(name, map(str, present))} "
                f"The columns are: {', '.join(map(str, present))}."
            )


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def select(values: Values, columns: _Columns, schema: _Schema, first_row: int) -> Values:
    """Keep the requested columns of a block and give them the types of the schema."""
    if columns is None and not schema:
        return values
    if not isinstance(values, dict):
        raise DataError("columns and schema need named columns. Pass a dict: {'x': array}.")
    _check_present(list(values), [*(columns or []), *schema])
    return {
        name: _cast(values[name], name, schema.get(name), first_row) for name in columns or values
    }


def _cast(leaf: NumpyArray, name: str, kind: type | None, first_row: int) -> NumpyArray:
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


def _head(kept: list[str], present: Sequence[str], rows: int | None) -> _Head:
    if not kept:
        raise DataError(f"No column holds numbers (columns: {', '.join(present)}).")
    if rows == 0:
        raise NoRowsError("There are no rows. Write at least one row of data.")
    return _Head(kept, [name for name in present if name not in kept], rows)


def _read_npz(
    path: Path, columns: _Columns, schema: _Schema, position: Position | None = None
) -> _Reader:
    try:
        with np.load(path, allow_pickle=False) as archive:
            _check_present(archive.files, [*(columns or []), *schema])
            arrays = {name: archive[name] for name in columns or archive.files}
    except DataError:
        raise
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"The file cannot be read ({error}). Save it with np.savez.") from error
    present = list(arrays)
    if columns is None:
        arrays = {k: v for k, v in arrays.items() if v.dtype.kind in "biuf" or k in schema}
    values = select(as_values(arrays), None, schema, 0) if arrays else {}
    yield _head(list(arrays), present, num_rows(values) if arrays else 0)
    yield {"row": 0}, values


def _read_parquet(
    path: Path, columns: _Columns, schema: _Schema, position: Position | None = None
) -> _Reader:
    pyarrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    try:
        # With pre_buffer pyarrow reads ahead without bound, whatever the batch size.
        file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DataError(f"The file is not Parquet, or is damaged ({error}).") from error
    with file:
        fields = file.schema_arrow
        refuse_duplicates(fields.names)
        _check_present(fields.names, [*(columns or []), *schema])
        numeric = [field.name for field in fields if is_numeric_arrow(field.type)]
        kept = columns or [name for name in fields.names if name in numeric or name in schema]
        for name in kept:
            if name not in numeric:
                raise DataError(
                    f"Column {name!r} holds values of type {fields.field(name).type}, not "
                    "numbers. Convert it to numbers, or leave the column out."
                )
        yield _head(kept, fields.names, file.metadata.num_rows)
        wanted = position["row"] if position else 0
        if wanted > file.metadata.num_rows:
            raise _changed(f"{file.metadata.num_rows} rows", f"row {wanted}")
        row = 0
        # Group by group, so that those before a position are passed over unread.
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row + rows <= wanted:
                row += rows
                continue
            for batch in file.iter_batches(_PARQUET_BATCH_ROWS, row_groups=[group], columns=kept):
                if row >= wanted:
                    yield {"row": row}, select(as_values(batch, row), kept, schema, row)
                row += batch.num_rows


def _changed(has: str, place: str) -> DataError:
    return DataError(
        f"It has {has}, and reading was to go on at {place}: the file is not what it was. Restore "
        "it, or start anew."
    )


def _read_json_lines(
    path: Path, columns: _Columns, schema: _Schema, position: Position | None = None
) -> _Reader:
    parser = RowParser(columns, schema)
    with open(path, "rb") as file:
        first = first_line(file)
        if first is None:
            raise NoRowsError("There are no lines. Write one JSON object on each.")
        parser.learn(first)
        yield _head(parser.kept, [*parser.kept, *parser.ignored], None)
        for block in line_blocks(file, position):
            if block is not None:
                yield {"byte": block.byte, "line": block.line}, parser.values(block.lines)


def _read_csv(
    source: Any, columns: _Columns, schema: _Schema, position: Position | None = None
) -> _Reader:
    """Read every column as text and convert it here, so that an error can name row and value."""
    pyarrow = require("pyarrow")
    ragged: list[Any] = []
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(open(source, "rb")) if isinstance(source, Path) else source
        header = _read_header(stream)
        _check_present(header, [*(columns or []), *schema])
        body = stream.tell() if position else 0
        row = 0
        try:
            batches = _csv_batches(_whole_lines(stream), header, columns, ragged)
            first = next(batches, None)
            if first is None:
                raise NoRowsError(
                    "There are no rows after the header. Write at least one row of data."
                )
            kinds = _infer_kinds(first[1], schema, columns is not None)
            yield _head(list(kinds), columns or header, None)
            batches = itertools.chain([first], batches)
            if position is not None:
                row, byte = position["row"], position["byte"]
                _seek_line(stream, body, byte)
                batches = _csv_batches(_whole_lines(stream, byte), header, columns, ragged)
            for byte, batch in batches:
                yield (
                    {"byte": byte, "row": row},
                    {
                        name: _parse_column(batch.column(name), name, kind, row, name in schema)
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
    blocks: Iterable[tuple[int, bytes]], header: list[str], columns: _Columns, ragged: list[Any]
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
        raise _changed(f"{size} bytes after the header", f"byte {byte}, which begins no line")
    stream.seek(body + byte)


def _whole_lines(stream: Any, byte: int = 0) -> Iterator[tuple[int, bytes]]:
    """Cut a stream into blocks that end where a line does, and not inside quotes.

    Each comes after the byte that it begins at, and is cut in a way that depends on that alone.
    pyarrow's own streaming reader would do it on a thread of its own, which cannot be stopped
    while it waits for a pipe.
    """
    rest, window = b"", _CSV_BLOCK_BYTES
    while True:
        while len(rest) < window and (piece := stream.read(window - len(rest))):
            rest += piece
        cut = len(rest)
        if cut == window:
            cut = rest.rfind(b"\n") + 1
            while cut and rest.count(b'"', 0, cut) % 2:
                cut = rest.rfind(b"\n", 0, cut - 1) + 1
            if not cut:
                window += _CSV_BLOCK_BYTES
                continue
        if rest[:cut].strip():
            yield byte, rest[:cut]
        if len(rest) < window:
            return
        rest, byte, window = rest[cut:], byte + cut, _CSV_BLOCK_BYTES


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


def _infer_kinds(batch: Any, schema: _Schema, all_wanted: bool) -> dict[str, str]:
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
            _parse_column(column, name, candidates[0] if name in schema else "float64", 0, True)
    return kinds


def _begins_with_number(column: Any) -> bool:
    """Whether a column that is not numeric turned into text only after its first value."""
    first = column.drop_null().slice(0, 1)
    return len(first) > 0 and _parse_text(first, "float64") is not None


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


def _parse_text(column: Any, kind: str) -> Any:
    """The column as an Arrow array of numbers, or None if a value is not of that kind."""
    pyarrow, compute = require("pyarrow"), require("pyarrow.compute")
    for trim in (False, True):
        try:
            return (compute.ascii_trim_whitespace(column) if trim else column).cast(kind)
        except pyarrow.ArrowInvalid:
            pass
    return None


def _parse_column(column: Any, name: str, kind: str, first_row: int, fixed: bool) -> NumpyArray:
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
    return _cast(values, name, int, first_row) if fixed and kind == "int64" else values


_READERS: dict[str, Callable[..., _Reader]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
    ".jsonl": _read_json_lines,
}
