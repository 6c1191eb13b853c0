"""Read files of JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from weighbridge.core.errors import DataError
from weighbridge.data.columns import NumpyArray
from weighbridge.data.cutting import join
from weighbridge.data.quarantine import Unread
from weighbridge.data.sources.json_rows import RowParser, decode
from weighbridge.data.sources.line_blocks import Line, LineBlock, first_line, line_blocks
from weighbridge.data.sources.reading import Block, NoRowsError, Position, Reader, make_head
from weighbridge.data.sources.requested_columns import Request


def read_json_lines(path: Path, request: Request, position: Position | None = None) -> Reader:
    """Read a file with one JSON object on each line."""
    parser, lenient = RowParser(request), request.lenient
    with open(path, "rb") as file:
        first = first_line(file)
        if first is None:
            raise NoRowsError("There are no lines. Write one JSON object on each.")
        if lenient:
            learn_leniently(parser, lines_of(file))
        else:
            parser.learn(first)
        yield make_head(parser.kept, [*parser.kept, *parser.ignored], None)
        for block in line_blocks(file, position):
            if block is None:
                continue
            place = {"byte": block.byte, "line": block.line}
            if lenient:
                yield Block(place, *rows_of(parser, block))
            else:
                yield Block(place, parser.values(block.lines))


def lines_of(file: BinaryIO) -> Iterator[Line]:
    """All lines of a file."""
    for block in line_blocks(file):
        yield from block.lines if block is not None else ()


def learn_leniently(parser: RowParser, lines: Iterator[Line]) -> None:
    """Take the columns from the first usable line; if there is none, raise the first error."""
    refused: DataError | None = None
    for line in lines:
        try:
            parser.learn(line)
        except DataError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused


def rows_of(parser: RowParser, block: LineBlock) -> tuple[dict[str, NumpyArray], dict[int, Unread]]:
    """The rows of a block, and those that could not be parsed."""
    rows = [decode(line.text) for line in block.lines]
    runs = parser.runs(rows, [f"Line {line.number}" for line in block.lines])
    unread = {}
    for run in runs:
        if run.reason is not None:
            line = block.lines[run.start]
            text = line.text.decode("utf-8", "replace").rstrip("\r\n")
            unread[run.start] = Unread(run.reason, text, line.number)
    values: dict[str, NumpyArray] = join([run.values for run in runs])
    return values, unread
