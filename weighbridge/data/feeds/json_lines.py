"""A feed of a JSON-lines file, which may grow."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator
from pathlib import Path

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.base import (
    WITHOUT_FORM,
    Cursor,
    Notice,
    Parcel,
    UnreadRows,
    bad_cursor,
)
from weighbridge.data.feeds.file_identity import FileMark, mark_of, reason_of
from weighbridge.data.feeds.growing_file import RewrittenError
from weighbridge.data.feeds.rotated_log import LinePlace, RotatedLog, place_of
from weighbridge.data.quarantine import Unread
from weighbridge.data.sources.json_rows import RowParser, decode, identified
from weighbridge.data.sources.line_blocks import Line, LineBlock, Readable, first_line, line_blocks
from weighbridge.data.sources.requested_columns import ALL_COLUMNS, Request
from weighbridge.data.sources.row_form import saved_form
from weighbridge.data.values import Values, num_rows


class JsonLinesFeed:
    """A file with one JSON object per line, like ``{"x": [0.5, 1.0], "y": 2}``; see ``RowParser``.

    With `follow` the file may be a log that is rotated. A file that was renamed (``log`` to
    ``log.1``) is read to its end, including a last line without a line end, and then the new file
    at the path. This also works if the rotation happened between two runs and the old file is in
    the same folder. A file that was truncated or written again in its place is read from its
    beginning, after the rest of the old lines if a copy of them is in the same folder. If rows may
    be missing, there is a notice. Columns and shapes stay those of the first line ever read, which
    a cursor holds.

    Args:
        path: the file.
        request: the columns to read; by default all columns of the first line that hold numbers.
            If it is lenient, a line that cannot be used becomes a bad row, which the row policy
            handles, with a notice; otherwise it is a DataError. The first line must be valid.
        follow: whether to wait for more lines; a line without a line end is held back.
        identifier: a field that identifies duplicate and missing rows.
        patience: seconds to wait before None is returned.
    """

    seekable = True
    num_rows: int | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        request: Request = ALL_COLUMNS,
        *,
        follow: bool = False,
        identifier: str | None = None,
        patience: float = 0.2,
    ) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise DataError(f"There is no file {str(path)!r}. Check the path.")
        self.follow, self.patience = follow, patience
        self._parser = RowParser(request, identifier)

    def describe(self) -> str:
        """One line about the source of the rows."""
        return f"{self.path}{', as it grows' if self.follow else ''}"

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """Blocks of lines, from the cursor on; single rows if they have identifiers."""
        # Each reading has its own parser: there may be several.
        reading = copy.copy(self)
        reading._parser = self._parser.fresh()
        yield from reading._read_from(cursor)

    def no_rows(self, cursor: Cursor) -> Values | None:
        """The columns from a place on, without rows; None if the place does not hold them."""
        parser = self._parser.fresh()
        place = self._place(cursor)
        if place is None or place.form is None:
            return None
        parser.restore(place.form)
        return parser.no_rows()

    def _place(self, cursor: Cursor | None) -> LinePlace | None:
        place = None if cursor is None else place_of(cursor)
        if cursor is not None and place is None:
            raise bad_cursor(cursor, self.describe())
        return place

    def _read_from(self, cursor: Cursor | None) -> Iterator[Parcel | None]:
        place = self._place(cursor)
        try:
            if place is not None and place.form is not None:
                self._parser.restore(place.form)
            elif place is not None:
                self._parser.columns = self._parser.columns or place.columns
                if self.follow:
                    yield Parcel(None, notices=(Notice("changed", None, WITHOUT_FORM),))
            yield from self._follow(place) if self.follow else self._read_still(place)
        except (DataError, OSError) as error:
            what = reason_of(error) if isinstance(error, OSError) else error
            raise DataError(f"In {self.path}: {what}") from error

    def _read_still(self, place: LinePlace | None) -> Iterator[Parcel | None]:
        """The lines that are in the file now."""
        with open(self.path, "rb") as file:
            mark = None if place is None else place.mark
            if mark is not None and not mark.holds_for(file.fileno()):
                raise DataError(
                    f"The file does not begin with the {mark.size} bytes that were read: it has "
                    "changed. Restore it, or start again."
                )
            first = first_line(file)
            if first is None:
                raise DataError("There are no lines. Write one JSON object on each.")
            if not self._parser.kept:
                self._parser.learn(first)
            for found in _blocks(file, file.fileno(), place):
                if found is not None:
                    yield from self._parcels(*found)

    def _follow(self, place: LinePlace | None) -> Iterator[Parcel | None]:
        """The lines of a log and of its successors at the same path."""
        with RotatedLog(self.path, self.patience) as log:
            log.open(place)
            while True:
                if notices := log.take_notices():
                    yield Parcel(None, notices=notices)
                try:
                    try:
                        yield from self._follow_one(log)
                        log.open_next()
                    except RewrittenError:
                        log.open_again()
                except FileNotFoundError:  # renamed, and the new file does not exist yet
                    time.sleep(self.patience)
                    yield None

    def _follow_one(self, log: RotatedLog) -> Iterator[Parcel | None]:
        """The lines of the log's current file, until another file replaces it."""
        file = log.current.file
        for found in _blocks(log.current, file, log.place):
            if found is None:
                yield None
                if notices := log.late_lines():
                    yield Parcel(None, notices=notices)
                continue
            block, _, mark = found
            if not self._parser.kept:
                self._learn(file, [] if log.place is None else block.lines)
            yield from self._parcels(*found)
            read = block.offset + len(block.lines)
            log.place = LinePlace(block.byte, block.line, read, mark)

    def _learn(self, file: int, others: list[Line]) -> None:
        """Take the columns from the first line; for an old cursor from any usable line."""
        with open(os.dup(file), "rb") as opened:
            first = first_line(opened)
        problem: DataError | None = None
        for line in [*([] if first is None else [first]), *others]:
            try:
                self._parser.learn(line)
            except DataError as error:
                problem = problem or error
            else:
                return
        if problem is not None:
            raise problem

    def _parcels(self, block: LineBlock, lines: list[Line], mark: FileMark) -> Iterator[Parcel]:
        """The last `lines` of a block, with the other entries of a cursor."""
        more = {"mark": list(mark), "form": saved_form(self._parser.form)}
        place = {"byte": block.byte, "line": block.line}
        offset = block.offset + len(block.lines) - len(lines)
        for parcel in parcels_of(self._parser, lines, place, offset, self.path.name):
            yield parcel._replace(cursor={**(parcel.cursor or {}), **more})


