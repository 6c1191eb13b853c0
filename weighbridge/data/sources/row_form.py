"""The form of rows: their columns and shapes, as saved in a cursor."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from weighbridge.core.saved_content import any_text, items, truth, tuple_of, whole

# Largest number of numbers in one column of a row that can be read.
MOST_NUMBERS = 1 << 26
# A NumPy array has at most 64 axes, and one of them counts rows.
MOST_AXES = 63
_SAVED = items(tuple_of(any_text, items(whole(0, MOST_NUMBERS)), truth))


class ColumnForm(NamedTuple):
    """A column: its name, its shape in one row, and whether it holds booleans."""

    name: str
    shape: tuple[int, ...]
    boolean: bool


def check_form(saved: Any, where: str) -> None:
    """Raise a ValueError if this cannot be the form of rows.

    >>> check_form([["x", [2], False], ["y", [], False]], "cursor/form")
    >>> check_form([["x", [-2], False]], "cursor/form")
    Traceback (most recent call last):
    ...
    ValueError: cursor/form/0/1/0 is -2, and a whole number from 0 to 67108864 was expected
    """
    _SAVED(saved, where)
    names = [name for name, _, _ in saved]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{where} has no columns, or a column name twice")
    for number, (_, shape, _) in enumerate(saved):
        if len(shape) > MOST_AXES or math.prod(map(max, shape, [1] * len(shape))) > MOST_NUMBERS:
            raise ValueError(f"{where}/{number}/1 is too large for the shape of a row")


def form_from(saved: Any) -> list[ColumnForm]:
    """The form saved in a cursor; a ValueError if it is not valid."""
    check_form(saved, "form")
    return [ColumnForm(name, tuple(shape), boolean) for name, shape, boolean in saved]


def saved_form(form: list[ColumnForm]) -> list[list[Any]]:
    """The form as JSON values, for a cursor."""
    return [[name, list(shape), boolean] for name, shape, boolean in form]
