"""Valid cursors: what they may hold, declared for all feeds and checked before reading.

A cursor comes from a checkpoint, and a file can be crafted. Therefore it may name only files of the
watched folder, and numbers that count rows, lines or bytes may not be negative. Links inside the
folder are the responsibility of the feed.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from typing import Any

from weighbridge.core.errors import CheckpointError, DataError
from weighbridge.core.saved_content import (
    any_text,
    anything,
    items,
    maybe,
    record,
    text,
    tuple_of,
    whole,
)
from weighbridge.data.feeds.base import Cursor
from weighbridge.data.sources.row_form import check_form

# Identifiers are whole numbers of any size, such as those of a database.
LARGEST_IDENTIFIER = 10**40
ENTRY_ID = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII)


def _file_name(value: Any, where: str) -> None:
    """A name inside a folder, which cannot lead out of it; any bytes that the system allows."""
    any_text(value, where)
    leads_out = value in ("", ".", "..") or os.path.basename(value) != value
    if leads_out or "\0" in value or not _is_encodable(value):
        raise ValueError(f"{where} is {value[:60]!r}, and the name of a file was expected")


def _is_encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def _entry_id(value: Any, where: str) -> None:
    """The ID of an entry of a Redis stream: two numbers of 64 bits."""
    text(value, where)
    if not ENTRY_ID.fullmatch(value) or max(map(int, value.split("-"))) >= 2**64:
        raise ValueError(f"{where} is {value[:60]!r}, and the ID of an entry was expected")


# Checks by the names that feeds use; each feed checks which of them it needs.
CURSOR = record(
    {"offset": whole()},
    {
        "byte": whole(),
        "line": whole(1),
        "row": whole(),
        "item": whole(),
        "file": whole(),
        "taken": whole(),
        "ordinal": whole(),
        "name": _file_name,
        "id": _entry_id,
        "columns": maybe(items(text, different=True)),
        "form": check_form,
        "generation": whole(),
        "marks": items(tuple_of(whole(), _entry_id, text)),
    },
    others=anything,
)
IDENTIFIERS = record(
    {
        "texts": items(any_text, different=True),
        "stretches": items(tuple_of(*[whole(-LARGEST_IDENTIFIER, LARGEST_IDENTIFIER)] * 2)),
    }
)


def check_cursor(cursor: Any, what: str) -> None:
    """Refuse a cursor that is not valid.

    Args:
        cursor: the cursor of a chunk, or None for the beginning.
        what: the feed, in words.

    >>> check_cursor({"name": "../../etc/secret.csv", "offset": 0}, "files in data")
    Traceback (most recent call last):
    ...
    weighbridge.core.errors.DataError: This is no place in files in data: cursor/name is
    '../../etc/secret.csv', and the name of a file was expected. Use another checkpoint, or start
    anew.
    """
    if cursor is None:
        return
    try:
        CURSOR(cursor, "cursor")
    except ValueError as error:
        raise DataError(
            f"This is no place in {what}: {error}. Use another checkpoint, or start anew."
        ) from error


def check_identifiers(state: Mapping[str, Any]) -> None:
    """Refuse identifiers in an order in which a duplicate could be missed."""
    IDENTIFIERS(state, "identifiers")
    stretches = state["stretches"]
    edges = [number for stretch in stretches for number in stretch]
    gaps = all(before[1] + 1 < after[0] for before, after in itertools.pairwise(stretches))
    if edges != sorted(edges) or not gaps:
        raise ValueError("identifiers that were seen do not ascend")


def rows_before(cursor: Cursor) -> int | None:
    """Number of rows of the source before a place, if the place alone determines it.

    >>> rows_before({"offset": 40}), rows_before({"item": 2, "row": 30, "offset": 5})
    (40, 35)
    """
    first_file = cursor.get("file") == 0 and "row" in cursor
    if set(cursor) == {"offset"} or "item" in cursor or first_file:
        return int(cursor.get("row", 0)) + int(cursor["offset"])
    return None


def check_not_behind(cursor: Any, rows_read: int, what: str) -> None:
    """Refuse a place before rows that were already weighed: they would count twice.

    Args:
        cursor: where reading should continue.
        rows_read: number of rows that the models have got.
        what: the feed, in words.
    """
    check_cursor(cursor, what)
    before = None if cursor is None else rows_before(cursor)
    if before is not None and before < rows_read:
        raise CheckpointError(
            f"The checkpoint goes on after row {before:,} of {what}, and {rows_read:,} rows were "
            "weighed already: some would count twice. Use another checkpoint, or start anew."
        )
