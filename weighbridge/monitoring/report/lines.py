"""JSON lines read from the last to the first, and safe conversion of their values."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

from weighbridge.core.errors import DataError

BLOCK = 1 << 20
# Events are shorter than this; a longer line means that the file is not a file of events.
LONGEST_LINE = 1 << 26
LARGEST = 1e100
# Most entries of a mapping or a list, and most characters of a text, that a page shows.
MOST = 200
LONGEST_TEXT = 2000


def lines_backwards(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The lines of a file from the last to the first, without an incomplete last line."""
    end = file.seek(0, 2)
    rest, complete = b"", False
    while end > 0:
        start = max(end - BLOCK, 0)
        file.seek(start)
        lines = (file.read(end - start) + rest).split(b"\n")
        end, rest = start, lines[0]
        if len(rest) > LONGEST_LINE:
            raise DataError(f"{name} is damaged: a line of it has more than {LONGEST_LINE} bytes.")
        for line in reversed(lines[1:]):
            if complete or _is_whole(line):
                yield line
            complete = True
    if complete or _is_whole(rest):
        yield rest


def _is_whole(line: bytes) -> bool:
    """Whether the last line is a complete event, although it has no newline yet."""
    return parse_event(line) is not None


def parse_event(line: bytes) -> dict[str, Any] | None:
    """The event of a line, or None if the line is not an event."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def as_mapping(value: Any) -> dict[str, Any]:
    """The first ``MOST`` entries of a mapping; empty if the value is not a mapping."""
    if not isinstance(value, dict):
        return {}
    return {as_text(name): item for name, item in itertools.islice(value.items(), MOST)}


def as_items(value: Any) -> list[Any]:
    """The first ``MOST`` entries of a list; empty if the value is not a list."""
    return value[:MOST] if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """A printable text of bounded length; empty if the value is neither text nor number.

    >>> as_text("caf\\u00e9 \\ud800"), as_text(None), as_text([1])
    ('caf\u00e9 ?', '', '')
    """
    if not isinstance(value, str | int | float):
        return ""
    text = str(value)
    text = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} ..."
    return text.encode(errors="replace").decode()


def as_number(value: Any) -> float:
    """A number; NaN if the value is not a number, or is 1e100 or larger."""
    try:
        number = math.nan if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if abs(number) < LARGEST else math.nan


def as_numbers(value: Any) -> dict[str, float]:
    """Numbers by name; NaN for values that are not numbers."""
    return {name: as_number(number) for name, number in as_mapping(value).items()}


def as_whole(value: Any) -> int:
    """A non-negative integer; 0 if the value is not a finite number."""
    number = as_number(value)
    return max(int(number), 0) if math.isfinite(number) else 0
