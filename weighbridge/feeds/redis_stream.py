"""A feed from a Redis stream."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from weighbridge.base import DataError, MissingDependencyError
from weighbridge.feeds.base import Cursor, Notice, Parcel, bad_cursor
from weighbridge.json_rows import RowParser, decode, identified

SCHEMES = ("redis://", "rediss://", "unix://")
LONGEST_PAUSE = 5.0


class RedisStream:
    """The entries of a Redis stream, one row each (extra ``redis``).

    An entry holds one field with a JSON object, or a field for every column, with a number or a
    JSON list in it. Reading can be resumed at any entry that is still there; entries that were
    trimmed before they were read are a gap, which is noticed. Trimmed entries are counted by the
    number of entries ever added, which Redis tells from version 7 on.

    Args:
        url: of the server, ``redis://host:port/db``; it may name the stream: ``?stream=NAME``.
        stream: the key of the stream.
        columns: the columns to read; by default all of the first entry that hold numbers.
        schema: column -> float or int.
        follow: whether to wait for more entries, and to connect again when the connection is
            lost; otherwise reading ends with the last entry.
        identifier: a field that tells rows that come twice, and missing ones; by default the ID
            of the entry.
        lenient: whether an entry that cannot be used becomes a bad row and a notice.
        batch: entries to ask for at once.

    Reference: https://redis.io/docs/latest/develop/data-types/streams/
    """

    seekable = True
    num_rows: int | None = None

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
        self.url, named = _take_stream(url)
        self.stream = stream or named
        if not self.stream:
            raise DataError(f"Name the stream: {url}?stream=NAME.")
        self.follow, self.batch = follow, batch
        self.patience = 0.2
        self._parser = RowParser(columns, schema or {}, identifier=identifier, lenient=lenient)
        self._redis, Retry, NoBackoff = _import_redis()
        self._client = self._redis.Redis.from_url(
            self.url,
            socket_timeout=10.0,
            socket_connect_timeout=5.0,
            retry=Retry(NoBackoff(), 0),  # trying again is up to us: a caller looks at the clock
        )
        self._transact(None)  # a wrong address is told now, not after a day of trying

    def describe(self) -> str:
        """One line on where the rows come from."""
        place = urlsplit(self.url)
        host = place.hostname or place.path
        port = f":{place.port}" if place.port else ""
        return f"Redis stream {self.stream} at {host}{port}{', as it grows' if self.follow else ''}"

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """One parcel for each entry, from the cursor on."""
        last, ordinal = self._start(cursor)
        pause = 0.0
        while True:
            try:
                information, entries = self._transact(last)
            except _LostError as error:
                if not self.follow:
                    raise DataError(f"{error} Start the server and resume.") from error
                pause = min(max(2 * pause, self.patience), LONGEST_PAUSE)
                # In steps, so that whoever reads can look at the clock in between.
                for _ in range(round(pause / self.patience)):
                    time.sleep(self.patience)
                    yield None
                continue
            pause = 0.0
            ordinal, notices = self._look_for_gap(last, ordinal, information)
            if notices:
                yield Parcel(None, notices=notices)
            for entry_id, fields in entries:
                ordinal += 1
                last = entry_id.decode()
                yield self._parcel(last, ordinal, fields)
            if not entries and not self.follow:
                return
            if not entries:
                self._wait(last)
                yield None

    def _start(self, cursor: Cursor | None) -> tuple[str, int]:
        """The last entry that was read, and how many had been added with it."""
        if cursor is None:
            return "0-0", -1
        try:
            entry_id, ordinal = str(cursor["id"]), int(cursor["ordinal"])
            read = int(cursor["offset"])
        except (KeyError, TypeError, ValueError):
            raise bad_cursor(cursor, self.describe()) from None
        return (entry_id, ordinal) if read else (_before(entry_id), ordinal - 1)

    def _look_for_gap(
        self, last: str, ordinal: int, information: Mapping[str, Any] | None
    ) -> tuple[int, tuple[Notice, ...]]:
        """Count the entries that were trimmed or deleted between the last one and the first."""
        if information is None:  # there is no such stream (yet)
            return max(ordinal, 0), ()
        length, first = int(information["length"]), information["first-entry"]
        added = information.get("entries-added")
        if ordinal < 0:
            return (length if added is None else int(added)) - length, ()
        if first is not None and _order(first[0].decode()) <= _order(last):
            return ordinal, ()
        if added is None:
            return ordinal, ()
        if int(added) < ordinal:
            text = f"Stream {self.stream} was made anew after entry {last}: what it held is lost."
            return int(added) - length, (Notice("gap", last, text),)
        lost = int(added) - length - ordinal
        if not lost:
            return ordinal, ()
        verb = "entries after it were" if lost > 1 else "entry after it was"
        text = f"Stream {self.stream} was trimmed beyond {last}: {lost} {verb} never read."
        return ordinal + lost, (Notice("gap", last, text),)

    def _parcel(self, entry_id: str, ordinal: int, fields: Mapping[bytes, bytes]) -> Parcel:
        row, field = _row_of(fields), self._parser.identifier
        if field is not None:
            row = identified(row, field)
        if not self._parser.kept:
            if isinstance(row, str):
                raise DataError(f"The columns are told by entry {entry_id}, but {row}.")
            self._parser.learn(row)
        (run,) = self._parser.runs([row], [f"Entry {entry_id}"])
        notices: tuple[Notice, ...] = ()
        if run.reason is not None:
            notices = (Notice("unreadable", entry_id, run.reason),)
        identifier = row[field] if field is not None and isinstance(row, dict) else entry_id
        cursor = {"id": entry_id, "ordinal": ordinal, "offset": 0}
        return Parcel(run.values, cursor, identifier, notices)

    def _transact(self, last: str | None) -> tuple[dict[str, Any] | None, list[Any]]:
        """The state of the stream and the entries after the last, both of one moment."""
        redis = self._redis
        try:
            pipeline = self._client.pipeline(transaction=True)
            pipeline.xinfo_stream(self.stream)
            if last is not None:
                pipeline.xrange(self.stream, min=f"({last}", count=self.batch)
            information, *answers = pipeline.execute(raise_on_error=False)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise _LostError(f"The connection to {self.describe()} failed: {error}.") from error
        for answer in answers:
            if isinstance(answer, Exception):
                raise DataError(f"{self.describe()} cannot be read: {answer}.") from answer
        if isinstance(information, redis.ResponseError):
            if "no such key" in str(information):
                return None, []
            raise DataError(f"{self.describe()} cannot be read: {information}.") from information
        return information, answers[0] if answers else []

    def _wait(self, last: str) -> None:
        """Return when an entry comes, or after a while."""
        redis = self._redis
        try:
            milliseconds = max(1, round(1000 * self.patience))
            self._client.xread({self.stream: last}, count=1, block=milliseconds)
        except (redis.ConnectionError, redis.TimeoutError):
            return  # the next transaction tells


class _LostError(DataError):
    """The server does not answer."""


def _import_redis() -> tuple[Any, Any, Any]:
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise MissingDependencyError(
            "Reading a Redis stream needs redis, which cannot be imported. "
            'Install it with: pip install "weighbridge[redis]"'
        ) from error
    return redis, Retry, NoBackoff


def _take_stream(url: str) -> tuple[str, str | None]:
    """The URL without its ``stream``, which redis-py does not know, and the stream."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    stream = query.pop("stream", None)
    return urlunsplit(parts._replace(query=urlencode(query))), stream


def _order(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number or 0)


def _before(entry_id: str) -> str:
    """The greatest ID below this one."""
    milliseconds, number = _order(entry_id)
    return f"{milliseconds}-{number - 1}" if number else f"{milliseconds - 1}-{2**64 - 1}"


def _row_of(fields: Mapping[bytes, bytes]) -> dict[str, Any] | str:
    """An entry as an object, or what is wrong with it."""
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
        return float(text)  # such as "nan" and ".5", which JSON does not know
    return text.decode("utf-8", "replace")
