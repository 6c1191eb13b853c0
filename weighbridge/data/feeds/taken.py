"""The files that a feed of a directory has read: the part of its cursor about other files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from weighbridge.data.feeds.base import Cursor, bad_cursor
from weighbridge.data.feeds.file_identity import FileMark, mark_from

# Number of files kept in a cursor, so that lines appended to them can be read.
REMEMBERED = 64
# Entries of a cursor in addition to the place in its file.
_OWN_KEYS = frozenset(
    {"name", "taken", "columns", "last", "newest", "remembered", "mark", "shapes", "left", "floor"}
)


class TakenFile(NamedTuple):
    """A file that was read: its mark, and where reading continues (None: at its beginning)."""

    mark: FileMark | None
    place: Cursor | None


class TakenFiles:
    """The files that were taken; the latest `REMEMBERED` are known.

    Args:
        columns: the columns to read; None until the first file determines them.

    Attributes:
        last: the highest name that was taken.
        count: number of files taken.
        newest: the latest time of writing among them, in nanoseconds.
        files: the latest files by name; the one read last comes last.
        left: names that were also passed, and of which nothing more is read.
        floor: above this name all passed names are known; None if none are.
    """

    def __init__(self, columns: list[str] | None) -> None:
        self.columns = columns
        self.last = ""
        self.count = 0
        self.newest = 0
        self.files: dict[str, TakenFile] = {}
        self.left: dict[str, None] = {}
        self.floor: str | None = ""

    def begin(self, name: str) -> None:
        """Take the next file in the order of names."""
        self.last, self.count = max(self.last, name), self.count + 1
        self._leave(name)  # until it was read

    def end(self, name: str, mark: FileMark, place: Cursor | None) -> None:
        """Record that a file was read up to a place."""
        self.files.pop(name, None)
        self.left.pop(name, None)
        self.files[name] = TakenFile(mark, place)
        self.newest = max(self.newest, mark.time)
        while len(self.files) > REMEMBERED:
            oldest = next(iter(self.files))
            del self.files[oldest]
            self._raise_floor(oldest)

    def forget(self, name: str) -> None:
        """Record that nothing more is read from this file."""
        self.files.pop(name, None)
        self._leave(name)

    def rename(self, name: str, later: str) -> None:
        """Record a new name of a file; it is read further under that name."""
        self.files[later] = self.files.pop(name)
        self.left.pop(later, None)
        if later != name:
            self._leave(name)

    def late(self, names: Iterable[str]) -> list[str]:
        """Those of some names up to the last that were certainly not passed, in order."""
        if self.floor is None:
            return []
        above = (name for name in names if self.floor < name <= self.last)
        return sorted(name for name in above if name not in self.files and name not in self.left)

    def _leave(self, name: str) -> None:
        self.left[name] = None
        while len(self.left) > REMEMBERED:
            oldest = next(iter(self.left))
            del self.left[oldest]
            self._raise_floor(oldest)

    def _raise_floor(self, name: str) -> None:
        if self.floor is not None:
            self.floor = max(self.floor, name)

    def place(self, name: str, mark: FileMark) -> Cursor:
        """The entries of the cursors of a file's rows, in addition to the place in the file."""
        known = [(n, f) for n, f in self.files.items() if n != name]
        others = [[n, list(f.mark), f.place] for n, f in known if f.mark is not None]
        return {
            "name": name,
            "mark": list(mark),
            "taken": self.count,
            "columns": self.columns,
            "last": self.last,
            "newest": self.newest,
            "remembered": others,
            "left": [one for one in self.left if one != name],
            "floor": self.floor,
        }


def restored(cursor: Cursor, columns: list[str] | None, what: str) -> tuple[TakenFiles, str]:
    """The files taken according to a cursor, and the name of the cursor's file.

    An older cursor knows only one file, without a mark: reading continues in the file as it is now.

    Args:
        cursor: the cursor of a row.
        columns: the requested columns, if the cursor has none.
        what: the feed, for messages.
    """
    name: Any = cursor["name"]
    taken = TakenFiles(cursor["columns"] or columns)
    count, last, newest = cursor["taken"], cursor.get("last", name), cursor.get("newest", 0)
    known = cursor.get("remembered")
    if not isinstance(known, list | None):
        raise bad_cursor(cursor, what)
    if not (_is_name(name) and _is_name(last) and _are_counts((count, newest, cursor["offset"]))):
        raise bad_cursor(cursor, what)
    if taken.columns is not None and not _are_texts(taken.columns):
        raise bad_cursor(cursor, what)
    # An older cursor did not count its own file.
    taken.last, taken.count, taken.newest = last, count + (known is None), newest
    left, taken.floor = cursor.get("left", []), cursor.get("floor")
    if not _are_texts(left) or not isinstance(taken.floor, str | None):
        raise bad_cursor(cursor, what)
    taken.left = dict.fromkeys(left)
    for entry in known or []:
        if not isinstance(entry, list | tuple) or len(entry) != 3 or not _is_name(entry[0]):
            raise bad_cursor(cursor, what)
        mark, place = mark_from(entry[1]), entry[2]
        if mark is None or not (place is None or _is_place(place)):
            raise bad_cursor(cursor, what)
        taken.files[entry[0]] = TakenFile(mark, place)
    mark = mark_from(cursor["mark"]) if "mark" in cursor else None
    place = place_within(cursor)
    if ("mark" in cursor and mark is None) or not _is_place(place):
        raise bad_cursor(cursor, what)
    taken.files.pop(name, None)
    taken.files[name] = TakenFile(mark, place)
    return taken, name


def place_within(cursor: Cursor) -> Cursor:
    """The place in its file that a cursor names."""
    return {key: value for key, value in cursor.items() if key not in _OWN_KEYS}


def _is_name(name: Any) -> bool:
    """Whether it names a file of a folder, and no other place."""
    if not isinstance(name, str) or name in ("", ".", "..") or "\0" in name:
        return False
    return os.path.basename(name) == name


def _are_counts(numbers: Iterable[Any]) -> bool:
    return all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers)


def _is_place(place: Any) -> bool:
    if not isinstance(place, dict) or not isinstance(place.get("offset"), int):
        return False
    return _are_counts(value for value in place.values() if isinstance(value, int | float))


def _are_texts(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)
