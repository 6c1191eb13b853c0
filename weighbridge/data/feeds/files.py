"""A feed of files, one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.base import (
    Cursor,
    Notice,
    Parcel,
    UnreadRows,
    bad_cursor,
    from_offset,
    unread_between,
)
from weighbridge.data.feeds.file_identity import shown
from weighbridge.data.feeds.shapes import KEY, Shapes
from weighbridge.data.sources.files import head_of_all, read_file
from weighbridge.data.sources.reading import FileChangedError, NoRowsError, file_changed
from weighbridge.data.sources.requested_columns import Request, not_numbers
from weighbridge.data.sources.source import Source
from weighbridge.data.values import LeftOut, num_rows

# Entries of a cursor in addition to the place in a file.
OWN_KEYS = ("file", "name", "taken", "columns", "offset", "shapes")


class FilesFeed:
    """CSV, Parquet, NPZ or JSON lines files; the cursor names the file and a block in it.

    Args:
        paths: the files, in order.
        request: the columns to read; by default all numeric columns of the first file.
    """

    seekable = True

    def __init__(self, paths: Sequence[Path], request: Request) -> None:
        self.paths = list(paths)
        head = head_of_all(self.paths, request)
        self._request, self.num_rows = request._replace(columns=head.kept), head.num_rows
        ignored = head.ignored if request.columns is None else []
        self.left_out: LeftOut = {name: not_numbers(name) for name in ignored}

    def describe(self) -> str:
        """One line about the source of the rows."""
        others = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0]}{others}"

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """Blocks of the files, from the cursor on."""
        first = 0 if cursor is None else self._find(cursor)
        shapes = Shapes()
        shapes.restore(cursor)
        for number in range(first, len(self.paths)):
            path = self.paths[number]
            place = {"file": number, "name": path.name}
            for parcel in read_parcels(path, self._request, place, cursor, shapes):
                if parcel.identifier is not None:
                    parcel = parcel._replace(identifier=self._identifier(number))
                yield parcel
            cursor = None

    def _identifier(self, number: int) -> str:
        """The identity of a file: its name, and its path if an earlier file has the same name."""
        path = self.paths[number]
        others = [before for before in self.paths[:number] if before != path]
        return str(path) if any(path.name == other.name for other in others) else path.name

    def _find(self, cursor: Cursor) -> int:
        """The number of the cursor's file, which may have moved in a longer list."""
        name, number = str(cursor.get("name")), cursor.get("file")
        names = [path.name for path in self.paths]
        if isinstance(number, int) and 0 <= number < len(names) and names[number] == name:
            return number
        if names.count(name) != 1:
            raise bad_cursor(cursor, self.describe())
        return names.index(name)


def read_parcels(
    path: Path, request: Request, place: Cursor, cursor: Cursor | None, shapes: Shapes
) -> Iterator[Parcel]:
    """The blocks of one file as parcels, from the cursor on; only the first has an identifier.

    Args:
        path: the file.
        request: the columns to read. If it is lenient, rows that cannot be parsed are returned as
            bad rows, and a file that cannot be read, or not to its end, gives a notice.
        place: the entries of a cursor about the file itself.
        cursor: a place in this file, or None for its beginning.
        shapes: shapes of the columns in earlier files; if lenient, this file must match them.
    """
    lenient = request.lenient
    position, offset = None, 0
    if cursor is not None:
        position = {key: value for key, value in cursor.items() if key not in OWN_KEYS}
        offset = int(cursor["offset"])
    begins = cursor is None
    try:
        reader = read_file(path, request, position)
        with contextlib.closing(reader):
            next(reader)
            for block in reader:
                identifier = path.name if begins else None
                at = {**place, **block.position, "offset": 0}
                if lenient:  # otherwise the error is raised where rows are cut
                    shapes.check(block.values)
                    at[KEY] = shapes.known
                unread = tuple(block.unread.items())
                notices = unread_notices(path.name, unread) if lenient else ()
                parcel = Parcel(block.values, at, identifier, notices, unread)
                if offset > (rows := num_rows(block.values)):
                    raise file_changed(f"{rows} rows in a block", f"row {offset} of it")
                yield from_offset(parcel, offset)
                offset, begins = 0, False
    except (NoRowsError, FileChangedError):
        raise
    except KeyError as error:  # a place in a file of another type
        if cursor is None:
            raise
        raise bad_cursor(cursor, str(path)) from error
    except DataError as error:
        if not lenient:
            raise
        yield Parcel(None, notices=(unreadable(path.name, error),))


def unreadable(name: str, error: DataError) -> Notice:
    """The notice for a file that cannot be read, or not to its end."""
    return Notice("unreadable", name, f"{error} What was not read of it is set aside.")


def unread_notices(name: str, unread: UnreadRows) -> tuple[Notice, ...]:
    """One notice about the bad rows of a block."""
    if not unread:
        return ()
    first = unread[0][1]
    more = f" ({len(unread):,} rows of this block cannot be read)" if len(unread) > 1 else ""
    text = f"Line {first.line} of {shown(name)} cannot be read{more}: {first.reason}"
    return (Notice("unreadable", first.line, text),)


def parcels_of_source(source: Source) -> Iterator[Parcel]:
    """The blocks of a source, each with its rows that could not be parsed."""
    row = 0
    for values in source.blocks():
        stop = row + num_rows(values)
        yield Parcel(values, unread=unread_between(tuple(source.unread.items()), row, stop))
        row = stop
