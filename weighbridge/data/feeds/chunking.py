"""Chunks of a feed: the cuts depend only on the rows; each has the place after its last row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from jax import tree_util

from weighbridge.core.errors import DataError
from weighbridge.data.cutting import join, slice_rows
from weighbridge.data.feeds.base import (
    Cursor,
    Feed,
    Notice,
    Parcel,
    UnreadRows,
    advanced,
    unread_between,
)
from weighbridge.data.feeds.continuity import Continuity
from weighbridge.data.feeds.cursors import check_cursor
from weighbridge.data.quarantine import Unread
from weighbridge.data.values import Values, column_names, num_rows


class Chunk(NamedTuple):
    """Rows to absorb at once.

    Attributes:
        values: the rows.
        cursor: the place after the last row, at which reading continues.
        notices: the notices before these rows.
        unread: its rows that could not be parsed, with the reason.
    """

    values: Values
    cursor: Cursor
    notices: tuple[Notice, ...] = ()
    unread: UnreadRows = ()


def chunks(
    feed: Feed, size: int, cursor: Cursor | None = None, continuity: Continuity | None = None
) -> Chunks:
    """Cut a feed into chunks of exactly `size` rows; the last may be shorter.

    The cuts depend only on the rows, not on how or when they came. Reading from the cursor of a
    chunk gives the same following chunks, bit for bit.

    Args:
        feed: a feed from ``open_feed``.
        size: number of rows of a chunk.
        cursor: where to begin; by default at the start.
        continuity: leaves out duplicate parcels and reports missing ones. To resume, save the
            iterator's `continuity_state` with the cursor of the latest chunk.

    Returns:
        An iterator over chunks; None means that nothing new has come for a moment.

    >>> from weighbridge.data.feeds.opening import open_feed
    >>> feed = open_feed([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> first, *others = chunks(feed, 2)
    >>> first.values, first.cursor
    (array([1., 2.]), {'offset': 2})
    >>> [chunk.values.tolist() for chunk in chunks(feed, 2, first.cursor)]
    [[3.0, 4.0], [5.0]]
    """
    return Chunks(feed, size, cursor, continuity)


class Chunks(Iterator[Chunk | None]):
    """The iterator that ``chunks`` returns; it can also return the rows not yet in a chunk.

    Attributes:
        continuity_state: state of the continuity at the latest chunk, which belongs to its cursor;
            the continuity itself may have seen later parcels.
    """

    def __init__(
        self,
        feed: Feed,
        size: int,
        cursor: Cursor | None = None,
        continuity: Continuity | None = None,
    ) -> None:
        if size < 1:
            raise DataError(f"size is {size}. Use a chunk size of at least one row.")
        check_cursor(cursor, feed.describe())
        self.size = size
        self.continuity = continuity
        self.continuity_state = continuity.state() if continuity is not None else None
        self._parcels: Iterator[Parcel | None] = feed.read(cursor)
        self._pieces: list[Values] = []
        self._num_pending = 0
        self._rest: Parcel | None = None  # rest of the parcel that is being cut
        self._after: Cursor = cursor or {}
        self._notices: list[Notice] = []
        self._unread: list[tuple[int, Unread]] = []
        self._structure: Any = None
        self._ended = False

    def __next__(self) -> Chunk | None:
        """The next chunk, or None for now."""
        while self._num_pending < self.size:
            if self._rest is not None:
                self._take(self.size - self._num_pending)
            elif self._ended:
                break
            else:
                try:
                    parcel = next(self._parcels)
                except StopIteration:
                    self._ended = True
                    continue
                if parcel is None:
                    return None
                self._admit(parcel)
        if not self._num_pending:
            raise StopIteration
        return self._cut()

    def pending(self) -> Chunk | None:
        """All rows that were read but not yet returned, as one chunk; None if there are none.

        Use it when a stream is stopped that cannot be read again from a cursor. For a seekable feed
        do not use it: a resumed run reads these rows again, in chunks of the right size.
        """
        if self._rest is not None:
            self._take(num_rows(self._rest.values))
        return self._cut() if self._num_pending else None

    def take_notices(self) -> tuple[Notice, ...]:
        """The notices since the last chunk; they will not be repeated with the next one."""
        notices = tuple(self._notices)
        self._notices = []
        return notices

    def _admit(self, parcel: Parcel) -> None:
        self._notices.extend(parcel.notices)
        # A parcel that begins at an offset was started before: it is not new.
        begun = (parcel.cursor or {}).get("offset", 0) > 0
        if self.continuity is not None and parcel.identifier is not None and not begun:
            taken, notice = self.continuity.check(parcel.identifier)
            if notice is not None:
                self._notices.append(notice)
            if not taken:
                return
        if parcel.values is not None and num_rows(parcel.values):
            self._check_structure(parcel)
            self._rest = parcel

    def _check_structure(self, parcel: Parcel) -> None:
        leaves, treedef = tree_util.tree_flatten(parcel.values)
        structure = (treedef, [leaf.shape[1:] for leaf in leaves])
        self._structure = self._structure or structure
        if structure != self._structure:
            raise DataError(
                f"The columns changed at {parcel.cursor}: they are now "
                f"{', '.join(column_names(parcel.values))}, in shapes {structure[1]} per row, and "
                f"were in shapes {self._structure[1]}. Give every row the same columns."
            )

    def _take(self, wanted: int) -> None:
        if self._rest is None:
            return
        values, cursor = self._rest.values, self._rest.cursor or {}
        rows = min(wanted, num_rows(values))
        self._pieces.append(slice_rows(values, 0, rows))
        unread = self._rest.unread
        self._unread += [(self._num_pending + row, why) for row, why in unread if row < rows]
        self._num_pending += rows
        self._after = advanced(cursor, rows)
        more = slice_rows(values, rows, None)
        left = unread_between(unread, rows, rows + num_rows(more))
        self._rest = Parcel(more, self._after, unread=left) if num_rows(more) else None

    def _cut(self) -> Chunk:
        chunk = Chunk(join(self._pieces), self._after, self.take_notices(), tuple(self._unread))
        self._pieces, self._num_pending, self._unread = [], 0, []
        if self.continuity is not None:
            self.continuity_state = self.continuity.state()
        return chunk
