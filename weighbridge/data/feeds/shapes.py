"""The shape of every column in a row, set by the first rows; all files must have it."""

from __future__ import annotations

from typing import Any

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.base import Cursor
from weighbridge.data.values import Values

# The key of a cursor for the shapes, so that a resumed run knows those of the first rows.
KEY = "shapes"


class Shapes:
    """The known shapes; empty before the first rows.

    >>> import numpy as np
    >>> shapes = Shapes()
    >>> shapes.check({"y": np.zeros((5, 2))})
    >>> shapes.known
    {'y': [2]}
    >>> shapes.check({"y": np.zeros(5)})
    Traceback (most recent call last):
    ...
    weighbridge.core.errors.DataError: Column 'y' has shape () per row, and had (2,) before. Give
    every file the same columns.
    """

    def __init__(self) -> None:
        self.known: dict[str, list[int]] | None = None

    def restore(self, cursor: Cursor | None) -> None:
        """Use the shapes of a cursor; an older cursor has none."""
        saved: Any = None if cursor is None else cursor.get(KEY)
        if isinstance(saved, dict) and all(isinstance(shape, list) for shape in saved.values()):
            self.known = saved

    def check(self, values: Values) -> None:
        """Raise a DataError unless the columns have the earlier shapes."""
        if not isinstance(values, dict):
            return
        found = {name: list(column.shape[1:]) for name, column in values.items()}
        self.known = self.known or found
        for name, shape in found.items():
            if name in self.known and shape != self.known[name]:
                raise DataError(
                    f"Column {name!r} has shape {tuple(shape)} per row, and had "
                    f"{tuple(self.known[name])} before. Give every file the same columns."
                )
