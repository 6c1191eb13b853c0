"""The form of rows: their columns and shapes, as a cursor keeps them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from weighbridge.core.saved_content import any_text, items, truth, tuple_of, whole

# No entry or line that can be read holds more numbers in a column.
MOST_NUMBERS = 1 << 26
# An array of NumPy has at most 64 axes, and one of them counts rows.
MOST_AXES = 63
_SAVED = items(tuple_of(any_text, items(whole(0, MOST_NUMBERS)), truth))


class ColumnForm(NamedTuple):
    """A column: its name, the shape of one row in it, and whether it holds true and false."""

    name: str
    shape: tuple[int, ...]
    boolean: bool


def check_form(saved: Any, where: str) -> None:
    """ValueError for what cannot be the form of rows.

    >>> check_form([["x", [2], False], ["y", [], False]], "cursor/form")
    >>> check_form([["x", [-2], False]], "cursor/form")
    Traceback (most recent call last):
    ...
    ValueError: cursor/form/0/1/0 is -2, and a whole number from 0 to 67108864 was expected
    """
    _SAVED(saved, where)
    names = [name for name, _, _ in saved]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{where} names no column, or one of them twice")
    for number, (_, shape, _) in enumerate(saved):
        if len(shape) > MOST_AXES or math.prod(map(max, shape, [1] * len(shape))) > MOST_NUMBERS:
            raise ValueError(f"{where}/{number}/1 is too large for the shape of a row")


def form_from(saved: Any) -> list[ColumnForm]:
    """The form that a cursor holds; a ValueError if it cannot be one."""
    check_form(saved, "form")
    return [ColumnForm(name, tuple(shape), boolean) for name, shape, boolean in saved]


def saved_form(form: list[ColumnForm]) -> list[list[Any]]:
    """The form as plain JSON, as a cursor holds it."""
    return [[name, list(shape), boolean] for name, shape, boolean in form]
