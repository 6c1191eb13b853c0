"""Lines of a file in blocks that are the same from whichever of them reading begins."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple

from weighbridge.base import DataError

BLOCK_BYTES = 1 << 18
# Of a longer line only the beginning is kept, marked so that it is no JSON.
LONGEST_LINE = 16 << 20
KEPT_OF_LONG = 100


class Line(NamedTuple):
    """A line that is not blank: the byte where it begins, its number from 1, its text."""

    byte: int
    number: int
    text: bytes


class LineBlock(NamedTuple):
    """Lines of a block from its `offset`-th on; the block begins at `byte`, at line `line`."""

    byte: int
    line: int
    offset: int
    lines: list[Line]


def line_blocks(
    file: BinaryIO,
    position: Mapping[str, int] | None = None,
    *,
    follow: bool = False,
    patience: float = 0.2,
) -> Iterator[LineBlock | None]:
    """Cut a file of lines into blocks, in a way that depends on where they begin alone.

    A block is the lines that end within `BLOCK_BYTES` of its beginning, or one line if that is
    longer; of one beyond `LONGEST_LINE` only the beginning is kept, and it is no JSON then. When
    the file grows, what has come of a block so far is handed out, and the rest later.

    Args:
        file: opened for reading bytes.
        position: {"byte": ..., "line": ...} of a block to begin at.
        follow: whether to wait for more at the end; a last line without its end waits, too.
        patience: seconds to wait before None tells that nothing new has come.
    """
    byte, number = (position["byte"], position["line"]) if position else (0, 1)
    file.seek(max(0, byte - 1))
    if byte and file.read(1) != b"\n":
        raise DataError(
            f"No line begins at byte {byte}, where reading was to go on: the file is not what it "
            "was. Restore it, or start anew."
        )
    start, first, offset, lines = byte, number, 0, list[Line]()
    rest, head, gone = b"", b"", 0  # of a line that is too long, its beginning and what is dropped
    while True:
        piece = file.read(BLOCK_BYTES)
        rest += piece
        if b"\n" not in piece and len(rest) > (0 if gone else LONGEST_LINE):
            head = head if gone else rest[:KEPT_OF_LONG]
            gone, rest = gone + len(rest) - 1, rest[-1:]
        if not piece and follow:
            if lines:
                yield LineBlock(start, first, offset, lines)
                offset, lines = offset + len(lines), []
            if os.fstat(file.fileno()).st_size < byte + gone + len(rest):
                raise DataError(
                    f"The file is shorter than the {byte + gone + len(rest)} bytes that were "
                    "read: it was cut or written anew. Start anew, or append to it only."
                )
            time.sleep(patience)
            yield None
            continue
        cut = rest.rfind(b"\n") + 1 if piece else len(rest)
        texts, rest = io.BytesIO(rest[:cut]), rest[cut:]
        for text in texts:
            length = gone + len(text)
            if length > LONGEST_LINE:
                text, gone = _too_long(head if gone else text), 0
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
            return Line(byte, number, text if len(text) <= LONGEST_LINE else _too_long(text))
        byte, number = byte + len(text), number + 1
    return None


def _too_long(text: bytes) -> bytes:
    """What is kept of a line that is too long: nobody can take it for a whole one."""
    return b"(longer than %d MiB) " % (LONGEST_LINE >> 20) + text[:KEPT_OF_LONG] + b"..."
