"""Checks of numbers that the user gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from weighbridge.core.errors import MethodError


def check_seed(seed: object) -> None:
    """Refuse a value that cannot be a seed of random numbers."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= int(seed) < 2**63:  # type: ignore[call-overload]
        raise MethodError(f"seed must be a whole number from 0 to 2^63 - 1, not {seed!r}.")


def check_count(name: str, value: object, least: int = 1) -> None:
    """Refuse a value that is not a whole number, or is too small."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or int(value) < least:  # type: ignore[call-overload]
        raise MethodError(f"{name} must be a whole number of at least {least}, not {value!r}.")


def require_counts(method: object, *names: str) -> None:
    """Refuse settings that are not whole numbers of at least 1."""
    for name in names:
        check_count(name, getattr(method, name))


def require_particles(method: Any) -> None:
    """Require at least one island, and at least two particles per island."""
    require_counts(method, "num_islands", "num_particles")
    if method.num_particles < 2:
        raise MethodError("num_particles must be at least 2: one particle has no spread.")


def require_fraction(method: object, name: str) -> None:
    """Refuse a value that is not a fraction of the particles, between 0 and 1."""
    value = getattr(method, name)
    if not isinstance(value, int | float):
        raise MethodError(f"{name} must be a number, not {value!r}.")
    if not 0 < value < 1:
        raise MethodError(
            f"{name} must lie between 0 and 1, not {value!r}: it is a fraction of the particles."
        )
