"""A feed of the files of a directory, to which more may be added."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from weighbridge.base import DataError
from weighbridge.data import LeftOut
from weighbridge.feeds.base import Cursor, Notice, Parcel, bad_cursor
from weighbridge.feeds.files import read_parcels, unreadable
from weighbridge.sources import NoRowsError, head_of, is_readable, not_numbers

LONG_AGO = 60.0


class _Seen(NamedTuple):
    """A file at an earlier look."""

    size: int
    modified: int
    since: float


class DirectoryFeed:
    """The files of a directory in the order of their names, and with `follow` those to come.

    A file that is still being written is waited for: it is taken when its size and its time have
    stood still for `settle` seconds, or as soon as it has been renamed from a hidden or temporary
    name (``.x``, ``x.tmp``, ``x.part``) that was seen before. Files are taken in the order of
    their names: one that comes later and sorts before is not read but noticed. Name files so that
    they sort as they come.

    Args:
        path: the directory.
        columns: the columns to read; by default all that are numeric in the first file.
        schema: column -> float or int.
        follow: whether to wait for more files.
        lenient: whether a row that cannot be read becomes a bad row, and a file that cannot be
            read a notice; otherwise each is a DataError.
        settle: seconds for which a file must not change before it is taken.
        patience: seconds between two looks.
    """

    seekable = True
    num_rows: int | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: list[str] | None = None,
        schema: Mapping[str, type] | None = None,
        *,
        follow: bool = False,
        lenient: bool = False,
        settle: float = 2.0,
        patience: float = 0.2,
    ) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise DataError(f"There is no folder {str(path)!r}. Make it, or check the path.")
        self._lenient = lenient
        self.follow, self.settle, self.patience = follow, settle, patience
        self._columns = columns
        self._schema = dict(schema or {})
        self.left_out: LeftOut = {}

    def describe(self) -> str:
        """One line on where the rows come from."""
        return f"files in {self.path}{', as they come' if self.follow else ''}"

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """Blocks of the files, from the cursor on."""
        columns, taken, last = self._columns, 0, ""
        watched = _Watched(self.path, self.settle, self.patience)
        if cursor is not None:
            if not {"name", "taken", "columns", "offset"} <= set(cursor):
                raise bad_cursor(cursor, self.describe())
            columns, taken, last = cursor["columns"], int(cursor["taken"]), cursor["name"]
            yield from self._read_file(last, columns, taken, cursor)
            taken += 1
            watched.expect(last, taken)
        while True:
            name, late = watched.next_after(last, self.follow)
            if late:
                yield Parcel(None, notices=tuple(_late(one, last) for one in late))
            if name is None and not self.follow:
                break
            if name is None:
                time.sleep(self.patience)
                yield None
                continue
            try:
                if columns is None:
                    head = head_of(self.path / name, None, self._schema, lenient=self._lenient)
                    columns = head.kept
                    self.left_out |= {ignored: not_numbers(ignored) for ignored in head.ignored}
                yield from self._read_file(name, columns, taken, None)
            except NoRowsError as error:
                yield Parcel(None, notices=(Notice("gap", name, f"{error} It is passed over."),))
            except DataError as error:
                if not self._lenient or columns is not None:
                    raise
                yield Parcel(None, notices=(unreadable(name, error),))
            last, taken = name, taken + 1
        if not taken:
            raise DataError(f"There is no file with rows in {str(self.path)!r}.")

    def _read_file(
        self, name: str, columns: list[str] | None, taken: int, cursor: Cursor | None
    ) -> Iterator[Parcel]:
        path = self.path / name
        if not path.exists():  # files that were read may be cleared away
            text = f"{name} is gone: rows of it that had not been read yet are missing."
            yield Parcel(None, notices=(Notice("gap", name, text),))
            return
        place = {"name": name, "taken": taken, "columns": columns}
        yield from read_parcels(
            path, columns or [], self._schema, place, cursor, lenient=self._lenient
        )


class _Watched:
    """What was seen of a directory at earlier looks."""

    def __init__(self, path: Path, settle: float, patience: float) -> None:
        self.path, self.settle, self.patience = path, settle, patience
        self._seen: dict[str, _Seen] = {}
        self._unfinished: dict[int, tuple[int, int]] = {}  # inodes under a temporary name
        self._previous: dict[int, tuple[int, int]] = {}  # the same at the look before
        self._passed: set[str] = set()
        self._queue: list[str] = []  # names to come, the next one last
        self._next_look = -math.inf
        self._num_late = 0

    def expect(self, last: str, taken: int) -> None:
        """Of the files up to `last`, so many have been read by an earlier process."""
        self._passed = {name for name in self._look() if name <= last}
        self._num_late = max(0, len(self._passed) - taken)

    def next_after(self, last: str, follow: bool) -> tuple[str | None, list[str]]:
        """The next file that is complete, and those that came too late for their names."""
        late = []
        began = time.monotonic()
        # In a large directory a look takes its time: most of it is left for reading.
        if began >= self._next_look:
            names = self._look()
            passed = {name for name in names if name <= last}
            late = sorted(passed - self._passed)
            self._passed = passed
            self._queue = sorted(set(names) - passed, reverse=True)
            took = time.monotonic() - began
            self._next_look = began + max(self.patience, 20 * took) if follow else math.inf
        if self._num_late:
            late, self._num_late = [f"{self._num_late} of the files up to {last}", *late], 0
        if not self._queue or (follow and not self._is_complete(self._queue[-1])):
            return None, late
        name = self._queue.pop()
        self._seen.pop(name, None)
        self._passed.add(name)
        return name, late

    def _look(self) -> list[str]:
        """The names that can be read; remembers what stands under others."""
        names = []
        self._previous, self._unfinished = self._unfinished, {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                if is_readable(entry.name) and entry.is_file():
                    names.append(entry.name)
                else:
                    with contextlib.suppress(FileNotFoundError):  # renamed while we looked
                        status = entry.stat()
                        self._unfinished[entry.inode()] = (status.st_size, status.st_mtime_ns)
        return names

    def _is_complete(self, name: str) -> bool:
        try:
            status = os.stat(self.path / name)
        except FileNotFoundError:  # gone again: the next look will tell
            self._next_look = -math.inf
            return False
        now = (status.st_size, status.st_mtime_ns)
        known = {**self._previous, **self._unfinished}.get(status.st_ino)
        if known == now:  # the same file, renamed: an inode alone may have been used anew
            return True
        seen = self._seen.get(name)
        if seen is None or (seen.size, seen.modified) != now:
            self._seen[name] = _Seen(*now, time.monotonic())
            # A file that was last written long ago need not be watched.
            return time.time() - status.st_mtime > max(self.settle, LONG_AGO)
        return time.monotonic() - seen.since >= self.settle


def _late(name: str, last: str) -> Notice:
    return Notice(
        "gap", name, f"{name} came after {last} had been read and sorts before it: not read."
    )
