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
from weighbridge.data.sources.csv_records import LONGEST_RECORD, Quotes, scan_quotes
from weighbridge.data.sources.requested_columns import Request
from weighbridge.data.values import num_rows

# Bytes that are kept of a line that is too long.
KEPT_OF_LONG = 60


class Records:
    """Splits bytes into complete records. Each byte is scanned once.

    Args:
        lenient: if true, an unclosed quote or a line that is too long becomes one bad row;
            otherwise it is a DataError.

    >>> records = Records()
    >>> records.add(b'1,2\\n3,"4'), records.add(b'\\n5"\\n6'), records.rest()
    (b'1,2\\n', b'3,"4\\n5"\\n', b'6')
    """

    def __init__(self, *, lenient: bool = False) -> None:
        self._lenient = lenient
        self._begun = bytearray()
        self._quotes = Quotes()
        self._skipping = False  # to the end of a line that is too long

    def add(self, piece: bytes) -> bytes:
        """The records that are whole now."""
        if self._skipping:
            end = piece.find(b"\n") + 1
            self._skipping, piece = not end, piece[end:] if end else b""
        self._begun += piece
        whole = bytearray()
        while True:
            self._quotes = scan_quotes(self._begun, self._quotes, ended=False)
            if self._quotes.cut:
                whole += self._take(self._quotes.cut)
            too_long = len(self._begun) > LONGEST_RECORD
            if not self._quotes.stray and not too_long:
                return bytes(whole)
            if not self._lenient and too_long:
                raise DataError(_endless(self._begun))
            # Scan the rest as if the quote were not there. A strict reader reports the error.
            end = self._begun.find(b"\n") + 1
            whole += self._take(end) if end else self._leave_long_line()
            self._quotes = Quotes()

    def rest(self) -> bytes:
        """What is left when nothing more comes."""
        return self._take(len(self._begun))

    def _take(self, cut: int) -> bytes:
        taken = bytes(self._begun[:cut])
        del self._begun[:cut]
        scanned, opened, outside, _, stray = self._quotes
        opened = opened - cut if opened >= 0 else -1
        self._quotes = Quotes(max(0, scanned - cut), opened, max(0, outside - cut), 0, stray)
        return taken

    def _leave_long_line(self) -> bytes:
        """A line in place of one that is too long: a single field, which is no number."""
        begins = re.sub(rb'[",\s]', b" ", bytes(self._begun[:KEPT_OF_LONG]))
        self._begun.clear()
        self._skipping = True
        return b"(longer than %d MiB) " % (LONGEST_RECORD >> 20) + begins + b"...\n"


class CsvRows:
    """The rows of a CSV table whose records come one after the other.

    Args:
        request: the columns to read, by default all that are numeric in the first records; their
            types are float where it does not say. If it is lenient, a row that cannot be read
            becomes a bad row and a notice; otherwise it is a DataError.

    Attributes:
        left_out: columns that do not hold numbers.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._records = Records(lenient=request.lenient)
        self._begun = bytearray()  # until there is a row
        self._header, self._sample = b"", b""  # the first record determines the types
        self._num_rows, self._line = 0, 1
        self.left_out: list[str] = []

    def add(self, piece: bytes) -> Iterator[Parcel]:
        """The rows that this piece has made whole."""
        text = self._records.add(piece)
        if self._num_rows:
            yield from self._parcels(text)
        else:  # the types are known only after the first row
            self._begun += text
            if text.strip():  # blank lines alone need no second look
                yield from self._begin(bytes(self._begun))
            elif len(self._begun) > LONGEST_RECORD:
                raise DataError(
                    f"There are {len(self._begun):,} bytes on the stream and no row yet. Write a "
                    "header line with column names, then rows."
                )

    def end(self) -> Iterator[Parcel]:
        """The last row, if its line had no end."""
        text = self._records.rest()
        if self._num_rows:
            yield from self._parcels(text)
        else:
            text = bytes(self._begun) + text
            header = first_record(text)
            yield from self._first_parcels(header, text[len(header) :])

    def _begin(self, text: bytes) -> Iterator[Parcel]:
        """The first rows, if there are any after the header."""
        header = first_record(text)
        if text[len(header) :].strip():
            yield from self._first_parcels(header, text[len(header) :])
            self._begun.clear()

    def _first_parcels(self, header: bytes, text: bytes) -> Iterator[Parcel]:
        """Parse the first rows; header, columns and types are fixed by them."""
        table = io.BytesIO(header + text)
        head, *blocks = read_csv(table, self._request)
        self._header, self._sample = header, first_record(text)
        self.left_out = list(head.ignored)
        yield from self._counted(blocks)
        # As in JSON lines whole numbers are real ones: a first row of 0 says little.
        kinds = {name: blocks[0].values[name].dtype.kind for name in head.kept}
        real = [name for name, kind in kinds.items() if kind in "if"]
        schema = dict.fromkeys(real, float) | dict(self._request.schema)
        self._request = self._request._replace(columns=list(head.kept), schema=schema)
        self._line = 1 + (header + text).count(b"\n")

    def _parcels(self, text: bytes) -> Iterator[Parcel]:
        if text.strip():
            place = {"byte": len(self._sample), "row": self._num_rows, "line": self._line}
            begun = self._header + self._sample
            table = _Continued(begun, text)
            _, *blocks = read_csv(table, self._request, place)
            yield from self._counted(blocks)
        self._line += text.count(b"\n")

    def _counted(self, blocks: list[Any]) -> Iterator[Parcel]:
        for block in blocks:
            values = dict(block.values)
            for name, column in values.items():
                if column.dtype.kind == "i" and name not in self._request.schema:
                    values[name] = column.astype(np.float64)
            unread = tuple(block.unread.items())
            notices = unread_notices("the stream", unread)
            yield Parcel(values, {"row": self._num_rows, "offset": 0}, None, notices, unread)
            self._num_rows += num_rows(values)


class _Continued(io.BytesIO):
    """A table that seems to end after its first part, until the reader seeks a position.

    So the reader finds the columns in rows that came before, and numbers new rows correctly.
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
    blank = len(text) - len(text.lstrip())
    start = end = text.rfind(b"\n", 0, blank) + 1
    record, quotes = bytearray(), Quotes()
    while cut := text.find(b"\n", end) + 1:
        record += text[end:cut]
        end, quotes = cut, scan_quotes(record, quotes, ended=False)
        if quotes.opened < 0:
            return text[: start + len(record)]
    return text


def _endless(text: bytearray) -> str:
    shown = bytes(text[:80]).decode("utf-8", "replace")
    return (
        f"A CSV record on the stream has more than {LONGEST_RECORD:,} bytes and no end: {shown!r}. "
        "Close the quote that was opened there, or end lines with a line feed."
    )
