"""The order in which rows are used: as given, or random if the given order matters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from jax import tree_util

from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.types import PyTree
from weighbridge.data.values import num_rows

# Rows of the first segment to compare with all rows; each later segment doubles the rows covered.
FIRST_SEGMENT = 256
# Largest number of rows compared, of a segment and of all; and of columns (at least one per leaf).
SAMPLE = 4096
MOST_COLUMNS = 64
# Probability of a false alarm for rows in random order, for one column of one segment.
FALSE_ALARM = 1e-9


def order_matters(values: PyTree) -> bool:
    r"""Whether some segment of the rows differs from all rows, in some column, beyond chance.

    Rows that are sorted by a label, or by time while the process changes, have a different
    distribution at the start than at the end. A posterior that takes them in this order first
    follows the early rows and must then move. Segments that double in length are compared with all
    rows, column by column, by the largest distance between the empirical distribution functions of
    a and b rows (Kolmogorov and Smirnov),

    .. math:: \sup_x |F_a(x) - F_b(x)| > \sqrt{-\tfrac12 \log\tfrac{\alpha}{2}
              \; (1/a + 1/b)}.

    A change only in the relation of columns, such as the sign of a slope, is not detected; nor is a
    shift of less than about a seventh of a standard deviation.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 5000)
    >>> order_matters({"y": y}), order_matters({"y": np.sort(y)})
    (False, True)
    """
    rows = num_rows(values)
    if rows <= FIRST_SEGMENT:
        return False
    leaves = [np.asarray(leaf) for leaf in tree_util.tree_leaves(values)]
    numbers = random_numbers(0, Stream.ORDER_TESTS)
    chosen = _sample(numbers, 0, rows)
    whole = [_columns(leaf, chosen, len(leaves)) for leaf in leaves]
    start, stop = 0, FIRST_SEGMENT
    while start < rows:
        part = _sample(numbers, start, stop)
        most = math.sqrt(-0.5 * math.log(FALSE_ALARM / 2) * (1 / len(part) + 1 / len(chosen)))
        for leaf, all_rows in zip(leaves, whole):
            pairs = zip(_columns(leaf, part, len(leaves)).T, all_rows.T)
            if any(_distance(*pair) > most for pair in pairs):
                return True
        start, stop = stop, min(2 * stop, rows)
    return False


def _sample(numbers: np.random.Generator, start: int, stop: int) -> np.ndarray:
    """A sample of the rows of a segment, or all rows if they are few."""
    if stop - start <= SAMPLE:
        return np.arange(start, stop)
    return numbers.integers(start, stop, SAMPLE)


def _columns(leaf: np.ndarray, chosen: np.ndarray, num_leaves: int) -> np.ndarray:
    """Some rows of a leaf as a matrix, with a limited number of its columns."""
    width = math.prod(leaf.shape[1:])
    stride = max(-(-width * num_leaves // MOST_COLUMNS), 1)
    places = np.unravel_index(np.arange(0, width, stride), leaf.shape[1:] or (1,))
    if leaf.ndim == 1:
        return np.asarray(leaf[chosen][:, None])
    return np.asarray(leaf[(chosen[:, None], *places)])


def _distance(first: np.ndarray, second: np.ndarray) -> float:
    """The largest distance between two empirical distribution functions.

    >>> _distance(np.array([1.0, 2.0]), np.array([2.0, 3.0]))
    0.5
    """
    first, second = np.sort(first), np.sort(second)
    places = np.concatenate([first, second])
    heights = [np.searchsorted(own, places, side="right") / len(own) for own in (first, second)]
    return float(np.max(np.abs(heights[0] - heights[1])))


def in_random_order(
    values: PyTree, seed: int, first_island: int, size_after: Callable[[int], int]
) -> Iterator[PyTree]:
    """Chunks of rows in an order determined by seed, first island and number of rows.

    The rows are not copied as a whole.

    >>> [chunk.tolist() for chunk in in_random_order(np.arange(4), 0, 0, lambda seen: 2)]
    [[..., ...], [..., ...]]
    """
    rows = num_rows(values)
    order = random_numbers(seed, Stream.ROW_ORDER, first_island).permutation(rows)
    start = 0
    while start < rows:
        chosen = order[start : start + size_after(start)]
        yield tree_util.tree_map(lambda leaf: np.take(leaf, chosen, axis=0), values)  # noqa: B023
        start += len(chosen)
