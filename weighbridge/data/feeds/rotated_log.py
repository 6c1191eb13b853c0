"""Follow a log through its rotations: which file is read, and from which place."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeGuard

from weighbridge.data.feeds.base import Cursor, Notice
from weighbridge.data.feeds.file_identity import FileMark, mark_from, open_regular, shown
from weighbridge.data.feeds.growing_file import GrowingFile
from weighbridge.data.feeds.rotation import locate, successor
from weighbridge.data.sources.row_form import ColumnForm, form_from


class LinePlace(NamedTuple):
    """A place in a file of lines: `offset` lines into the block that begins at `byte`.

    Attributes:
        byte: first byte of the block.
        line: the number of its first line.
        offset: number of lines of the block that were read.
        mark: mark of the file up to this place; None in a cursor of an older version.
        columns: the columns read; only in a cursor of an older version.
        form: columns and shapes; None in a cursor of an older version.
    """

    byte: int
    line: int
    offset: int
    mark: FileMark | None
    columns: list[str] | None = None
    form: list[ColumnForm] | None = None


def place_of(cursor: Cursor) -> LinePlace | None:
    """The place that a cursor names; None if it belongs to another feed."""
    byte, line, offset = (cursor.get(name) for name in ("byte", "line", "offset"))
    mark, columns = mark_from(cursor.get("mark")), cursor.get("columns")
    if not (_is_count(byte) and _is_count(line) and _is_count(offset)):
        return None
    if mark is None and "mark" in cursor:
        return None
    texts = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    if not texts and columns is not None:
        return None
    try:
        form = form_from(cursor["form"]) if "form" in cursor else None
    except ValueError:
        return None
    return LinePlace(byte, line, offset, mark, columns, form)


class RotatedLog:
    """The file of a log that is being read; a context manager that closes it.

    Args:
        path: the path to which the log is written.
        patience: seconds to wait at its end.

    Attributes:
        current: the file that is being read.
        place: the place reached; None at its beginning.
    """

    current: GrowingFile

    def __init__(self, path: Path, patience: float) -> None:
        self.path, self.patience = path, patience
        self.place: LinePlace | None = None
        self._open: list[GrowingFile] = []  # the finished file before, and the current one
        self._notices: list[Notice] = []

    def open(self, place: LinePlace | None) -> None:
        """Open the file of a place, under its present name, or the log at its beginning."""
        self.place = place
        if place is None or place.mark is None:
            self._use(open_regular(self.path), None)
            return
        self._find(place.mark)

    def open_again(self) -> None:
        """The file no longer has what was read: continue in a copy, or with the new lines."""
        self._find(self.current.mark)

    def open_next(self) -> None:
        """The file was read to its end: continue with the next file."""
        finished = os.fstat(self.current.file)
        following = successor(self.path, finished)
        file = open_regular(following.path)
        if os.path.samestat(os.fstat(file), finished):  # rotated again in the meantime
            os.close(file)
            file = open_regular(self.path)
        before, self.place = self._open.pop(), None
        self._use(file, None)
        self._open.insert(0, before)
        if following.between:
            names = ", ".join(shown(path.name) for path in following.between[:3])
            self._tell(
                f"{shown(self.path.name)} was rotated more than once since the last look, as it "
                f"seems: rows in {names} may be missing."
            )

    def take_notices(self) -> tuple[Notice, ...]:
        """The notices since the last call."""
        notices, self._notices = tuple(self._notices), []
        return notices

    def late_lines(self) -> tuple[Notice, ...]:
        """Add a notice if lines were written to the previous file after it was finished."""
        if len(self._open) > 1 and self._open[0].has_grown():
            self._open.pop(0).close()
            self._tell(
                f"Lines were written to the file that was {shown(self.path.name)} before, after "
                "the new one was begun: they are not read. Let its writer open the new one sooner."
            )
        return self.take_notices()

    def __enter__(self) -> RotatedLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._open:
            file.close()

    def _find(self, mark: FileMark) -> None:
        found = locate(self.path, mark)
        if found is not None:
            if found.is_copy:
                self._tell(
                    f"{shown(self.path.name)} was cut after it had been copied to "
                    f"{shown(found.path.name)}, where reading goes on: rows that were written "
                    "between the two may be missing."
                )
            self._use(found.file, mark)
            return
        self._use(open_regular(self.path), None)
        self.place = None
        self._tell(
            f"{shown(self.path.name)} no longer begins with the {mark.size} bytes that were read, "
            "and no file beside it does: it was cut or written anew, or the old one was moved "
            "away. Rows that followed in it are missing, and the new lines are read."
        )

    def _use(self, file: int, mark: FileMark | None) -> None:
        while self._open:
            self._open.pop().close()
        self.current = GrowingFile(file, self.path, mark, self.patience)
        self._open.append(self.current)

    def _tell(self, text: str) -> None:
        self._notices.append(Notice("gap", self.path.name, text))


def _is_count(number: Any) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
