"""Entries of a Redis stream that were read, to recognise the stream again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

# The oldest mark is about this many doublings behind the newest.
LEVELS = 16


class Mark(NamedTuple):
    """An entry: the number of entries added up to it, its ID, and a digest of its contents."""

    ordinal: int
    entry_id: str
    digest: str


class Marks:
    """The first and the last entries that were read; older marks are sparser.

    A server that was restored from an older copy lacks the newest marks and has the others. A new
    stream under the same name has none of them.

    >>> marks = Marks()
    >>> for number in range(1, 12):
    ...     marks.add(Mark(number, f"{number}-0", ""))
    >>> [mark.ordinal for mark in marks.found()]
    [1, 4, 8, 10, 11]
    """

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._first: Mark | None = None
        self._levels: dict[int, tuple[Mark, ...]] = {}  # the last two of each level
        for mark in sorted(marks):
            self.add(mark)

    def add(self, mark: Mark) -> None:
        """Add an entry that is being read."""
        self._first = self._first or mark
        level = 0
        while level == 0 or (level <= LEVELS and mark.ordinal % 2**level == 0):
            self._levels[level] = (*self._levels.get(level, ())[-1:], mark)
            level += 1

    def found(self) -> list[Mark]:
        """All marks, the newest last."""
        first = [] if self._first is None else [self._first]
        return sorted({mark for some in self._levels.values() for mark in some}.union(first))

    def newest(self) -> Mark | None:
        """The entry that was read last."""
        return self._levels[0][-1] if self._levels else None


def digest(fields: Mapping[bytes, bytes]) -> str:
    """A short digest of an entry.

    >>> digest({b"y": b"1"}) == digest({b"y": b"1"}), digest({b"y": b"1"}) == digest({b"y": b"2"})
    (True, False)
    """
    found = hashlib.blake2b(digest_size=8)
    for name, value in fields.items():
        found.update(b"%d,%d:%b%b" % (len(name), len(value), name, value))
    return found.hexdigest()


def marks_of(saved: Any) -> Marks:
    """Marks from a cursor; a ``ValueError`` or ``TypeError`` if they are not valid."""
    return Marks(Mark(int(number), str(name), str(text)) for number, name, text in saved)
