"""What reading a file gives: a head that tells its columns, then blocks, each with its position."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from weighbridge.base import DataError

Position = dict[str, int]
Reader = Generator[Any, None, None]  # a Head, then blocks, each after its position


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
        raise DataError(f"No column holds numbers (columns: {', '.join(present)}).")
    if rows == 0:
        raise NoRowsError("There are no rows. Write at least one row of data.")
    return Head(kept, [name for name in present if name not in kept], rows)


def file_changed(has: str, place: str) -> DataError:
    """The error of a file that no longer has the place where reading was to go on."""
    return DataError(
        f"It has {has}, and reading was to go on at {place}: the file is not what it was. Restore "
        "it, or start anew."
    )
