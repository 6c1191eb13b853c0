"""Lines of a file in blocks; reading can begin at any block and gives the same blocks."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple, Protocol

from weighbridge.core.errors import DataError

BLOCK_BYTES = 1 << 18
# Only the beginning of a longer line is kept, marked so that it is not valid JSON.
LONGEST_LINE = 16 << 20
KEPT_OF_LONG = 100


class Line(NamedTuple):
    """A line that is not blank: its first byte, its number (from 1), its text."""

    byte: int
    number: int
    text: bytes


class LineBlock(NamedTuple):
    """Lines of a block from number `offset` on; the block begins at `byte`, in line `line`."""

    byte: int
    line: int
    offset: int
    lines: list[Line]


class Readable(Protocol):
    """An object from which lines are read: a binary file, or a file that may still grow."""

    def seek(self, offset: int, /) -> int:
        """Go to a byte."""
        ...

    def read(self, size: int, /) -> bytes | None:
        """Some bytes; empty at the end, and None if there may be more later."""
        ...


def line_blocks(
    file: Readable, position: Mapping[str, int] | None = None
) -> Iterator[LineBlock | None]:
    """Cut a file of lines into blocks; the end of each block depends only on its start.

    A block has the lines that end within `BLOCK_BYTES` of its beginning, or one longer line. Only
    the beginning of a line beyond `LONGEST_LINE` is kept, so that it is not valid JSON. If `read`
    returns None, the lines of the block so far are yielded, then None, and the rest of the block
    later. A last line without a line end is held back until `read` reports the end of the file.

    Args:
        file: opened for reading bytes.
        position: {"byte": ..., "line": ...} of a block at which to begin.
    """
    byte, number = (position["byte"], position["line"]) if position else (0, 1)
    file.seek(max(0, byte - 1))
    if byte and file.read(1) != b"\n":
        raise DataError(
            f"No line begins at byte {byte}, where reading should continue: the file has changed. "
            "Restore it, or start again."
        )
    start, first, offset, lines = byte, number, 0, list[Line]()
    rest, head, gone = b"", b"", 0  # for a line that is too long: its beginning, bytes dropped
    while True:
        piece = file.read(BLOCK_BYTES)
        if piece is None:
            if lines:
                yield LineBlock(start, first, offset, lines)
                offset, lines = offset + len(lines), []
            yield None
            continue
        rest += piece
        if b"\n" not in piece and len(rest) > (0 if gone else LONGEST_LINE):
            head = head if gone else rest[:KEPT_OF_LONG]
            gone, rest = gone + len(rest) - 1, rest[-1:]
        cut = rest.rfind(b"\n") + 1 if piece else len(rest)
        texts, rest = io.BytesIO(rest[:cut]), rest[cut:]
        for text in texts:
            length = gone + len(text)
            if length > LONGEST_LINE:
                text, gone = too_long(head if gone else text), 0
            if byte + length > start + BLOCK_BYTES and byte > start:
                if lines:
                    yield LineBlock(start, first, offset, lines)
                start, first, offset, lines = byte, number, 0, []
            if text.strip():
                lines.append(Line(byte, number, text))
            byte, number = byte + length, number + 1
        if not piece:
            if lines:
                yield LineBlock(start, first, offset, lines)
            return


def first_line(file: BinaryIO) -> Line | None:
    """The first line of a file that is not blank, without reading further."""
    file.seek(0)
    byte, number = 0, 1
    for text in iter(lambda: file.readline(LONGEST_LINE + 1), b""):
        if text.strip():
            return Line(byte, number, text if len(text) <= LONGEST_LINE else too_long(text))
        byte, number = byte + len(text), number + 1
    return None


def too_long(text: bytes) -> bytes:
    """The kept part of a line that is too long, marked so that it is not taken for a whole line."""
    return b"(longer than %d MiB) " % (LONGEST_LINE >> 20) + text[:KEPT_OF_LONG] + b"..."
