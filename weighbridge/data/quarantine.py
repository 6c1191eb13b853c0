"""Quarantine of bad rows: a JSON-lines file with the contents of each row and the reason."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from weighbridge.core.errors import DataError


class Unread(NamedTuple):
    """A row that could not be parsed: the reason, its text, and its place.

    Attributes:
        reason: what is wrong with it.
        text: the row as written in the file.
        line: its line number, from 1.
        file: the name of the file; empty for a stream.
    """

    reason: str
    text: str
    line: int
    file: str = ""


class BadRow(NamedTuple):
    """A row that cannot be used: its number in the stream, the reason, its columns, its place."""

    row: int
    reason: str
    values: Mapping[str, Any]
    unread: Unread | None = None


class Quarantine:
    """A file to which bad rows are appended, one line of JSON each.

    A line is ``{"row": 7, "reason": "column 'y' is nan", "values": {"y": "NaN"}}``. Rows count from
    0; NaN and infinities are written as text, which every JSON reader accepts. A row of a file that
    could not be parsed also has its "text", "file" and "line". The lines are on the disk before
    `add` returns; if they cannot be written, the file is unchanged. Nothing in the file is ever
    removed. A resumed run does not write rows again: lines after the `size` that `resume` gets are
    not repeated.

    Args:
        path: the file; it is created with the first bad row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     quarantine = Quarantine(Path(folder) / "bad.jsonl")
    ...     quarantine.add(0, [BadRow(7, "column 'y' is nan", {"x": 1.0, "y": math.nan})])
    ...     print(quarantine.path.read_text().strip())
    {"row": 7, "reason": "column 'y' is nan", "values": {"x": 1.0, "y": "NaN"}}
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._first_row = -1
        self._known: set[bytes] = set()  # lines of the latest block
        self._replayed: set[bytes] = set()  # lines that a resumed run will produce again
        self._mend()

    @property
    def size(self) -> int:
        """Bytes in the file."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def add(self, first_row: int, rows: Sequence[BadRow]) -> None:
        """Append the bad rows of a block.

        Several models may check the same blocks in turn, and a further round of islands reads all
        blocks again. Therefore rows of an earlier block, and lines already written for this block,
        are left out.

        Args:
            first_row: number of the block's first row.
            rows: its bad rows.
        """
        lines = [_line(row) for row in rows if row.row >= self._first_row]
        new = [line for line in lines if not (line in self._known or line in self._replayed)]
        if new:
            self._append(b"".join(new))
        if first_row > self._first_row:
            self._first_row, self._known = first_row, set()
        self._known.update(lines)
        self._replayed.difference_update(lines)

    def set_aside(self, file: str, reason: str) -> None:
        """Append a line for a file that could not be read, or not to its end; never twice.

        The line has no row and no values: ``{"row": null, "reason": ..., "values": {}, "file":
        ...}``.
        """
        content: dict[str, Any] = {"row": None, "reason": reason, "values": {}, "file": file}
        line = json.dumps(content).encode() + b"\n"
        if self.size:
            with open(self.path, "rb") as known:
                if any(one == line for one in known):
                    return
        self._append(line)

    def resume(self, size: int) -> None:
        """Continue from when the file had this many bytes; later lines in it are not repeated."""
        self._first_row = -1
        self._known, self._replayed = set(), set()
        if self.size > size:
            with open(self.path, "rb") as file:
                file.seek(size)
                self._replayed = set(file)

    def _append(self, text: bytes) -> None:
        size = self.size
        try:
            with open(self.path, "ab") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                if self.size > size:
                    os.truncate(self.path, size)
            raise DataError(
                f"Could not write bad rows to {self.path}: {error.strerror or error}. The rows "
                "were not used: make room or name another file, and give the rows again."
            ) from error

    def _mend(self) -> None:
        """Refuse a file of another kind; remove an incomplete last line, left by a crash."""
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise DataError(
                f"Could not write bad rows to {self.path}: it is a folder, or its folder does not "
                "exist. Name a file in an existing folder."
            )
        if not self.size:
            return
        with open(self.path, "r+b") as file:
            first = file.readline()
            if not _is_line(first) and first.endswith(b"\n"):
                raise DataError(
                    f"{self.path} holds something other than quarantined rows. Name another file."
                )
            end = file.seek(0, os.SEEK_END)
            start = end
            tail = b""
            while start and b"\n" not in tail:
                start = max(0, start - 4096)
                file.seek(start)
                tail = file.read(end - start)
            last = tail[tail.rfind(b"\n") + 1 :]
            if _is_line(last):
                file.seek(end)
                file.write(b"\n")
            elif last:
                file.truncate(end - len(last))


def _line(row: BadRow) -> bytes:
    content = {"row": row.row, "reason": row.reason, "values": _plain(dict(row.values))}
    if row.unread is not None:
        content |= {"file": row.unread.file} if row.unread.file else {}
        content |= {"line": row.unread.line, "text": row.unread.text}
    return json.dumps(content, allow_nan=False).encode() + b"\n"


def _is_line(text: bytes) -> bool:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"row", "reason", "values"} <= set(content)


def _plain(value: Any) -> Any:
    """The same value, with text in place of numbers that JSON cannot represent."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
