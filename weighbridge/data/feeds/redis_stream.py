"""A feed from a Redis stream."""

from __future__ import annotations

import contextlib
import copy
import json
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.base import WITHOUT_FORM, Cursor, Notice, Parcel, bad_cursor
from weighbridge.data.feeds.redis_marks import Mark, Marks, digest, marks_of
from weighbridge.data.feeds.redis_server import LostError, Server, Snapshot, order_of
from weighbridge.data.sources.json_rows import RowParser, decode, identified
from weighbridge.data.sources.requested_columns import Request
from weighbridge.data.sources.row_form import ColumnForm, form_from, saved_form
from weighbridge.data.values import Values

LONGEST_PAUSE = 5.0


class RedisStream:
    """The entries of a Redis stream, one row each (extra ``redis``).

    An entry holds one field with a JSON object, or one field per column, with a number or a JSON
    list. Reading can be resumed at any entry that still exists. Entries that were trimmed before
    they were read are a gap, with a notice. They are counted by the number of entries ever added,
    which Redis reports from version 7 on. A stream that was deleted and created again is read from
    its first entry; a stream of a server that was restored from an older copy is not read twice.
    Both give a notice. Columns and shapes stay those of the first entry ever read, which a cursor
    holds.

    With `follow`, a lost connection or a refused password gives a notice; the feed tries again
    after growing pauses, and reading continues where it was.

    Args:
        url: URL of the server, ``redis://user:password@host:port/db``; it may name the stream:
            ``?stream=NAME``. The password is not shown, and not saved in a checkpoint.
        stream: the key of the stream.
        columns: the columns to read; by default all columns of the first entry that hold numbers.
        schema: column -> float or int.
        follow: whether to wait for more entries, and to connect again when the connection is
            lost; otherwise reading ends with the last entry.
        identifier: a field that identifies duplicate and missing rows; by default the ID of the
            entry.
        lenient: whether an entry that cannot be used becomes a bad row, with a notice.
        batch: number of entries per request.

    Reference: https://redis.io/docs/latest/develop/data-types/streams/
    """

    seekable = True
    num_rows: int | None = None
    # The state of a reading: the last entry, the number of entries added up to it, streams before.
    _last: str
    _ordinal: int
    _generation: int
    _marks: Marks
    _went_back: bool
    _without_form: bool

    def __init__(
        self,
        url: str,
        stream: str | None = None,
        columns: list[str] | None = None,
        schema: Mapping[str, type] | None = None,
        *,
        follow: bool = False,
        identifier: str | None = None,
        lenient: bool = False,
        batch: int = 1000,
    ) -> None:
        self._server = Server(url, stream, batch)
        self.stream = self._server.stream
        self.follow = follow
        self.patience = 0.2
        self._parser = RowParser(Request(columns, dict(schema or {}), lenient), identifier)
        self._start(None)
        self._server.look(None)  # a wrong address is reported now, not after many retries

    def describe(self) -> str:
        """One line about the source of the rows."""
        return f"{self._server}{', as it grows' if self.follow else ''}"

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """One parcel for each entry, from the cursor on."""
        # Each reading has its own state: there may be several.
        reading = copy.copy(self)
        reading._parser = self._parser.fresh()
        yield from reading._read_from(cursor)

    def no_rows(self, cursor: Cursor) -> Values | None:
        """The columns from a place on, without rows; None if the place does not hold them."""
        form, parser = self._form(cursor), self._parser.fresh()
        if form is None:
            return None
        parser.restore(form)
        return parser.no_rows()

    def _form(self, cursor: Cursor) -> list[ColumnForm] | None:
        try:
            return form_from(cursor["form"]) if "form" in cursor else None
        except ValueError:
            raise bad_cursor(cursor, self.describe()) from None

    def _read_from(self, cursor: Cursor | None) -> Iterator[Parcel | None]:
        self._start(cursor)
        if cursor is not None:
            form = self._form(cursor)
            if form is not None:
                self._parser.restore(form)
            else:
                self._without_form = True
                yield self._notice("changed", WITHOUT_FORM)
        while True:
            found, notice = yield from self._look()
            if notice is not None:
                yield Parcel(None, notices=(notice,))
                continue  # the next entries depend on the new start
            for entry_id, fields in found.entries:
                self._last, self._ordinal = entry_id.decode(), self._ordinal + 1
                self._marks.add(Mark(self._ordinal, self._last, digest(fields)))
                yield self._parcel(self._last, fields)
            if not found.entries and not self.follow:
                return
            if not found.entries:
                self._server.wait(self._last, self.patience)
                yield None

    def _look(self) -> Generator[Parcel | None, None, tuple[Snapshot, Notice | None]]:
        """The stream as it is now, and a notice if it has changed.

        While there is no connection, notices are given and the feed waits.
        """
        told, began, pause = "", time.monotonic(), 0.0
        while True:
            try:
                found = self._server.look(self._last)
                notice = self._settle(found)  # may query the server again
            except LostError as error:
                if not self.follow:
                    raise DataError(f"{error} {error.remedy}") from error
                if error.kind != told:
                    told = error.kind
                    text = f"{error} It is tried again, and reading goes on there. {error.remedy}"
                    yield self._notice("connection", text)
                pause = min(max(2 * pause, self.patience), LONGEST_PAUSE)
                # In small steps, so that the caller can check the time in between.
                for _ in range(round(pause / self.patience)):
                    time.sleep(self.patience)
                    yield None
                continue
            if told:
                seconds = time.monotonic() - began
                text = f"{self._server} is back after {seconds:.0f} s; reading goes on after entry"
                yield self._notice("connection", f"{text} {self._last}.")
            return found, notice

    def _start(self, cursor: Cursor | None) -> None:
        """Go to the last entry that was read, and the number of entries added up to it."""
        self._last, self._ordinal, self._generation, self._marks = "0-0", -1, 0, Marks()
        self._went_back = self._without_form = False
        if cursor is None:
            return
        try:
            self._last, self._ordinal = str(cursor["id"]), int(cursor["ordinal"])
            order_of(self._last)
            self._generation = int(cursor.get("generation", 0))
            marks = marks_of(cursor.get("marks", []))
            read = int(cursor["offset"])
        except (KeyError, TypeError, ValueError):
            raise bad_cursor(cursor, self.describe()) from None
        self._marks = marks
        if not read:
            self._marks = Marks(mark for mark in marks.found() if mark.entry_id != self._last)
            self._last, self._ordinal = _before(self._last), self._ordinal - 1

    # --- is it still the same stream? ------------------------------------------------------------

    def _settle(self, found: Snapshot) -> Notice | None:
        """Look for entries that were lost since the last look, and for a new stream."""
        if self._ordinal < 0:
            self._ordinal = found.removed
            return None
        newest = self._marks.newest()
        knows_last = newest is not None and newest.entry_id == self._last
        if newest is not None:
            self._went_back = False
        is_there = newest is not None and knows_last and found.last_digest == newest.digest
        if not found.exists or is_there or self._went_back:
            return None
        if self._is_other(found, knows_last):
            return self._begin_anew(found)
        lost = 0
        if found.added is not None and found.all_after(self._last):
            lost = found.removed - self._ordinal
        if lost <= 0:
            return None
        self._ordinal += lost
        verb = "entries after it were" if lost > 1 else "entry after it was"
        text = f"Stream {self.stream} was trimmed beyond {self._last}: {lost} {verb} never read."
        return Notice("gap", self._last, text)

    def _is_other(self, found: Snapshot, knows_last: bool) -> bool:
        """Whether this cannot be the stream that was read, in its state then."""
        if order_of(found.generated) < order_of(self._last):
            return True
        if knows_last and found.last_digest is not None:  # the same ID with other contents
            return True
        if found.added is None:
            return False
        if found.all_after(self._last):  # all entries that were read have been removed
            return found.removed < self._ordinal
        never_held = knows_last and order_of(found.deleted) < order_of(self._last)
        return never_held or found.added < self._ordinal

    def _begin_anew(self, found: Snapshot) -> Notice:
        last = self._last
        if any(self._server.holds(mark) for mark in reversed(self._marks.found())):
            # Its entries up to there were read: reading them again would count rows twice.
            behind = order_of(found.generated) <= order_of(last)
            self._ordinal = found.added if behind and found.added is not None else found.removed
            self._marks, self._went_back = Marks(), True
            text = (
                f"Stream {self.stream} has gone back to an older state: entries up to {last} were "
                f"read, and not all of them are there. Reading goes on after {last}; entries that "
                "are added below that are not read."
            )
            return Notice("gap", last, text)
        self._last, self._ordinal, self._marks = "0-0", found.removed, Marks()
        self._generation += 1
        text = (
            f"Stream {self.stream} was made anew after entry {last}: what the old one still held "
            "is lost. The new one is read from its first entry."
        )
        return Notice("gap", last, text)

    def _notice(self, kind: Any, text: str) -> Parcel:
        return Parcel(None, notices=(Notice(kind, self._last, text),))

    def _parcel(self, entry_id: str, fields: Mapping[bytes, bytes]) -> Parcel:
        row, field = _row_of(fields), self._parser.identifier
        if field is not None:
            row = identified(row, field)
        if not self._parser.kept:
            self._learn(entry_id, row)
        (run,) = self._parser.runs([row], [f"Entry {entry_id}"])
        notices: tuple[Notice, ...] = ()
        if run.reason is not None:
            notices = (Notice("unreadable", self._ordinal, run.reason),)
        identifier = row[field] if field is not None and isinstance(row, dict) else entry_id
        if field is None and self._generation:  # IDs may repeat in a new stream
            identifier = f"{entry_id} ({self._generation})"
        cursor = {
            "id": entry_id,
            "ordinal": self._ordinal,
            "generation": self._generation,
            "marks": [list(mark) for mark in self._marks.found()],
            "form": saved_form(self._parser.form),
            "offset": 0,
        }
        return Parcel(run.values, cursor, identifier, notices)

    def _learn(self, entry_id: str, row: dict[str, Any] | str) -> None:
        """Take the columns from the first entry, which must be valid."""
        try:
            if isinstance(row, str):
                raise DataError(f"The columns are told by entry {entry_id}, but {row}.")
            self._parser.learn(row)
        except DataError as error:
            if not self._without_form:
                raise
            raise DataError(f"{error} {WITHOUT_FORM}") from error


def _before(entry_id: str) -> str:
    """The greatest ID below this one."""
    milliseconds, number = order_of(entry_id)
    return f"{milliseconds}-{number - 1}" if number else f"{milliseconds - 1}-{2**64 - 1}"


def _row_of(fields: Mapping[bytes, bytes]) -> dict[str, Any] | str:
    """An entry as an object, or an error text."""
    if len(fields) == 1:
        (text,) = fields.values()
        if text.lstrip()[:1] == b"{":
            return decode(text)
    return {name.decode("utf-8", "replace"): _value(text) for name, text in fields.items()}


def _value(text: bytes) -> Any:
    """A number or a JSON list; text if it is neither."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    with contextlib.suppress(ValueError):
        return float(text)  # such as "nan" and ".5", which are not JSON
    return text.decode("utf-8", "replace")
