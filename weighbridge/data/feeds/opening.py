"""Open a feed for any kind of data."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax import tree_util

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.base import Feed, Parcel
from weighbridge.data.feeds.directory import DirectoryFeed
from weighbridge.data.feeds.files import FilesFeed, parcels_of_source
from weighbridge.data.feeds.iterables import IterableFeed
from weighbridge.data.feeds.json_lines import JsonLinesFeed
from weighbridge.data.feeds.memory import MemoryFeed
from weighbridge.data.feeds.redis_server import SCHEMES
from weighbridge.data.feeds.redis_stream import RedisStream
from weighbridge.data.feeds.streams import StreamFeed
from weighbridge.data.row_checking import RowPolicy
from weighbridge.data.sources.files import expand
from weighbridge.data.sources.requested_columns import Request, check_request, select
from weighbridge.data.sources.source import Source
from weighbridge.data.values import is_table, take_columns


def open_feed(
    data: Any,
    *,
    follow: bool = False,
    columns: Sequence[str] | None = None,
    schema: Mapping[str, type] | None = None,
    identifier: str | None = None,
    on_bad_row: RowPolicy = "raise",
) -> Feed:
    """Open a stream of rows with a cursor.

    Args:
        data: an array or a table; a path, a glob or a list of paths to .csv, .parquet, .npz or
            .jsonl files; a directory of such files; "-" (CSV or JSON lines on standard input) or
            a binary stream of either; the URL of a Redis stream,
            ``redis://host:port/db?stream=NAME``; or an iterable of chunks or of ``wb.Parcel``.
        follow: whether to wait for more rows: for a directory, a .jsonl file and a Redis stream.
        columns: the columns to read; by default all numeric columns.
        schema: column -> float or int, for types that should not be inferred.
        identifier: for JSON lines and Redis: a field that identifies rows that come twice.
        on_bad_row: the row policy. With "raise", a line that is not a row is a DataError. Otherwise
            it is returned as a row of NaN, with a notice, and a file that cannot be read is skipped
            with a notice.

    Returns:
        A feed; its `seekable` and `describe()` show whether a run on it can be resumed exactly.

    >>> feed = open_feed({"y": [1.0, 2.0, 3.0]})
    >>> feed.seekable, feed.num_rows, feed.describe()
    (True, 3, '3 rows in memory')
    >>> open_feed(iter([[1.0], [2.0]])).seekable
    False
    """
    request = check_request(columns, schema, lenient=on_bad_row != "raise")
    if isinstance(data, Feed):
        return data
    if isinstance(data, str) and data.startswith(SCHEMES):
        return RedisStream(
            data,
            None,
            request.columns,
            request.schema,
            follow=follow,
            identifier=identifier,
            lenient=request.lenient,
        )
    if isinstance(data, str) and data == "-":
        data = sys.stdin
    if hasattr(data, "readline"):
        return StreamFeed(data, request, identifier=identifier)
    if isinstance(data, str | os.PathLike):
        path = Path(data)
        if path.is_dir():
            _refuse_identifier(identifier, "files")
            return DirectoryFeed(path, request, follow=follow)
        if path.suffix.lower() == ".jsonl" and path.is_file():
            return JsonLinesFeed(path, request, follow=follow, identifier=identifier)
    _refuse_identifier(identifier, "these data")
    feed = _open_still(data, request)
    if follow and feed.seekable:
        raise DataError(
            f"There is nothing to follow in {feed.describe()}. Give a directory, a .jsonl file, a "
            "stream or a Redis stream, or leave follow out."
        )
    return feed


def _open_still(data: Any, request: Request) -> Feed:
    """A feed for data that are complete, or that bring their rows themselves."""
    if isinstance(data, str | os.PathLike):
        return FilesFeed(expand(data), request)
    if isinstance(data, list | tuple) and data and not isinstance(data, Parcel):
        if all(isinstance(item, str | os.PathLike) for item in data):
            paths = [path for item in data for path in expand(item)]
            return FilesFeed(paths, request)
        parcels = any(isinstance(item, Parcel) for item in data)
        if parcels or (type(data) is list and all(map(is_table, data))):
            return IterableFeed(data, request)
    if isinstance(data, Source):
        if request.named:
            raise DataError("data is already a Source. Give columns and schema when opening it.")
        return _open_source_feed(data)
    is_container = is_table(data) or not tree_util.all_leaves([data])
    if isinstance(data, Iterable) and not is_container and not hasattr(data, "__array__"):
        return IterableFeed(data, request)
    taken, left_out = take_columns(data)
    return MemoryFeed(select(taken, request, 0, left_out), left_out)


class _Blocks:
    """The blocks of a source that can be opened again."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __iter__(self) -> Any:
        return parcels_of_source(self._source)


def _open_source_feed(source: Source) -> Feed:
    blocks = _Blocks(source)
    return IterableFeed(blocks if source.reopenable else iter(blocks), name="source")


def _refuse_identifier(identifier: str | None, what: str) -> None:
    if identifier is not None:
        raise DataError(
            f"identifier names a field of JSON lines or of a Redis stream, and {what} have none. "
            "Leave it out, or give wb.Parcel(values, identifier=...)."
        )
