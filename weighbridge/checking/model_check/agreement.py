"""Whether two computations of the same number agree."""

from __future__ import annotations

import numpy as np

# Largest relative difference between two computations of the same number.
EXACT = 1e-9


def relative_error(values: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """|value - expected| / max(|expected|, 1); inf where one of the two is NaN.

    >>> relative_error(np.array([2.0, 0.5, -np.inf, np.nan]), np.array([4.0, 0.0, -np.inf, 1.0]))
    array([0.5, 0.5, 0. , inf])
    """
    with np.errstate(invalid="ignore"):
        error = np.abs(values - expected) / np.maximum(np.abs(expected), 1.0)
    return np.where(values == expected, 0.0, np.where(np.isnan(error), np.inf, error))
