"""Columns scaled to mean 0 and standard deviation 1; their moments from one pass over blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from weighbridge.core.errors import DataError

# Mean and standard deviation of columns, by name.
Scales = Mapping[str, tuple[float, float]]


def scaled(
    column: np.ndarray, mean: float | np.ndarray, deviation: float | np.ndarray
) -> np.ndarray:
    """(column - mean) / deviation, for one column or for several along the last axis.

    >>> scaled(np.array([1, 3]), 2.0, 1.0)
    array([-1.,  1.])
    """
    return (np.asarray(column, np.float64) - mean) / deviation


def measure(blocks: Iterable[Mapping[str, np.ndarray]]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of every column, over the rows in which all values are finite.

    Args:
        blocks: one-dimensional columns by name, with the same names in every block.

    >>> measure([{"a": np.array([1.0, np.nan])}, {"a": np.array([3.0])}])
    {'a': (2.0, 1.0)}

    Reference: Chan, Golub & LeVeque (1983), The American Statistician 37:242.
    """
    names: list[str] = []
    count, mean, squares = 0, np.zeros(0), np.zeros(0)
    for columns in blocks:
        if not names:
            names = list(columns)
            mean, squares = np.zeros(len(names)), np.zeros(len(names))
        block = np.stack([np.asarray(columns[name], np.float64) for name in names], axis=1)
        block = block[np.isfinite(block).all(axis=1)]
        if not len(block):
            continue
        # Combine the moments of two blocks without cancellation.
        block_mean = block.mean(axis=0)
        total = count + len(block)
        shift = block_mean - mean
        squares += ((block - block_mean) ** 2).sum(axis=0) + shift**2 * count * len(block) / total
        mean = mean + shift * len(block) / total
        count = total
    if not count:
        raise DataError("--standardise finds no complete row: in each row a value is missing.")
    deviation = np.sqrt(squares / count)
    flat = [name for name, value in zip(names, deviation) if value == 0]
    if flat:
        raise DataError(f"Column {flat[0]!r} is constant and cannot be standardised; leave it out.")
    return {n: (float(m), float(s)) for n, m, s in zip(names, mean, deviation)}
