"""When two ways to one number agree."""

from __future__ import annotations

import numpy as np

# Relative difference between two ways to one number.
EXACT = 1e-9


def relative_error(values: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The difference, as a share of the expected value where that is large; NaN agrees with none.

    >>> relative_error(np.array([2.0, 0.5, -np.inf, np.nan]), np.array([4.0, 0.0, -np.inf, 1.0]))
    array([0.5, 0.5, 0. , inf])
    """
    with np.errstate(invalid="ignore"):
        error = np.abs(values - expected) / np.maximum(np.abs(expected), 1.0)
    return np.where(values == expected, 0.0, np.where(np.isnan(error), np.inf, error))
