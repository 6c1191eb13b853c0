"""What a feed is: parcels of rows that each know the place where they begin."""

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
# Rows of a block, counted from 0, that could not be read, and why; their values are NaN.
UnreadRows = tuple[tuple[int, Unread], ...]
# Of a place that is shown in a message.
_SHOWN = 200
# Told where a cursor of an older version is gone on from.
WITHOUT_FORM = (
    "The checkpoint is of an older version, which did not keep the shapes of columns: they are "
    "taken from the first row that comes now. Look whether they are what they were."
)


@travels()
class Notice(NamedTuple):
    """Something about a stream that a user should know, and that does not stop it.

    Attributes:
        kind: "gap" (rows are missing, or may be), "duplicate" (a parcel came again and was left
            out), "unreadable" (a line could not be read and is handed out as a bad row, or a
            file could not be read, or not to its end, and is set aside), "changed" (the source
            is not what it was; nothing is lost) or "connection" (a server was lost, or has come
            back).
        identifier: of the parcel or the place that it is about; of what is unreadable, the name of
            a file or the number of a row, which the row policy deals with.
        text: what to tell.
    """

    kind: NoticeKind
    identifier: str | int | None
    text: str


@travels()
class Parcel(NamedTuple):
    """Rows that arrive together; an iterable of them is a stream with identifiers.

    Attributes:
        values: the rows, in any form that ``wb.evidence`` takes in memory; None for a parcel that
            only brings notices.
        cursor: the place of its first row, plain JSON with an "offset"; set by the feed.
        identifier: what tells a parcel that comes twice, and from whole numbers one that is
            missing.
        notices: what the feed noticed on the way to it.
        unread: rows of it that could not be read; set by the feed.

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
        seekable: whether `read` can begin at any cursor that it has given, also later and in
            another process: a run can then be resumed exactly.
        num_rows: the number of rows, if it is known beforehand.
    """

    seekable: bool
    num_rows: int | None

    def describe(self) -> str:
        """One line on where the rows come from, and whether reading can be resumed there."""
        ...

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """Parcels from a place on; None says that nothing new has come for a moment."""
        ...


def advanced(cursor: Cursor, offset: int) -> Cursor:
    """The same place a number of rows further on."""
    return {**cursor, "offset": cursor.get("offset", 0) + offset}


def from_offset(parcel: Parcel, offset: int) -> Parcel:
    """The parcel without its first rows."""
    if not offset:
        return parcel
    if offset > (rows := num_rows(parcel.values)):
        raise DataError(
            f"Reading was to go on after row {offset} of a block that has {rows}: the source is "
            "not what it was. Restore it, or start anew."
        )
    rest = slice_rows(parcel.values, offset, None)
    unread = unread_between(parcel.unread, offset, offset + num_rows(rest))
    return parcel._replace(values=rest, cursor=advanced(parcel.cursor or {}, offset), unread=unread)


def unread_between(unread: UnreadRows, start: int, stop: int) -> UnreadRows:
    """Those of some rows, counted from the first of them."""
    return tuple((row - start, why) for row, why in unread if start <= row < stop)


def refuse_cursor(cursor: Cursor | None, what: str) -> None:
    """A feed that cannot seek says so."""
    if cursor is not None:
        raise DataError(
            f"{what} cannot be read from an earlier place on. Start anew, go on with the rows that "
            "come now (no cursor), or keep the rows in files."
        )


def bad_cursor(cursor: Cursor, what: str) -> DataError:
    """The place belongs to something else."""
    text = repr(cursor)
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return DataError(f"{text} is no place in {what}: it was saved for another feed.")
