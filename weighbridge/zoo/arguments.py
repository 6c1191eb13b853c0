"""Checks of the numeric arguments of a model; each error names the argument."""

from __future__ import annotations

import math
import operator
from typing import Any

from weighbridge.core.errors import ModelError


def check_count(name: str, value: Any, least: int = 1) -> int:
    """An integer that is at least ``least``.

    >>> check_count("num_features", 3)
    3
    """
    try:
        count = operator.index(value)
    except TypeError:
        count = least - 1
    if isinstance(value, bool) or count < least:
        raise ModelError(f"{name} must be an integer of at least {least}, not {value!r}.")
    return count


def check_finite(name: str, value: Any) -> float:
    """A finite real number.

    >>> check_finite("prior_mean", -2)
    -2.0
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ModelError(f"{name} must be a finite number, not {value!r}.")
    return number


def check_positive(name: str, value: Any) -> float:
    """A finite real number above zero.

    >>> check_positive("noise", 2)
    2.0
    """
    try:
        number = check_finite(name, value)
    except ModelError:
        number = -1.0
    if number <= 0:
        raise ModelError(f"{name} must be a finite number above 0, not {value!r}.")
    return number
