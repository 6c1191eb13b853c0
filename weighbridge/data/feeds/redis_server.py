"""Requests to a Redis server about one stream; errors do not contain its password."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from weighbridge.core.addresses import without_secrets
from weighbridge.core.errors import DataError, MissingDependencyError
from weighbridge.data.feeds.redis_marks import Mark, digest

SCHEMES = ("redis://", "rediss://", "unix://")
LOST, REFUSED = "lost", "refused"
_REMEDIES = {
    LOST: "See that the server runs and can be reached.",
    REFUSED: "If user or password were changed, start again with the new ones: it goes on there.",
}


class LostError(DataError):
    """The server does not answer, or refuses access."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind, self.remedy = kind, _REMEDIES[kind]


class Snapshot(NamedTuple):
    """The state of a stream at one moment.

    Attributes:
        exists: whether the stream exists.
        length: number of entries that it holds.
        added: number of entries ever added; None if the server does not report it.
        first: ID of its first entry; None if it is empty.
        generated: the greatest ID that it ever had.
        deleted: the greatest ID that was deleted, not trimmed.
        last_digest: digest of the entry that was read last; None if it is missing.
        entries: the entries after it.
    """

    exists: bool
    length: int = 0
    added: int | None = None
    first: str | None = None
    generated: str = "0-0"
    deleted: str = "0-0"
    last_digest: str | None = None
    entries: Sequence[Any] = ()

    @property
    def removed(self) -> int:
        """Number of trimmed or deleted entries; 0 if the server does not report it."""
        return 0 if self.added is None else self.added - self.length

    def all_after(self, entry_id: str) -> bool:
        """Whether all its entries came after a given entry."""
        return self.first is None or order_of(self.first) > order_of(entry_id)


class Server:
    """A stream on a server.

    Args:
        url: URL of the server; it may name the stream.
        stream: the key of the stream.
        batch: number of entries per request.
    """

    def __init__(self, url: str, stream: str | None, batch: int) -> None:
        self._redis, Retry, NoBackoff = _import_redis()
        self._batch = batch
        try:
            address, named = _take_stream(url)
            self._client = self._redis.Redis.from_url(
                address,
                socket_timeout=10.0,
                socket_connect_timeout=5.0,
                retry=Retry(NoBackoff(), 0),  # no retries here: callers retry with a time limit
            )
            self._client.connection_pool.make_connection()  # also finds unknown parameters
        except (ValueError, TypeError, AttributeError):
            # Not chained to that error: it may quote the password.
            raise DataError(
                f"{without_secrets(url)} is no address of a Redis server. Write redis://user:"
                "password@host:port/db?stream=NAME, with %2F for / in the password, %40 for @, "
                "%3A for :, %23 for # and %3F for ?, and no other parameters than redis-py knows."
            ) from None
        if not (stream or named):
            raise DataError(f"Name the stream: {without_secrets(url)}?stream=NAME.")
        self.stream = str(stream or named)

    def __str__(self) -> str:
        place = self._client.connection_pool.connection_kwargs
        where = place.get("path") or f"{place.get('host', 'localhost')}:{place.get('port', 6379)}"
        return f"Redis stream {self.stream} at {where}"

    def look(self, last: str | None) -> Snapshot:
        """The stream and the entries after the last, both at the same moment."""
        redis = self._redis
        try:
            pipeline = self._client.pipeline(transaction=True)
            pipeline.xinfo_stream(self.stream)
            if last is not None:
                pipeline.xrange(self.stream, min=last, max=last, count=1)
                pipeline.xrange(self.stream, min=f"({last}", count=self._batch)
            information, *answers = pipeline.execute(raise_on_error=False)
        except redis.RedisError as error:
            raise self._failed(error) from error
        for answer in answers:
            if isinstance(answer, Exception):
                raise self._failed(answer) from answer
        if isinstance(information, Exception):
            if "no such key" in str(information):
                return Snapshot(False)
            raise self._failed(information) from information
        added, first = information.get("entries-added"), information["first-entry"]
        at_last, entries = answers or ([], [])
        return Snapshot(
            True,
            int(information["length"]),
            None if added is None else int(added),
            None if first is None else first[0].decode(),
            information["last-generated-id"].decode(),
            information.get("max-deleted-entry-id", b"0-0").decode(),
            digest(at_last[0][1]) if at_last else None,
            entries,
        )

    def holds(self, mark: Mark) -> bool:
        """Whether an entry that was read is still there, unchanged."""
        try:
            found = self._client.xrange(self.stream, mark.entry_id, mark.entry_id, 1)
        except self._redis.RedisError as error:
            raise self._failed(error) from error
        return bool(found) and digest(found[0][1]) == mark.digest

    def wait(self, last: str, seconds: float) -> None:
        """Return when an entry comes, or after a while."""
        try:
            self._client.xread({self.stream: last}, count=1, block=max(1, round(1000 * seconds)))
        except self._redis.RedisError:
            return  # the next look tells

    def _failed(self, error: Any) -> DataError:
        redis = self._redis
        refused = (redis.AuthenticationError, redis.exceptions.NoPermissionError)
        if isinstance(error, (*refused, redis.exceptions.AuthorizationError)):
            return LostError(REFUSED, f"{self} does not let us in: {error}.")
        if isinstance(error, redis.ConnectionError | redis.TimeoutError):
            return LostError(LOST, f"The connection to {self} failed: {error}.")
        return DataError(f"{self} cannot be read: {error}. Check the key and the server.")


def order_of(entry_id: str) -> tuple[int, int]:
    """The order of an ID, as numbers."""
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number or 0)


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
    """The URL without its ``stream``, which redis-py does not accept, and the stream."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    stream = query.pop("stream", None)
    rest = urlunsplit(parts._replace(scheme="", netloc="", query=urlencode(query)))
    # urlunsplit alone would drop the // of an address without a host (unix:///path).
    return f"{parts.scheme}://{parts.netloc}{rest}", stream
