"""A source: where rows come from, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from weighbridge.base import DataError
from weighbridge.data import Values


class Source:
    """Where rows come from, read block by block in bounded memory; see `open_source`.

    Args:
        start: begins an iteration over blocks of values, of any size, in order.
        num_rows: the number of rows, if known beforehand.
        reopenable: whether `blocks` can be called more than once.
        in_memory: whether all rows are in memory at once anyway (arrays, tables, one NPZ file).
        ignored_columns: columns of the file that are not numeric and were left out.
    """

    def __init__(
        self,
        start: Callable[[], Iterator[Values]],
        *,
        num_rows: int | None = None,
        reopenable: bool = True,
        in_memory: bool = False,
        ignored_columns: Sequence[str] = (),
    ) -> None:
        self._start = start
        self._started = False
        self.num_rows = num_rows
        self.reopenable = reopenable
        self.in_memory = in_memory
        self.ignored_columns = list(ignored_columns)

    def blocks(self) -> Iterator[Values]:
        """Iterate over the rows, in blocks of values."""
        if self._started and not self.reopenable:
            raise DataError(
                "This stream was already read and cannot be read twice. Open it again, or pass "
                "a file or an array."
            )
        self._started = True
        return self._start()
