"""What reading a file gives: a head that tells its columns, then blocks, each with its position."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from weighbridge.core.errors import DataError
from weighbridge.data.quarantine import Unread
from weighbridge.data.sources.requested_columns import named
from weighbridge.data.values import Values

Position = dict[str, int]
Reader = Generator[Any, None, None]  # a Head, then a Block after the other


class Block(NamedTuple):
    """Rows of a file.

    Attributes:
        position: of the first of them: reading can go on there.
        values: the rows; what could not be read of one is NaN.
        unread: rows of the block, counted from 0, that could not be read, and why.
    """

    position: Position
    values: Values
    unread: Mapping[int, Unread] = MappingProxyType({})


class Head(NamedTuple):
    """What a file reader yields before the blocks."""

    kept: list[str]
    ignored: list[str]
    num_rows: int | None


class NoRowsError(DataError):
    """A file that is whole and has no rows."""


def make_head(kept: list[str], present: Sequence[str], rows: int | None) -> Head:
    """A head with the kept ones of the columns present; DataError if there is nothing to read."""
    if not kept:
        raise DataError(f"No column holds numbers (columns: {named(present)}).")
    if rows == 0:
        raise NoRowsError("There are no rows. Write at least one row of data.")
    chosen = set(kept)
    return Head(kept, [name for name in present if name not in chosen], rows)


class FileChangedError(DataError):
    """A file that no longer has the place where reading was to go on."""


def file_changed(has: str, place: str) -> FileChangedError:
    """The error of a file that no longer has the place where reading was to go on."""
    return FileChangedError(
        f"It has {has}, and reading was to go on at {place}: the file is not what it was. Restore "
        "it, or start anew."
    )
