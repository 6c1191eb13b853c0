"""A source of rows, read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from weighbridge.core.errors import DataError
from weighbridge.data.quarantine import Unread
from weighbridge.data.values import LeftOut, Values


class Source:
    """A source of rows, read block by block in bounded memory; see `open_source`.

    Args:
        start: starts an iteration over blocks of values, of any size, in order.
        num_rows: the number of rows, if known beforehand.
        reopenable: whether `blocks` can be called more than once.
        in_memory: whether all rows are in memory at once (arrays, tables, one NPZ file).
        left_out: columns that are not read because they do not hold numbers, each with the error to
            raise if a model reads it; for a stream, those found so far.
        unread: rows of the latest blocks that could not be parsed, by their number in the source,
            with the reason; their values are NaN.
        set_aside: files that could not be read, or not to their end, with the reason; those found
            so far.
    """

    def __init__(
        self,
        start: Callable[[], Iterator[Values]],
        *,
        num_rows: int | None = None,
        reopenable: bool = True,
        in_memory: bool = False,
        left_out: LeftOut | None = None,
        unread: Mapping[int, Unread] | None = None,
        set_aside: dict[str, str] | None = None,
    ) -> None:
        self._start = start
        self._started = False
        self.num_rows = num_rows
        self.reopenable = reopenable
        self.in_memory = in_memory
        self.left_out: LeftOut = {} if left_out is None else left_out
        self.unread: Mapping[int, Unread] = {} if unread is None else unread
        self.set_aside: dict[str, str] = {} if set_aside is None else set_aside

    @property
    def ignored_columns(self) -> list[str]:
        """Names of the columns that were left out."""
        return list(self.left_out)

    def blocks(self) -> Iterator[Values]:
        """Iterate over the rows, in blocks of values."""
        if self._started and not self.reopenable:
            raise DataError(
                "This stream was already read and cannot be read twice. Open it again, or pass "
                "a file or an array."
            )
        self._started = True
        return self._start()
