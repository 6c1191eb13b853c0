"""A feed of rows that are in memory."""

from __future__ import annotations

from collections.abc import Iterator

from weighbridge.data.feeds.base import Cursor, Parcel, bad_cursor, from_offset
from weighbridge.data.values import LeftOut, Values, num_rows


class MemoryFeed:
    """An array or a table; its cursor counts rows.

    Args:
        values: normalised observations.
        left_out: columns that were left out because they do not hold numbers.
    """

    seekable = True

    def __init__(self, values: Values, left_out: LeftOut | None = None) -> None:
        self.values = values
        self.left_out: LeftOut = left_out or {}
        self.num_rows: int | None = num_rows(values)

    def describe(self) -> str:
        """One line about the source of the rows."""
        return f"{self.num_rows:,} rows in memory"

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """All rows from the cursor on, as one parcel."""
        offset = 0 if cursor is None else cursor.get("offset")
        if not isinstance(offset, int) or not 0 <= offset <= (self.num_rows or 0):
            raise bad_cursor(cursor or {}, self.describe())
        return iter([from_offset(Parcel(self.values, {"offset": 0}), offset)])
