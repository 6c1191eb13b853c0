"""The interface of a feed: parcels of rows, each with the place of its first row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from weighbridge.core.errors import DataError
from weighbridge.core.pickling import travels
from weighbridge.data.cutting import slice_rows
from weighbridge.data.quarantine import Unread
from weighbridge.data.values import Values, num_rows

Cursor = dict[str, Any]
NoticeKind = Literal["gap", "duplicate", "unreadable", "changed", "connection"]
# Rows of a block that could not be parsed, by their number (from 0), with the reason; their values
# are NaN.
UnreadRows = tuple[tuple[int, Unread], ...]
# Largest length of a place in a message.
_SHOWN = 200
# Used when a run continues from a cursor of an older version.
WITHOUT_FORM = (
    "The checkpoint is of an older version, which did not keep the shapes of columns: they are "
    "taken from the first row that comes now. Look whether they are what they were."
)


@travels()
class Notice(NamedTuple):
    """A fact about a stream that a user should know, and that does not stop it.

    Attributes:
        kind: "gap" (rows are missing, or may be), "duplicate" (a parcel came again and was left
            out), "unreadable" (a line could not be read and is returned as a bad row, or a file
            could not be read, or not to its end, and is set aside), "changed" (the source has
            changed; nothing is lost) or "connection" (a server was lost, or has come back).
        identifier: identifier of the parcel or place; for unreadable data, the name of a file or
            the number of a row, which the row policy handles.
        text: the message.
    """

    kind: NoticeKind
    identifier: str | int | None
    text: str


@travels()
class Parcel(NamedTuple):
    """Rows that arrive together; an iterable of them is a stream with identifiers.

    Attributes:
        values: the rows, in any in-memory form that ``wb.evidence`` accepts; None for a parcel that
            has only notices.
        cursor: the place of its first row, plain JSON with an "offset"; set by the feed.
        identifier: identifies a parcel that comes twice; with whole numbers, missing parcels are
            found too.
        notices: the notices of the feed before this parcel.
        unread: its rows that could not be parsed; set by the feed.

    >>> stream = [Parcel([1.0, 2.0], identifier=1), Parcel([3.0], identifier=2)]
    """

    values: Values
    cursor: Cursor | None = None
    identifier: str | int | None = None
    notices: tuple[Notice, ...] = ()
    unread: UnreadRows = ()


@runtime_checkable
class Feed(Protocol):
    """A stream of rows; see ``open_feed``.

    Attributes:
        seekable: whether `read` can begin at any cursor that it has returned, also later and in
            another process: a run can then be resumed exactly.
        num_rows: the number of rows, if known beforehand.
    """

    seekable: bool
    num_rows: int | None

    def describe(self) -> str:
        """One line about the source of the rows, and whether reading can be resumed there."""
        ...

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """Parcels from a place on; None means that nothing new has come for a moment."""
        ...


def advanced(cursor: Cursor, offset: int) -> Cursor:
    """The place a number of rows after this one."""
    return {**cursor, "offset": cursor.get("offset", 0) + offset}


def from_offset(parcel: Parcel, offset: int) -> Parcel:
    """The parcel without its first rows."""
    if not offset:
        return parcel
    if offset > (rows := num_rows(parcel.values)):
        raise DataError(
            f"Reading should continue after row {offset} of a block that has {rows}: the source "
            "has changed. Restore it, or start again."
        )
    rest = slice_rows(parcel.values, offset, None)
    unread = unread_between(parcel.unread, offset, offset + num_rows(rest))
    return parcel._replace(values=rest, cursor=advanced(parcel.cursor or {}, offset), unread=unread)


def unread_between(unread: UnreadRows, start: int, stop: int) -> UnreadRows:
    """The unread rows from a row on, counted from that row."""
    return tuple((row - start, why) for row, why in unread if start <= row < stop)


def refuse_cursor(cursor: Cursor | None, what: str) -> None:
    """Raise the error of a feed that cannot seek."""
    if cursor is not None:
        raise DataError(
            f"{what} cannot be read from an earlier place on. Start anew, go on with the rows that "
            "come now (no cursor), or keep the rows in files."
        )


def bad_cursor(cursor: Cursor, what: str) -> DataError:
    """The error for a place that belongs to another feed."""
    text = repr(cursor)
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return DataError(f"{text} is no place in {what}: it was saved for another feed.")
