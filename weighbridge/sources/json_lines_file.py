"""Reads files of JSON lines."""

from __future__ import annotations

from pathlib import Path

from weighbridge.json_rows import RowParser
from weighbridge.line_blocks import first_line, line_blocks
from weighbridge.sources.columns import Columns, Schema
from weighbridge.sources.reading import NoRowsError, Position, Reader, make_head


def read_json_lines(
    path: Path, columns: Columns, schema: Schema, position: Position | None = None
) -> Reader:
    """Read a file with one JSON object on each line."""
    parser = RowParser(columns, schema)
    with open(path, "rb") as file:
        first = first_line(file)
        if first is None:
            raise NoRowsError("There are no lines. Write one JSON object on each.")
        parser.learn(first)
        yield make_head(parser.kept, [*parser.kept, *parser.ignored], None)
        for block in line_blocks(file, position):
            if block is not None:
                yield {"byte": block.byte, "line": block.line}, parser.values(block.lines)
