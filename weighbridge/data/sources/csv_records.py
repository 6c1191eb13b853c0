"""Cut CSV into blocks of whole records, in one forward pass that tracks quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from weighbridge.core.errors import DataError

BLOCK_BYTES = 1 << 20
# A longer record is not a row of numbers: a quote was not closed, or line ends are missing.
LONGEST_RECORD = 16 << 20
SHOWN = 80
# A quoted field, which starts at the start of a field, or the end of a line.
_QUOTED_OR_END = re.compile(rb'(?<![^,\r\n])"(?:[^"]|"")*+"?|\r\n|\n|\r')


class RawBlock(NamedTuple):
    """Records as written in the file.

    Attributes:
        byte: position of the block, counted from the end of the header.
        line: number of its first line; the first line of the file is 1.
        text: its bytes.
        broken: empty, or what is wrong; the block is then a single bad line.
    """

    byte: int
    line: int
    text: bytes
    broken: str = ""

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Line number and text of each record; blank lines are skipped."""
        line, counted = self.line, 0
        for start, end in _spans(self.text):
            line, counted = line + self.text.count(b"\n", counted, start), start
            yield line, self.text[start:end]


class Quotes(NamedTuple):
    """State of the scan for quotes.

    Attributes:
        scanned: position at which to continue.
        opened: start of the quoted field that is still open; -1 outside quotes.
        outside: start of the current text outside quotes.
        cut: end of the last line that is known to end outside quotes.
        stray: whether the open field was closed inside other text, on a later line.
    """

    scanned: int = 0
    opened: int = -1
    outside: int = 0
    cut: int = 0
    stray: bool = False


def scan_quotes(text: bytes | bytearray, quotes: Quotes, ended: bool) -> Quotes:
    """Continue the scan for quotes in text that has grown; each byte is read once.

    A quote opens a field only at the start of a field, and closes it unless it is doubled. A quote
    that would close a field of several lines inside other text is a stray quote.

    Args:
        text: text from the start of a record.
        quotes: the state of the scan so far.
        ended: whether this is the end of the input.
    """
    scanned, opened, outside, cut, _ = quotes
    while (at := text.find(b'"', scanned)) >= 0:
        if opened < 0:
            if not at or text[at - 1] in b",\r\n":
                opened = at
                cut = max(cut, text.rfind(b"\n", outside, at) + 1)
            scanned = at + 1
            continue
        after = text[at + 1 : at + 2]
        if not after and not ended:
            return Quotes(at, opened, outside, cut)
        if after == b'"':
            scanned = at + 2
        elif after and after not in b",\r\n" and text.find(b"\n", opened, at) >= 0:
            return Quotes(at, opened, outside, cut, stray=True)
        else:
            opened, scanned, outside = -1, at + 1, at + 1
    if opened < 0:
        cut = max(cut, text.rfind(b"\n", outside) + 1)
        outside = max(outside, cut)
    return Quotes(max(scanned, len(text)), opened, outside, cut)


def whole_records(
    stream: Any, byte: int = 0, line: int = 1, *, lenient: bool = False
) -> Iterator[RawBlock]:
    """Cut a stream into blocks that end at the end of a line, and not inside quotes.

    The end of each block depends only on its start. pyarrow's own streaming reader would use a
    thread of its own, which cannot be stopped while it waits for a pipe.

    Args:
        stream: a stream positioned at the first record.
        byte: the position to give to the first byte.
        line: the number to give to the first line.
        lenient: if true, a line with a quote that is never closed, and a line that is too long, is
            returned as a broken block, and reading continues after it; otherwise it is a DataError.
    """
    rest, window = bytearray(), BLOCK_BYTES
    ahead = bytearray()  # already read, for later blocks
    quotes = Quotes()
    while True:
        if ahead and len(rest) < window:
            missing = window - len(rest)
            rest += ahead[:missing]
            del ahead[:missing]
        while len(rest) < window and (piece := stream.read(window - len(rest))):
            rest += piece
        ended = len(rest) < window
        quotes = scan_quotes(rest, quotes, ended)
        closed = quotes.opened < 0
        cut = len(rest) if ended and closed else quotes.cut
        if not cut and not (ended or quotes.stray) and window < LONGEST_RECORD:
            window = min(window + BLOCK_BYTES, LONGEST_RECORD)
            continue
        broken = ""
        if not cut and rest:
            broken = _complaint(rest, quotes, line)
            if not lenient:
                raise DataError(f"{broken} Correct that line.")
            cut = rest.find(b"\n") + 1 or len(rest)
        text = bytes(rest[:cut])
        del rest[:cut]
        skipped = 0
        if broken and not text.endswith(b"\n"):
            skipped = _skip_line(stream)
        if broken or text.strip():
            yield RawBlock(byte, line, text, broken)
        if ended and not rest:
            return
        byte, line = byte + cut + skipped, line + (text.count(b"\n") or int(bool(skipped)))
        window, quotes = BLOCK_BYTES, Quotes()
        if len(rest) > window:
            rest, ahead = rest[:window], rest[window:] + ahead


def shorten(text: str, most: int = SHOWN) -> str:
    """Shorten a text, which may have megabytes, for a message."""
    return text if len(text) <= most else text[: most - 3] + "..."


def _spans(text: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each record that is not blank."""
    start = 0
    for found in _QUOTED_OR_END.finditer(text):
        if text[found.start()] in b"\r\n":
            if found.start() > start:
                yield start, found.start()
            start = found.end()
    if start < len(text):
        yield start, len(text)


def _complaint(text: bytearray, quotes: Quotes, line: int) -> str:
    if quotes.opened < 0:
        size = LONGEST_RECORD >> 20
        begins = shorten(repr(bytes(text[:SHOWN]).decode("utf-8", "replace")))
        return f"Line {line} is longer than {size} MiB; it begins with {begins}."
    number = line + text.count(b"\n", 0, quotes.opened)
    shown = bytes(text[quotes.opened : quotes.opened + SHOWN]).split(b"\n")[0]
    where = f"The quote that opens in line {number}, {shown.decode('utf-8', 'replace')!r},"
    if quotes.stray:
        end = line + text.count(b"\n", 0, quotes.scanned)
        return f"{where} is closed inside a field of line {end}."
    return f"{where} is not closed in the {len(text):,} bytes after it."


def _skip_line(stream: Any) -> int:
    """Read to the end of the line without keeping the text."""
    skipped = 0
    while piece := stream.readline(BLOCK_BYTES):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped
