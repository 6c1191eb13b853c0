"""The contents that a saved file must have: declared once, as data, and checked in one place.

A digest detects damage, but not forgery: anyone who can write a file can also write its digest.
Therefore the contents are compared with a declaration before they are used, and differences are
named.

    DECLARED = record({"rows": whole(), "error": real(0, nan=True), "flags": items(text())})
    DECLARED(metadata, "metadata")          # a ValueError names the entry and what it must be
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# A check takes a value and the name of its place, and raises a ValueError if the value is wrong.
Check = Callable[[Any, str], None]

# Whole numbers up to this are exact as floats; no count in a file comes near it.
MOST = 2**53
LARGEST = float(np.finfo(np.float64).max)
# Lists that are nested more deeply than this are refused.
DEEPEST = 50


def whole(least: int = 0, most: int = MOST) -> Check:
    """A whole number.

    >>> whole()(-1, "rows")
    Traceback (most recent call last):
    ...
    ValueError: rows is -1, and a whole number from 0 to 9007199254740992 was expected
    """

    def check(value: Any, where: str) -> None:
        if type(value) is not int or not least <= value <= most:
            raise _unexpected(value, where, f"a whole number from {least} to {most}")

    return check


def real(least: float = -LARGEST, most: float = LARGEST, *, nan: bool = False) -> Check:
    """A number between two bounds; by default, any finite number.

    Args:
        least: the smallest value allowed.
        most: the largest value allowed.
        nan: whether NaN (unknown) is allowed.
    """

    def check(value: Any, where: str) -> None:
        number = type(value) is float or (type(value) is int and abs(value) <= MOST)
        unknown = number and nan and math.isnan(value)
        if not number or not (unknown or least <= value <= most):
            raise _unexpected(value, where, f"a number from {least:g} to {most:g}")

    return check


def text(value: Any, where: str) -> None:
    """A text that can be written as UTF-8; one with half of a surrogate pair cannot."""
    if not isinstance(value, str) or not _is_writable(value):
        raise _unexpected(value, where, "a text")


def any_text(value: Any, where: str) -> None:
    """A text that is only compared with others, such as a file name, which may be any bytes."""
    if not isinstance(value, str):
        raise _unexpected(value, where, "a text")


def truth(value: Any, where: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise _unexpected(value, where, "true or false")


def one_of(*choices: Any) -> Check:
    """One of a few values."""

    def check(value: Any, where: str) -> None:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise _unexpected(value, where, f"one of {list(choices)}")

    return check


def maybe(inner: Check) -> Check:
    """A value of a given kind, or None."""

    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

    return check


def items(inner: Check, *, different: bool = False) -> Check:
    """A list of any length.

    Args:
        inner: the check of each item.
        different: whether all items must differ.
    """

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise _unexpected(value, where, "a list")
        for number, item in enumerate(value):
            inner(item, f"{where}/{number}")
        if different and len(set(value)) != len(value):
            raise ValueError(f"{where} names something twice")

    return check


def tuple_of(*inner: Check) -> Check:
    """A list of fixed length, with a separate check for each item."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) != len(inner):
            raise _unexpected(value, where, f"a list of {len(inner)}")
        for number, (item, its) in enumerate(zip(value, inner)):
            its(item, f"{where}/{number}")

    return check


def record(
    required: Mapping[str, Check],
    optional: Mapping[str, Check] | None = None,
    others: Check | None = None,
) -> Check:
    """Values by name.

    Args:
        required: names that must be present.
        optional: names that may be present.
        others: the check for all other names; None allows no other names.
    """
    known = {**required, **(optional or {})}

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _unexpected(value, where, "entries by name")
        for name in required:
            if name not in value:
                raise ValueError(f"{where} has no entry {name!r}")
        for name, item in value.items():
            text(name, f"a name in {where}")
            inner = known.get(name, others)
            if inner is None:
                raise ValueError(f"{where} has an entry {name!r}, which is not expected there")
            inner(item, f"{where}/{name}")

    return check


def anything(value: Any, where: str, depth: int = 0) -> None:
    """Plain values and texts of any kind, with limited nesting."""
    if depth > DEEPEST:
        raise ValueError(f"{where} is nested more than {DEEPEST} times")
    if isinstance(value, list):
        for item in value:
            anything(item, where, depth + 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            text(name, f"a name in {where}")
            anything(item, where, depth + 1)


@dataclass(frozen=True)
class Numbers:
    """The properties that an array must have.

    Args:
        kinds: allowed kinds of numbers, as NumPy's letters: "f" (double precision), "i", "u", "b".
        shape: its sizes: a number, or a name that stands for the same size in all arrays. None does
            not check the shape; a last ``...`` allows further axes.
        least: the smallest value allowed; by default the smallest finite number.
        most: the largest value allowed; by default the largest finite number.
        nan: whether NaN (unknown) is allowed.
    """

    kinds: str = "f"
    shape: tuple[Any, ...] | None = None
    least: float = -LARGEST
    most: float = LARGEST
    nan: bool = False

    def check(self, array: np.ndarray, where: str, sizes: dict[str, int]) -> None:
        """Refuse an array that does not fit; sizes with a new name are added to ``sizes``.

        >>> Numbers(shape=("draws",)).check(np.array([0.0, np.nan]), "log_weights", {})
        Traceback (most recent call last):
        ...
        ValueError: log_weights holds NaN
        """
        kind = array.dtype.kind
        if kind not in self.kinds or (kind == "f" and array.dtype != np.float64):
            raise ValueError(f"{where} is of type {array.dtype}")
        if self.shape is not None:
            self._check_shape(array, where, sizes)
        if kind == "b" or not array.size:
            return
        if kind == "f" and np.isnan(array).any():
            if not self.nan:
                raise ValueError(f"{where} holds NaN")
            array = array[~np.isnan(array)]
        if array.size and not (self.least <= array.min() and array.max() <= self.most):
            raise ValueError(
                f"{where} holds numbers from {array.min()} to {array.max()}, beyond "
                f"{self.least:g} to {self.most:g}"
            )

    def _check_shape(self, array: np.ndarray, where: str, sizes: dict[str, int]) -> None:
        wanted: Sequence[Any] = self.shape or ()
        found = array.shape
        if wanted and wanted[-1] is ...:
            wanted = wanted[:-1]
            found = found[: len(wanted)]
        if len(found) == len(wanted):
            pairs = zip(wanted, found)
            expected = [sizes.setdefault(w, f) if isinstance(w, str) else w for w, f in pairs]
            if list(found) == expected:
                return
            wanted = expected
        raise ValueError(f"{where} has the shape {array.shape}, not {tuple(wanted)}")


def check_arrays(
    arrays: Mapping[str, np.ndarray],
    declared: Mapping[str, Numbers],
    sizes: dict[str, int] | None = None,
) -> dict[str, int]:
    """Compare arrays with their declarations.

    Args:
        arrays: by name.
        declared: by a regular expression for their names; the first match is used.
        sizes: sizes that are already known, by name.

    Returns:
        All named sizes.

    >>> declared = {"a": Numbers(shape=("rows",)), "b": Numbers("i", ("rows",), least=0)}
    >>> check_arrays({"a": np.zeros(3), "b": np.arange(3)}, declared)
    {'rows': 3}
    """
    sizes = {} if sizes is None else dict(sizes)
    for name, array in arrays.items():
        wanted = next((d for pattern, d in declared.items() if re.fullmatch(pattern, name)), None)
        if wanted is None:
            raise ValueError(f"there is an array {name!r}, which is not expected here")
        wanted.check(array, name, sizes)
    return sizes


def _is_writable(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _unexpected(value: Any, where: str, wanted: str) -> ValueError:
    shown = repr(value) if type(value) is not int or abs(value) < 10**30 else "a huge number"
    shown = f"{shown[:60]}..." if len(shown) > 64 else shown
    return ValueError(f"{where} is {shown}, and {wanted} was expected")
