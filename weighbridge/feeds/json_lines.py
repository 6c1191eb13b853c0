"""A feed of a file of JSON lines, which may grow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from weighbridge.base import DataError
from weighbridge.data import num_rows
from weighbridge.feeds.base import Cursor, Notice, Parcel, UnreadRows, bad_cursor
from weighbridge.json_rows import RowParser, decode, identified
from weighbridge.line_blocks import Line, first_line, line_blocks
from weighbridge.quarantine import Unread


class JsonLinesFeed:
    """A file of one JSON object a line, such as ``{"x": [0.5, 1.0], "y": 2}``; see ``RowParser``.

    Args:
        path: the file.
        columns: the columns to read; by default all of the first line that hold numbers.
        schema: column -> float or int.
        follow: whether to wait for more lines; one without its end waits to be completed.
        identifier: a field that tells rows that come twice, and missing ones.
        lenient: whether a line that cannot be used becomes a bad row, which the row policy deals
            with, and a notice; otherwise a DataError names it. The first must be good.
        patience: seconds to wait before telling that nothing new has come.
    """

    seekable = True
    num_rows: int | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: list[str] | None = None,
        schema: Mapping[str, type] | None = None,
        *,
        follow: bool = False,
        identifier: str | None = None,
        lenient: bool = False,
        patience: float = 0.2,
    ) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise DataError(f"There is no file {str(path)!r}. Check the path.")
        self.follow, self.patience = follow, patience
        self._parser = RowParser(columns, schema or {}, identifier=identifier, lenient=lenient)

    def describe(self) -> str:
        """One line on where the rows come from."""
        return f"{self.path}{', as it grows' if self.follow else ''}"

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """Blocks of lines, from the cursor on; single rows if they have identifiers."""
        if cursor is not None and not {"byte", "line", "offset"} <= set(cursor):
            raise bad_cursor(cursor, self.describe())
        skip = 0 if cursor is None else int(cursor["offset"])
        try:
            with open(self.path, "rb") as file:
                yield from self._wait_for_columns(file)
                blocks = line_blocks(file, cursor, follow=self.follow, patience=self.patience)
                for block in blocks:
                    if block is None:
                        yield None
                        continue
                    lines, place = block.lines[skip:], {"byte": block.byte, "line": block.line}
                    if lines:
                        yield from parcels_of(
                            self._parser, lines, place, block.offset + skip, self.path.name
                        )
                    skip = max(0, skip - len(block.lines))
        except DataError as error:
            raise DataError(f"In {self.path}: {error}") from error

    def _wait_for_columns(self, file: BinaryIO) -> Iterator[None]:
        while not self._parser.kept:
            first = first_line(file)
            if first is not None and (first.text.endswith(b"\n") or not self.follow):
                self._parser.learn(first)
            elif self.follow:
                time.sleep(self.patience)
                yield None
            else:
                raise DataError("There are no lines. Write one JSON object on each.")


def parcels_of(
    parser: RowParser, lines: list[Line], place: Cursor, offset: int, file: str = ""
) -> Iterator[Parcel]:
    """Lines as parcels: runs of good rows, bad rows alone; single rows if they are identified.

    Args:
        parser: knows the columns.
        lines: the lines.
        place: of the block that they belong to.
        offset: of the first line within that block.
        file: its name, where there is one.
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
