"""Settings that make no sense, refused by name."""

from __future__ import annotations

from typing import Any

from weighbridge.base import MethodError
from weighbridge.numerics import check_count


def require_counts(method: object, *names: str) -> None:
    """Refuse settings that are not whole numbers of at least 1."""
    for name in names:
        check_count(name, getattr(method, name))


def require_particles(method: Any) -> None:
    """Refuse no islands, and islands of one particle."""
    require_counts(method, "num_islands", "num_particles")
    if method.num_particles < 2:
        raise MethodError("num_particles must be at least 2: one particle has no spread.")


def require_fraction(method: object, name: str) -> None:
    """Refuse what is no fraction of the particles."""
    value = getattr(method, name)
    if not isinstance(value, int | float):
        raise MethodError(f"{name} must be a number, not {value!r}.")
    if not 0 < value < 1:
        raise MethodError(
            f"{name} must lie between 0 and 1, not {value!r}: it is a fraction of the particles."
        )
