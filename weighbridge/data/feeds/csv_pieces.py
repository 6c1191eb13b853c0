"""CSV that comes in pieces: whole records are handed to the parser as soon as they are there."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.base import Parcel
from weighbridge.data.feeds.files import unread_notices
from weighbridge.data.sources.csv_file import read_csv
from weighbridge.data.sources.csv_records import LONGEST_RECORD
from weighbridge.data.values import num_rows

# An unfinished record of more bytes is looked at again only when it has doubled.
LONG = 1 << 20
# A quoted field, which begins where a field does, or the end of a line outside of such.
_QUOTED_OR_END = re.compile(rb'(?<![^,\r\n])"(?:[^"]|"")*+"?|\n')


class Records:
    """Cuts bytes at the last end of a line that is not within quotes.

    >>> records = Records()
    >>> records.add(b'1,2\\n3,"4'), records.add(b'\\n5"\\n6'), records.rest()
    (b'1,2\\n', b'3,"4\\n5"\\n', b'6')
    """

    def __init__(self) -> None:
        self._begun = bytearray()
        self._next_look = 0

    def add(self, piece: bytes) -> bytes:
        """The records that are whole now."""
        self._begun += piece
        if len(self._begun) < self._next_look:
            return b""
        cut = self._begun.rfind(b"\n") + 1
        if b'"' in self._begun:
            ends = (m.end() for m in _QUOTED_OR_END.finditer(self._begun) if m[0] == b"\n")
            cut = max(ends, default=0)
        self._next_look = 0
        if not cut and len(self._begun) > LONGEST_RECORD:
            shown = bytes(self._begun[:80]).decode("utf-8", "replace")
            raise DataError(
                f"A CSV record on the stream has more than {LONGEST_RECORD:,} bytes and no end: "
                f"{shown!r}. Close the quote that was opened there, or end lines with a line feed."
            )
        if not cut and len(self._begun) > LONG:
            self._next_look = 2 * len(self._begun)
        whole = bytes(self._begun[:cut])
        del self._begun[:cut]
        return whole

    def rest(self) -> bytes:
        """What is left when nothing more comes."""
        rest = bytes(self._begun)
        self._begun.clear()
        return rest


class CsvRows:
    """The rows of a CSV table whose records come one after the other.

    Args:
        columns: the columns to read; by default all that are numeric in the first records.
        schema: column -> float or int; float where it does not say.
        lenient: whether a row that cannot be read becomes a bad row and a notice; otherwise it is
            a DataError.

    Attributes:
        left_out: columns that do not hold numbers.
    """

    def __init__(
        self, columns: list[str] | None, schema: dict[str, type], *, lenient: bool = False
    ) -> None:
        self._columns, self._schema, self._lenient = columns, schema, lenient
        self._records = Records()
        self._begun = b""
        self._header, self._sample = b"", b""  # the first record stands for the types
        self._num_rows, self._line = 0, 1
        self.left_out: list[str] = []

    def add(self, piece: bytes) -> Iterator[Parcel]:
        """The rows that this piece has made whole."""
        text = self._records.add(piece)
        if self._num_rows:
            yield from self._parcels(text)
        else:  # the header waits for a row, which tells the types
            self._begun += text
            header = first_record(self._begun)
            if self._begun[len(header) :].strip():
                yield from self._first_parcels(header, self._begun[len(header) :])
                self._begun = b""

    def end(self) -> Iterator[Parcel]:
        """The last row, if its line had no end."""
        text = self._records.rest()
        if self._num_rows:
            yield from self._parcels(text)
        else:
            text = self._begun + text
            header = first_record(text)
            yield from self._first_parcels(header, text[len(header) :])

    def _first_parcels(self, header: bytes, text: bytes) -> Iterator[Parcel]:
        """Parse the first rows; header, columns and types are fixed by them."""
        table = io.BytesIO(header + text)
        head, *blocks = read_csv(table, self._columns, self._schema, lenient=self._lenient)
        self._header, self._sample = header, first_record(text)
        self._columns, self.left_out = list(head.kept), list(head.ignored)
        yield from self._counted(blocks)
        # As in JSON lines whole numbers are real ones: a first row of 0 says little.
        kinds = {name: blocks[0].values[name].dtype.kind for name in head.kept}
        real = [name for name, kind in kinds.items() if kind in "if"]
        self._schema = dict.fromkeys(real, float) | self._schema
        self._line = 1 + (header + text).count(b"\n")

    def _parcels(self, text: bytes) -> Iterator[Parcel]:
        if text.strip():
            place = {"byte": len(self._sample), "row": self._num_rows, "line": self._line}
            begun = self._header + self._sample
            table = _Continued(begun, text)
            _, *blocks = read_csv(table, self._columns, self._schema, place, lenient=self._lenient)
            yield from self._counted(blocks)
        self._line += text.count(b"\n")

    def _counted(self, blocks: list[Any]) -> Iterator[Parcel]:
        for block in blocks:
            values = dict(block.values)
            for name, column in values.items():
                if column.dtype.kind == "i" and name not in self._schema:
                    values[name] = column.astype(np.float64)
            unread = tuple(block.unread.items())
            notices = unread_notices("the stream", unread)
            yield Parcel(values, {"row": self._num_rows, "offset": 0}, None, notices, unread)
            self._num_rows += num_rows(values)


class _Continued(io.BytesIO):
    """A table whose end seems to be that of its first part, until the reader seeks a place.

    So it learns the columns from what it has seen before, and names new rows by their numbers.
    """

    def __init__(self, begun: bytes, text: bytes) -> None:
        super().__init__(begun + text)
        self._end: int | None = len(begun)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._end = None
        return super().seek(offset, whence)

    def read(self, size: int | None = -1) -> bytes:
        left = None if self._end is None else self._end - self.tell()
        if left is not None and (size is None or size < 0 or size > left):
            size = left
        return super().read(size)


def first_record(text: bytes) -> bytes:
    """The first record that is not blank, with what stands before it.

    >>> first_record(b'\\n"a\\nb",c\\n1,2\\n')
    b'\\n"a\\nb",c\\n'
    """
    records, first = Records(), b""
    for line in io.BytesIO(text):
        record = records.add(line)
        first += record
        if record.strip():
            return first
    return text