_Found = tuple[LineBlock, list[Line], FileMark]


def _blocks(file: Readable, descriptor: int, place: LinePlace | None) -> Iterator[_Found | None]:
    """Blocks of a file from a place on: each with its lines after the place, and a mark."""
    skip = 0 if place is None else place.offset
    position = None if place is None else {"byte": place.byte, "line": place.line}
    for block in line_blocks(file, position):
        if block is None:
            yield None
            continue
        lines = block.lines[skip:]
        skip = max(0, skip - len(block.lines))
        if lines:
            end = lines[-1].byte + len(lines[-1].text)
            yield block, lines, mark_of(descriptor, end)


def parcels_of(
    parser: RowParser, lines: list[Line], place: Cursor, offset: int, file: str = ""
) -> Iterator[Parcel]:
    """Lines as parcels: runs of good rows, single bad rows; single rows if they have identifiers.

    Args:
        parser: the parser with the columns.
        lines: the lines.
        place: place of their block.
        offset: number of the first line in that block.
        file: its name, if there is one.
    """
    rows = [decode(line.text) for line in lines]
    field = parser.identifier
    if field is not None:
        rows = [identified(row, field) for row in rows]
    for run in parser.runs(rows, [f"Line {line.number}" for line in lines]):
        notices: tuple[Notice, ...] = ()
        unread: UnreadRows = ()
        if run.reason is not None:
            bad = lines[run.start]
            notices = (Notice("unreadable", bad.number, run.reason),)
            text = bad.text.decode("utf-8", "replace").rstrip("\r\n")
            unread = ((0, Unread(run.reason, text, bad.number, file)),)
        if field is None:
            cursor = {**place, "offset": offset + run.start}
            yield Parcel(run.values, cursor, None, notices, unread)
            continue
        for k in range(num_rows(run.values)):
            line, row = lines[run.start + k], rows[run.start + k]
            values = {name: column[k : k + 1] for name, column in run.values.items()}
            cursor = {"byte": line.byte, "line": line.number, "offset": 0}
            identifier = row[field] if isinstance(row, dict) else None
            yield Parcel(values, cursor, identifier, notices, unread)
