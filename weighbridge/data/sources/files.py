"""Files of rows: found by path or pattern, read each by the reader of its kind."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from weighbridge.core.addresses import without_secrets
from weighbridge.core.errors import DataError
from weighbridge.data.sources.csv_file import read_csv
from weighbridge.data.sources.json_lines_file import read_json_lines
from weighbridge.data.sources.npz_file import read_npz
from weighbridge.data.sources.parquet_file import read_parquet
from weighbridge.data.sources.reading import Block, Head, Position, Reader
from weighbridge.data.sources.requested_columns import Columns, Schema, nearest

_READERS: dict[str, Callable[..., Reader]] = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".npz": read_npz,
    ".jsonl": read_json_lines,
}


def expand(path: str | os.PathLike[str]) -> list[Path]:
    """The files that a path or a glob names, sorted."""
    text = os.fspath(path)
    if "://" in text:
        raise DataError(
            f"{without_secrets(text)} is an address, and files are wanted here. Follow a Redis "
            "stream with `weighbridge watch`, or open it with wb.open_feed."
        )
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
        hint = nearest(path.name, os.listdir(folder)) or " Check the path."
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
    path: Path,
    columns: Columns,
    schema: Schema,
    position: Position | None = None,
    *,
    lenient: bool = False,
) -> Reader:
    """Read one file: a head that tells its columns, then blocks.

    Args:
        path: the file.
        columns: the columns to read; None for all that are numeric.
        schema: their types, where they should not be inferred.
        position: of a block that an earlier reading gave: begin there. Blocks are cut in a way
            that depends on their beginning alone, so they are the same from there on.
        lenient: whether a row that cannot be read becomes one of NaN, and is told with its block.
            A file that cannot be read is a DataError nevertheless.
    """
    reader = _READERS[path.suffix.lower()]
    try:
        for part in reader(path, columns, schema, position, lenient=lenient):
            if isinstance(part, Block) and part.unread:
                named = {n: row._replace(file=path.name) for n, row in part.unread.items()}
                part = part._replace(unread=named)
            yield part
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    except DataError as error:
        raise type(error)(f"In {path}: {error}") from error


def head_of(path: Path, columns: Columns, schema: Schema, *, lenient: bool = False) -> Head:
    """The columns of a file, those left out, and its number of rows if it is known."""
    with contextlib.closing(read_file(path, columns, schema, lenient=lenient)) as reader:
        head: Head = next(reader)
        return head


def head_of_all(
    paths: Sequence[Path], columns: Columns, schema: Schema, *, lenient: bool = False
) -> Head:
    """The columns of the first file, which all others must have, and the rows of all together.

    Where one that cannot be read is passed over (`lenient`), it is the first that can; the rows
    are not known then.
    """
    if lenient:
        return _first_head(paths, columns, schema)
    for path in paths:
        check_file(path)
    head = head_of(paths[0], columns, schema)
    total = head.num_rows
    for path in paths[1:]:
        if total is not None:
            rows = head_of(path, head.kept, schema).num_rows
            total = None if rows is None else total + rows
    return head._replace(num_rows=total)


def _first_head(paths: Sequence[Path], columns: Columns, schema: Schema) -> Head:
    refused: DataError | None = None
    for path in paths:
        try:
            check_file(path)
            head = head_of(path, columns, schema, lenient=True)
        except DataError as error:
            refused = refused or error
        else:
            return head if len(paths) == 1 else head._replace(num_rows=None)
    assert refused is not None
    raise refused
