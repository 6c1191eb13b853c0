"""A feed of files, one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from weighbridge.data import LeftOut
from weighbridge.feeds.base import Cursor, Parcel, bad_cursor, from_offset
from weighbridge.sources import head_of_all, not_numbers, read_file

# What a cursor holds beside the place within a file.
OWN_KEYS = ("file", "name", "taken", "columns", "offset")


class FilesFeed:
    """CSV, Parquet, NPZ or JSON lines files; the cursor names the file and a block in it.

    Args:
        paths: the files, in order.
        columns: the columns to read; by default all that are numeric in the first file.
        schema: column -> float or int.
    """

    seekable = True

    def __init__(
        self, paths: Sequence[Path], columns: list[str] | None, schema: Mapping[str, type]
    ) -> None:
        self.paths = list(paths)
        self._schema = schema
        head = head_of_all(self.paths, columns, schema)
        self.columns, self.num_rows = head.kept, head.num_rows
        ignored = head.ignored if columns is None else []
        self.left_out: LeftOut = {name: not_numbers(name) for name in ignored}

    def describe(self) -> str:
        """One line on where the rows come from."""
        others = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0]}{others}"

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """Blocks of the files, from the cursor on."""
        first = 0 if cursor is None else self._find(cursor)
        for number in range(first, len(self.paths)):
            path = self.paths[number]
            place = {"file": number, "name": path.name}
            yield from read_parcels(path, self.columns, self._schema, place, cursor)
            cursor = None

    def _find(self, cursor: Cursor) -> int:
        """The number of the cursor's file, which may have moved in a list that has grown."""
        name, number = str(cursor.get("name")), cursor.get("file")
        names = [path.name for path in self.paths]
        if isinstance(number, int) and 0 <= number < len(names) and names[number] == name:
            return number
        if names.count(name) != 1:
            raise bad_cursor(cursor, self.describe())
        return names.index(name)


def read_parcels(
    path: Path,
    columns: list[str],
    schema: Mapping[str, type],
    place: Cursor,
    cursor: Cursor | None,
) -> Iterator[Parcel]:
    """The blocks of one file as parcels, from the cursor on; only the first has an identifier.

    Args:
        path: the file.
        columns: the columns to read.
        schema: their types.
        place: what a cursor says of the file itself.
        cursor: a place in this file, or None for its beginning.
    """
    position, offset = None, 0
    if cursor is not None:
        position = {key: value for key, value in cursor.items() if key not in OWN_KEYS}
        offset = int(cursor["offset"])
    begins = cursor is None
    try:
        with contextlib.closing(read_file(path, columns, schema, position)) as reader:
            next(reader)
            for where, values in reader:
                identifier = path.name if begins else None
                parcel = Parcel(values, {**place, **where, "offset": 0}, identifier)
                yield from_offset(parcel, offset)
                offset, begins = 0, False
    except KeyError as error:  # a place in a file of another kind
        if cursor is None:
            raise
        raise bad_cursor(cursor, str(path)) from error
