"""A feed of chunks from any iterable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from weighbridge.data.feeds.base import Cursor, Parcel, bad_cursor, from_offset, refuse_cursor
from weighbridge.data.sources.requested_columns import ALL_COLUMNS, Request, select
from weighbridge.data.values import LeftOut, TableReader, num_rows


class IterableFeed:
    """Chunks, or parcels with identifiers, from an iterable.

    A list, or any other object that can be iterated again, is read from a cursor by skipping the
    items before it. An iterator can be read only once.

    Args:
        items: chunks in any in-memory form that ``wb.evidence`` accepts, or ``wb.Parcel``.
        request: the columns to keep.
        name: its name in messages.
    """

    def __init__(
        self, items: Iterable[Any], request: Request = ALL_COLUMNS, name: str = ""
    ) -> None:
        self.seekable = iter(items) is not items
        self.num_rows: int | None = None
        self._items = items
        self._reader = TableReader()
        self.left_out: LeftOut = self._reader.left_out
        self._request = request
        self._name = name or type(items).__name__

    def describe(self) -> str:
        """One line about the source of the rows."""
        if self.seekable:
            return f"chunks from a {self._name}"
        return f"chunks from a {self._name}, which can be read only once: no exact resume"

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """One parcel for each item, from the cursor on."""
        if not self.seekable:
            refuse_cursor(cursor, f"An iterator ({self._name})")
        item, row, offset = 0, 0, 0
        if cursor is not None:
            if not {"item", "row", "offset"} <= set(cursor):
                raise bad_cursor(cursor, self.describe())
            item, row, offset = (int(cursor[key]) for key in ("item", "row", "offset"))
        for number, given in enumerate(self._items):
            if number < item:
                continue
            if given is None:
                yield None
                continue
            parcel = given if isinstance(given, Parcel) else Parcel(given)
            values = self._reader(parcel.values, row)
            rows = num_rows(values)
            place = {"item": number, "row": row, "offset": 0}
            if rows:
                values = select(values, self._request, row, self.left_out)
                yield from_offset(parcel._replace(values=values, cursor=place), offset)
            elif parcel.identifier is not None:
                yield parcel._replace(values=None, cursor=place)
            offset = 0
            row += rows
