"""Results of reading a file: a head with its columns, then blocks, each with its position."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from weighbridge.core.errors import DataError
from weighbridge.data.quarantine import Unread
from weighbridge.data.sources.requested_columns import named
from weighbridge.data.values import Values

Position = dict[str, int]
Reader = Generator[Any, None, None]  # yields a Head, then Blocks


class Block(NamedTuple):
    """Rows of a file.

    Attributes:
        position: position of the first row, at which reading can continue.
        values: the rows; values that could not be parsed are NaN.
        unread: rows that could not be parsed, by their number in the block (from 0), with the
            reason.
    """

    position: Position
    values: Values
    unread: Mapping[int, Unread] = MappingProxyType({})


class Head(NamedTuple):
    """The first item of a file reader: kept and ignored columns, and the number of rows."""

    kept: list[str]
    ignored: list[str]
    num_rows: int | None


class NoRowsError(DataError):
    """A complete file without rows."""


def make_head(kept: list[str], present: Sequence[str], rows: int | None) -> Head:
    """A head with the kept columns among those present; DataError if there is nothing to read."""
    if not kept:
        raise DataError(f"No column holds numbers (columns: {named(present)}).")
    if rows == 0:
        raise NoRowsError("There are no rows. Write at least one row of data.")
    chosen = set(kept)
    return Head(kept, [name for name in present if name not in chosen], rows)


class FileChangedError(DataError):
    """The position at which reading should continue does not exist any more in the file."""


def file_changed(has: str, place: str) -> FileChangedError:
    """The error for a file in which the position to continue at does not exist any more."""
    return FileChangedError(
        f"It has {has}, but reading should continue at {place}: the file has changed. Restore "
        "it, or start again."
    )
