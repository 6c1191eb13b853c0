"""Cut, join and pad blocks of values to a given number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from jax import tree_util

from weighbridge.core.errors import DataError
from weighbridge.data.columns import NumpyArray
from weighbridge.data.values import Values, num_rows


def _check_size(size: int) -> None:
    if size < 1:
        raise DataError(f"size is {size}. Use a chunk size of at least one row.")


def slice_rows(values: Values, start: int, stop: int | None) -> Values:
    """Some rows of a block, as views."""
    return tree_util.tree_map(lambda leaf: leaf[start:stop], values)


def split(values: Values, size: int) -> Iterator[Values]:
    """Cut one block into views of at most `size` rows.

    >>> list(split(np.arange(5), 2))
    [array([0, 1]), array([2, 3]), array([4])]
    """
    _check_size(size)
    return (slice_rows(values, i, i + size) for i in range(0, num_rows(values), size))


def rechunk(blocks: Iterable[Values], size: int | Callable[[int], int]) -> Iterator[Values]:
    """Cut a stream of blocks into chunks of exactly `size` rows; the last may be shorter.

    Args:
        blocks: values of any number of rows.
        size: rows per chunk, or a function of the number of rows in all earlier chunks.

    Returns:
        The chunks, in order; a chunk inside a single block is a view of it.

    >>> list(rechunk([np.arange(3), np.arange(3, 5)], 2))
    [array([0, 1]), array([2, 3]), array([4])]
    >>> list(rechunk([np.arange(5)], lambda before: max(before, 1)))
    [array([0]), array([1]), array([2, 3]), array([4])]
    """
    if callable(size):
        return _rechunk(blocks, size)
    _check_size(size)
    return _rechunk(blocks, lambda _: size)


def _rechunk(blocks: Iterable[Values], size_after: Callable[[int], int]) -> Iterator[Values]:
    pending: list[Values] = []
    num_pending, before = 0, 0
    size = size_after(before)
    for block in blocks:
        start, rows = 0, num_rows(block)
        while start < rows:
            stop = min(rows, start + size - num_pending)
            pending.append(slice_rows(block, start, stop))
            num_pending += stop - start
            start = stop
            if num_pending == size:
                yield join(pending)
                before += size
                pending, num_pending, size = [], 0, size_after(before)
    if pending:
        yield join(pending)


def join(pieces: Sequence[Values]) -> Values:
    """Join several blocks to one; a single block is not copied."""
    if len(pieces) == 1:
        return pieces[0]
    return tree_util.tree_map(lambda *leaves: np.concatenate(leaves), *pieces)


def pad(values: Values, weight: NumpyArray, size: int) -> tuple[Values, NumpyArray]:
    """Pad to `size` rows by repeating the first row with weight 0.

    A row of zeros could give a gradient of 0 * NaN; a row of the data is valid for the model.

    Args:
        values: at least one and at most `size` rows.
        weight: one weight per row.
        size: the requested number of rows.

    Returns:
        The padded values and weights.

    >>> pad(np.array([3.0, 4.0]), np.ones(2), 4)
    (array([3., 4., 3., 3.]), array([1., 1., 0., 0.]))
    """
    rows = num_rows(values)
    check_weight(weight, rows)
    if not 1 <= rows <= size:
        raise DataError(f"Cannot pad {rows} rows to size {size}. Use 1 to {size} rows.")
    extra = np.zeros(size - rows, dtype=np.int64)
    if not len(extra):
        return values, weight
    padded = tree_util.tree_map(lambda leaf: np.concatenate([leaf, leaf[extra]]), values)
    return padded, np.concatenate([weight, np.zeros(len(extra))])


def check_weight(weight: NumpyArray, rows: int) -> None:
    """Raise a DataError unless there is one weight per row."""
    if np.shape(weight) != (rows,):
        raise DataError(
            f"weight has shape {np.shape(weight)}, but there are {rows} rows. "
            f"Pass one weight per row, shape ({rows},)."
        )
