"""Rows that can be told apart, as files have them, and what a feed makes of them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.weather import memory
from benchmarks.weather.verdict import Came, Verdict
from weighbridge.data.feeds.chunking import Chunk, Chunks, chunks
from weighbridge.data.feeds.continuity import Continuity
from weighbridge.data.feeds.opening import open_feed
from weighbridge.data.row_checking import RowChecker
from weighbridge.data.values import num_rows

Row = tuple[float, ...]
NAMES = ("a", "y")
POLICIES = ("raise", "skip", "quarantine")


def draw(luck: random.Random, number: int) -> list[Row]:
    """Rows none of which is there twice."""
    return [(luck.gauss(0.0, 1.0), luck.gauss(1.0, 1.0)) for _ in range(number)]


def csv_lines(rows: Iterable[Row]) -> str:
    """Rows without a header."""
    return "".join(",".join(map(repr, row)) + "\n" for row in rows)


def csv_text(rows: Iterable[Row]) -> str:
    """Rows as a CSV file has them."""
    return ",".join(NAMES) + "\n" + csv_lines(rows)


def json_lines(rows: Iterable[Row]) -> str:
    """Rows as JSON lines."""
    return "".join(json.dumps(dict(zip(NAMES, row))) + "\n" for row in rows)


def npz_bytes(rows: Sequence[Row]) -> bytes:
    """Rows as NumPy's archive."""
    file = io.BytesIO()
    np.savez(file, **dict(zip(NAMES, np.array(rows).T)))
    return file.getvalue()


def parquet_bytes(rows: Sequence[Row]) -> bytes:
    """Rows as a Parquet file, in groups of a hundred."""
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    table = pyarrow.table(dict(zip(NAMES, np.array(rows).T)))
    pyarrow.parquet.write_table(table, file, row_group_size=100)
    return file.getvalue()


class Reading(NamedTuple):
    """What a feed gave: the rows that count, how many did not, and what it told."""

    rows: list[Row]
    bad: int
    told: list[str]


class Reader:
    """Takes chunks as a watch does, and sets bad rows aside.

    Args:
        policy: the row policy.
        quarantine: the file for bad rows, where they are kept.
    """

    def __init__(self, policy: str, quarantine: Path | None = None) -> None:
        self.policy = policy
        self._checker = RowChecker(policy, None, quarantine if policy == "quarantine" else None)
        self.rows: list[Row] = []
        self.told: list[str] = []
        self.cursor: dict[str, Any] | None = None
        self.continuity: dict[str, Any] | None = None

    def open(self, source: Any, size: int, **options: Any) -> Chunks:
        """The chunks of a source, from where this reader stands."""
        feed = open_feed(source, on_bad_row=self.policy, **options)
        for name in ("patience", "settle"):
            if hasattr(feed, name):
                setattr(feed, name, 0.01)
        continuity = Continuity()
        if self.continuity is not None:
            continuity.restore(self.continuity)
        return chunks(feed, size, self.cursor, continuity)

    def take(self, chunk: Chunk, stream: Chunks) -> None:
        """Count the rows of a chunk, and remember the place after it."""
        self.told += [notice.text for notice in chunk.notices]
        values = self._checker(chunk.values)
        if num_rows(values):  # else all of them are bad
            columns = [column.reshape(len(column), -1) for column in values.values()]
            self.rows += [tuple(row) for row in np.concatenate(columns, axis=1).tolist()]
        self.cursor = json.loads(json.dumps(chunk.cursor))
        self.continuity = json.loads(json.dumps(stream.continuity_state))

    def found(self) -> Reading:
        """What came of it all."""
        return Reading(self.rows, self._checker.rows_left_out, self.told)


def read_still(source: Path | io.BytesIO, policy: str, folder: Path | None = None) -> Reading:
    """All rows of a source that does not grow.

    Args:
        source: a path, or a stream.
        policy: the row policy.
        folder: for the quarantine of a stream; that of a file lies beside it.
    """
    place = source.parent if isinstance(source, Path) else folder
    assert place is not None
    reader = Reader(policy, place / "quarantine.bad")
    memory.restart()
    stream = reader.open(source, 50)
    for chunk in stream:
        if chunk is not None:
            reader.take(chunk, stream)
    reader.told += [notice.text for notice in stream.take_notices()]
    return reader.found()


def judge(found: Reading, wanted: Sequence[Row], changed: int = 0) -> Verdict:
    """Whether rows were lost without a word, counted twice, or invented.

    Args:
        found: what was read.
        wanted: the rows that should count, in order.
        changed: how many others the attack itself may have made.
    """
    places = {row: place for place, row in enumerate(wanted)}
    known = [places[row] for row in found.rows if row in places]
    if len(known) != len(set(known)):
        return Verdict(Came.TWICE, f"{len(known) - len(set(known))} of {len(wanted)}")
    others = len(found.rows) - len(known)
    if others > changed:
        return Verdict(Came.DIFFERENT, f"{others} rows that were never written")
    if known != sorted(known):
        return Verdict(Came.DIFFERENT, "rows in another order")
    missing = len(wanted) - len(known)
    if missing and not found.told and not found.bad:
        return Verdict(Came.LOST, f"{missing} of {len(wanted)}")
    if found.told or found.bad:
        words = found.told[0] if found.told else f"{found.bad} bad rows"
        return Verdict(Came.NOTICE, f"{missing} rows not taken; {words}")
    return Verdict(Came.RIGHT)
