"""A feed of a pipe, a socket or any other stream of bytes: JSON lines or CSV, read once."""

from __future__ import annotations

import io
import select
from codecs import BOM_UTF8
from collections.abc import Generator, Iterator
from typing import Any

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.base import Cursor, Parcel, refuse_cursor
from weighbridge.data.feeds.csv_pieces import CsvRows
from weighbridge.data.feeds.json_lines import parcels_of
from weighbridge.data.sources.csv_records import LONGEST_RECORD
from weighbridge.data.sources.json_rows import RowParser
from weighbridge.data.sources.line_blocks import KEPT_OF_LONG, LONGEST_LINE, Line, too_long
from weighbridge.data.sources.requested_columns import ALL_COLUMNS, Request

READ_BYTES = 1 << 16


class StreamFeed:
    """Rows from a stream that can be read once: JSON lines if it begins with a brace, else CSV.

    Complete rows are returned at once; None means that nothing came for a while. The first rows
    determine the types of CSV columns.

    Args:
        stream: opened for reading bytes.
        request: the columns to read; by default all that are numeric. If it is lenient, a line
            that cannot be used becomes a bad row and a notice.
        identifier: a field of the JSON lines that tells rows that come twice, and missing ones.
        patience: seconds to wait before telling that nothing new has come.

    >>> feed = StreamFeed(io.BytesIO(b'{"y": 1}\\n{"y": 2}\\n'))
    >>> [parcel.values["y"].tolist() for parcel in feed.read()]
    [[1.0, 2.0]]
    """

    seekable = False
    num_rows: int | None = None

    def __init__(
        self,
        stream: Any,
        request: Request = ALL_COLUMNS,
        *,
        identifier: str | None = None,
        patience: float = 0.2,
    ) -> None:
        self._stream = getattr(stream, "buffer", stream)
        if isinstance(self._stream.read(0), str):
            raise DataError("The stream is text. Open it in binary mode: open(path, 'rb').")
        self.patience = patience
        self._parser = RowParser(request, identifier)
        self._csv = CsvRows(request)
        self._started = False

    @property
    def left_out(self) -> list[str]:
        """Columns of CSV that do not hold numbers, once the first rows have come."""
        return self._csv.left_out

    def describe(self) -> str:
        """One line on where the rows come from."""
        return "a stream, which can be read only once: no exact resume"

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """The rows that have come; half a line waits for its end."""
        refuse_cursor(cursor, "A stream")
        if self._started:
            raise DataError("This stream was already read and cannot be read twice. Open it again.")
        self._started = True
        pieces = self._pieces()
        begun = bytearray()
        for piece in pieces:
            if piece is None:
                yield None
                continue
            begun += piece
            # Blank so far, or half of the mark that some editors put before a text.
            if piece.strip() and not BOM_UTF8.startswith(begun.lstrip()[:4]):
                break
            if len(begun) > LONGEST_RECORD:
                raise DataError(f"The stream begins with {len(begun):,} bytes that are blank.")
        first = bytes(begun)
        if first.lstrip().removeprefix(BOM_UTF8).lstrip()[:1] == b"{":
            yield from self._json_rows(first, pieces)
            return
        if self._parser.identifier is not None:
            raise DataError("identifier names a field of JSON lines, and the stream holds CSV.")
        yield from self._csv.add(first)
        for piece in pieces:
            if piece is None:
                yield None
            else:
                yield from self._csv.add(piece)
        yield from self._csv.end()

    def _json_rows(self, first: bytes, pieces: Iterator[bytes | None]) -> Iterator[Parcel | None]:
        begun, looked = bytearray(first), 0  # a line that is begun, and how far it has no end
        byte, number, ended = 0, 1, False
        while True:
            cut = len(begun) if ended else begun.rfind(b"\n", looked) + 1
            lines = []
            for text in io.BytesIO(begun[:cut]):
                if text.strip():
                    lines.append(Line(byte, number, text))
                byte, number = byte + len(text), number + 1
            del begun[:cut]
            looked = len(begun)
            if looked > LONGEST_LINE:
                if not self._parser.lenient:
                    raise DataError(
                        f"Line {number} of the stream has more than {LONGEST_LINE:,} bytes and no "
                        "end. Write one JSON object on each line."
                    )
                lines.append(Line(byte, number, too_long(bytes(begun[:KEPT_OF_LONG]))))
                skipped, after = yield from _to_next_line(looked, pieces)
                begun, looked = bytearray(after), 0
                byte, number = byte + skipped, number + 1
            if lines:
                if not self._parser.kept:
                    self._parser.learn(lines[0])
                place = {"byte": lines[0].byte, "line": lines[0].number}
                yield from parcels_of(self._parser, lines, place, 0)
            if ended:
                return
            if begun and not looked:  # what came after a line that was too long
                continue
            piece = next(pieces, b"")
            if piece is None:
                yield None
            else:
                ended = not piece
                begun += piece

    def _pieces(self) -> Iterator[bytes | None]:
        """What has come, and None where nothing has for a while."""
        try:
            descriptor = self._stream.fileno()
        except (AttributeError, OSError):
            descriptor = None
        read = getattr(self._stream, "read1", self._stream.read)
        while True:
            if descriptor is not None:
                ready, _, _ = select.select([descriptor], [], [], self.patience)
                if not ready:
                    yield None
                    continue
            piece = read(READ_BYTES)
            if piece == b"":
                return
            yield piece


def _to_next_line(
    skipped: int, pieces: Iterator[bytes | None]
) -> Generator[None, None, tuple[int, bytes]]:
    """Skip to the end of a line. Returns the length of the line, and the bytes after it."""
    for piece in pieces:
        if piece is None:
            yield None
            continue
        end = piece.find(b"\n") + 1
        if end:
            return skipped + end, piece[end:]
        skipped += len(piece)
    return skipped, b""
