"""Files of rows: found by path or pattern; each is read by the reader for its type."""

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
from weighbridge.data.sources.requested_columns import Request, nearest

_READERS: dict[str, Callable[..., Reader]] = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".npz": read_npz,
    ".jsonl": read_json_lines,
}


def expand(path: str | os.PathLike[str]) -> list[Path]:
    """The files that match a path or a glob, sorted."""
    text = os.fspath(path)
    if "://" in text:
        raise DataError(
            f"{without_secrets(text)} is an address, but files are needed here. Follow a Redis "
            "stream with `weighbridge watch`, or open it with wb.open_feed."
        )
    if os.path.exists(text) or not glob.has_magic(text):
        return [Path(text)]
    found = sorted(glob.glob(text, recursive=True))
    if not found:
        raise DataError(f"No file matches {text!r}. Check the pattern and the folder.")
    return [Path(name) for name in found]


def check_file(path: Path) -> None:
    """Raise a DataError unless the file exists and is of a type that can be read."""
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
    """Whether a file with this name can be read; hidden files are ignored."""
    return not name.startswith(".") and Path(name).suffix.lower() in _READERS


def read_file(path: Path, request: Request, position: Position | None = None) -> Reader:
    """Read one file: a head with its columns, then blocks.

    Args:
        path: the file.
        request: the columns to read. If it is lenient, a row that cannot be parsed has NaN values
            and is listed in its block. A file that cannot be read is a DataError in any case.
        position: the position of a block from an earlier reading, at which to begin. The end of
            each block depends only on its start, so the blocks from there on are the same.
    """
    reader = _READERS[path.suffix.lower()]
    try:
        for part in reader(path, request, position):
            if isinstance(part, Block) and part.unread:
                named = {n: row._replace(file=path.name) for n, row in part.unread.items()}
                part = part._replace(unread=named)
            yield part
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    except DataError as error:
        raise type(error)(f"In {path}: {error}") from error


def head_of(path: Path, request: Request) -> Head:
    """The columns of a file, the columns left out, and the number of rows if known."""
    with contextlib.closing(read_file(path, request)) as reader:
        head: Head = next(reader)
        return head


def head_of_all(paths: Sequence[Path], request: Request) -> Head:
    """The columns of the first file, which all others must have, and the total number of rows.

    If the request is lenient, unreadable files are skipped: the columns are those of the first
    readable file, and the number of rows of several files is unknown.
    """
    if request.lenient:
        return _first_head(paths, request)
    for path in paths:
        check_file(path)
    head = head_of(paths[0], request)
    total = head.num_rows
    for path in paths[1:]:
        if total is not None:
            rows = head_of(path, request._replace(columns=head.kept)).num_rows
            total = None if rows is None else total + rows
    return head._replace(num_rows=total)


def _first_head(paths: Sequence[Path], request: Request) -> Head:
    refused: DataError | None = None
    for path in paths:
        try:
            check_file(path)
            head = head_of(path, request)
        except DataError as error:
            refused = refused or error
        else:
            return head if len(paths) == 1 else head._replace(num_rows=None)
    assert refused is not None
    raise refused
