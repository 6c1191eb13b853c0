"""Scan a directory: which file is next, which has grown, and which cannot be read."""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.base import Notice
from weighbridge.data.feeds.file_identity import reason_of, shown
from weighbridge.data.feeds.taken import TakenFiles
from weighbridge.data.sources.files import is_readable

# Seconds after which a file need not be watched any more, or a notice about waiting is given.
LONG_AGO = 60.0
# A file that was read and grows delays the files after it for this many times `settle`.
HELD_UP = 5
# Scanning a large directory takes time: the pause between two scans is this many times as long.
LOOK_PAUSE = 20
# Number of removed names to remember, to recognise them if they come again.
REMEMBERED_NAMES = 10_000

_Stamp = tuple[int, int, int]  # inode, size, time of writing


class _Waiting(NamedTuple):
    """An incomplete file: its last stamp, the time of that stamp, and of the first look."""

    stamp: _Stamp
    since: float
    first: float


class Found(NamedTuple):
    """The file to read next, if there is one, and the notices."""

    name: str | None
    notices: tuple[Notice, ...]


class Looks:
    """The results of earlier scans of a directory.

    Args:
        path: the directory.
        settle: seconds without a change before a file is taken.
        patience: seconds between two scans.
        follow: whether to wait for files; otherwise all files are complete.
    """

    def __init__(self, path: Path, settle: float, patience: float, follow: bool) -> None:
        self.path, self.settle, self.patience, self.follow = path, settle, patience, follow
        self._waiting: dict[str, _Waiting] = {}
        self._unfinished: dict[int, _Stamp] = {}  # inodes under a temporary name
        self._previous: dict[int, _Stamp] = {}  # the same at the look before
        self._passed: dict[str, _Stamp] = {}  # names up to the last one taken, when read
        self._gone: dict[str, _Stamp] = {}  # of these, names that were removed
        self._queue: list[str] = []  # names to read, the next one last
        self._grown: list[str] = []  # names that were taken and have changed
        self._told: set[str] = set()  # names for which a notice was given
        self._notices: list[Notice] = []
        self._found: dict[str, _Stamp] = {}  # by the last scan
        self._next_look = -math.inf
        self._is_there = True

    def resume(self, taken: TakenFiles) -> None:
        """Start from the files that an earlier process has taken."""
        try:
            self._look()
        except OSError as error:
            self._tell_absence(error)
        present = {name: s for name, s in self._found.items() if name <= taken.last}
        known = {n: f.mark[:3] for n, f in taken.files.items() if f.mark is not None}
        self._passed = {name: known.get(name, stamp) for name, stamp in present.items()}
        certain = taken.late(present)
        self._notices += [_late(shown(name), taken.last, name) for name in certain]
        late = len(present) - len(certain) - taken.count
        if late > 0:
            what = f"{late} of the files up to {shown(taken.last)}"
            self._notices.append(_late(what, taken.last))
            return
        others = present.keys() - known.keys() - set(certain)
        changed = [name for name in others if present[name][2] > taken.newest > 0]
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            text = f"{shown(min(changed))}{more} changed since the run had passed: not read again."
            self._notices.append(Notice("gap", min(changed), text))

    def next(self, taken: TakenFiles) -> Found:
        """The next complete file: first a file that has grown, then in the order of names."""
        if time.monotonic() >= self._next_look:
            self._look_again(taken)
        name = self._next_grown() or self._next_new()
        notices, self._notices = tuple(self._notices), []
        return Found(name, notices)

    def read(self, name: str, stamp: Iterable[int]) -> None:
        """Record inode, size and time of writing of a file when it was read."""
        inode, size, written = stamp
        self._passed[name] = (inode, size, written)
        self._waiting.pop(name, None)

    def leave(self, name: str) -> None:
        """Record a file that is not read; its later changes give no notice."""
        self._waiting.pop(name, None)
        self._told.add(name)
        if name in self._found:
            self._passed[name] = self._found[name]

    def names_after(self, last: str) -> list[str]:
        """The names of the last scan that come after a name, in order."""
        return sorted(name for name in self._found if name > last)

    def lost(self, name: str) -> None:
        """Record that a file was removed: the next scan comes at once."""
        self._passed.pop(name, None)
        self._next_look = -math.inf

    def is_complete(self, name: str) -> bool:
        """Whether a file is no longer being written."""
        if not self.follow:
            return True
        try:
            stamp = _stamp(os.stat(self.path / name))
        except OSError:  # removed: the next scan shows it
            self._next_look = -math.inf
            return False
        if self._passed.get(name) == stamp:
            return True
        known = {**self._previous, **self._unfinished}.get(stamp[0])
        if known == stamp:  # the same file, renamed; the inode alone may be reused
            return True
        now = time.monotonic()
        seen = self._waiting.get(name)
        if seen is None:
            self._waiting[name] = _Waiting(stamp, now, now)
            # A file that was last written long ago need not be watched.
            return time.time() - stamp[2] / 1e9 > max(self.settle, LONG_AGO)
        if now - seen.first > max(HELD_UP * self.settle, LONG_AGO):
            self._tell_restless(name)
        if seen.stamp != stamp:
            self._waiting[name] = seen._replace(stamp=stamp, since=now)
            return False
        return now - seen.since >= self.settle

    def _tell_restless(self, name: str) -> None:
        if name not in self._told:
            self._told.add(name)
            text = f"{shown(name)} is being written all the time: it is taken when it has stood "
            text += f"still for {self.settle:g} seconds. Write a new file now and then."
            self._notices.append(Notice("changed", name, text))

    def _next_grown(self) -> str | None:
        for name in self._grown:
            if self.is_complete(name):
                self._grown.remove(name)
                return name
        return None

    def _next_new(self) -> str | None:
        if not self._queue or self._is_held_up() or not self.is_complete(self._queue[-1]):
            return None
        name = self._queue.pop()
        self._waiting.pop(name, None)
        return name

    def _is_held_up(self) -> bool:
        """Whether a file that was read has just grown: its rows come before those of the next."""
        now = time.monotonic()
        waiting = [self._waiting[name] for name in self._grown if name in self._waiting]
        return any(now - one.first < HELD_UP * self.settle for one in waiting)

    def _look_again(self, taken: TakenFiles) -> None:
        began = time.monotonic()
        try:
            self._look()
        except OSError as error:
            self._tell_absence(error)
            return
        if not self._is_there:
            text = f"The folder {shown(str(self.path))} is there again: reading goes on."
            self._notices.append(Notice("changed", None, text))
            self._is_there = True
        self._compare({n: s for n, s in self._found.items() if n <= taken.last}, taken)
        self._queue = sorted((n for n in self._found if n > taken.last), reverse=True)
        pause = max(self.patience, LOOK_PAUSE * (time.monotonic() - began))
        self._next_look = began + pause if self.follow else math.inf

    def _compare(self, present: dict[str, _Stamp], taken: TakenFiles) -> None:
        """Compare the names that were passed with what was read of them."""
        for name in self._passed.keys() - present.keys():
            self._gone[name] = self._passed.pop(name)
            if len(self._gone) > REMEMBERED_NAMES:
                del self._gone[next(iter(self._gone))]
        for name in sorted(present.keys() - self._passed.keys()):
            back = self._gone.pop(name, None)
            if back is None:
                self._notices.append(_late(shown(name), taken.last, name))
            self._passed[name] = back or present[name]
        changed = [name for name, stamp in present.items() if self._passed[name] != stamp]
        self._grown = [name for name in taken.files if name in set(changed)]
        for name in sorted(set(changed) - set(self._grown)):
            self._passed[name] = present[name]
            if name not in self._told:
                self._told.add(name)
                text = (
                    f"{shown(name)} changed long after it was read, or was not read at all: it is "
                )
                text += "not read again. Give new rows a new file."
                self._notices.append(Notice("gap", name, text))

    def _tell_absence(self, error: OSError) -> None:
        text = f"The folder {shown(str(self.path))} cannot be read ({reason_of(error)})"
        if not self.follow:
            raise DataError(f"{text}. Check the path and its permissions.") from error
        if self._is_there:
            self._notices.append(Notice("changed", None, f"{text}: it is waited for."))
        self._is_there = False
        self._next_look = time.monotonic() + self.patience

    def _look(self) -> None:
        """Find the files that can be read; remember files under temporary names."""
        found, unfinished = dict[str, _Stamp](), dict[int, _Stamp]()
        with os.scandir(self.path) as entries:
            for entry in entries:
                try:
                    status = entry.stat()
                except FileNotFoundError:  # renamed during the scan, or a broken link
                    continue
                except OSError as error:  # a loop of links, or no permission
                    self._tell_odd(entry.name, reason_of(error))
                    continue
                if not is_readable(entry.name):
                    unfinished[status.st_ino] = _stamp(status)
                elif stat.S_ISREG(status.st_mode):
                    found[entry.name] = _stamp(status)
                else:
                    self._tell_odd(entry.name, "it is not a regular file")
        self._previous, self._unfinished, self._found = self._unfinished, unfinished, found

    def _tell_odd(self, name: str, why: str) -> None:
        if is_readable(name) and name not in self._told:
            self._told.add(name)
            self._notices.append(passed_over(name, why))


def passed_over(name: str, why: str) -> Notice:
    """The notice for a file that cannot be read at all."""
    return Notice("unreadable", name, f"{shown(name)} cannot be read ({why}): it is passed over.")


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _late(what: str, last: str, name: str | None = None) -> Notice:
    text = f"{what} came after {shown(last)} had been read and sorts before it: not read."
    return Notice("gap", what if name is None else name, text)
