"""The first and the last rows of a long table."""

from __future__ import annotations

import numpy as np

from weighbridge.core.tables.frames import Frame, plain_columns
from weighbridge.core.tables.table import Table

# Rows that are shown from each end.
SHOWN = 5


def excerpt(frame: Frame) -> Table:
    """A table with numbered rows; the middle of a long table is left out.

    >>> print(excerpt(Frame({"power": np.linspace(0.0, 1.0, 21)})))
         power
    1        0
    2     0.05
    3      0.1
    4     0.15
    5      0.2
    ...
    17     0.8
    18    0.85
    19     0.9
    20    0.95
    21       1
    """
    columns = plain_columns(frame)
    length = len(next(iter(columns.values()), ()))
    rows: dict[str, list[float | str]] = {}
    for index in range(length):
        if SHOWN <= index < length - SHOWN and length > 2 * SHOWN + 1:
            rows["..."] = [""] * len(columns)
            continue
        rows[str(index + 1)] = [_cell(column[index]) for column in columns.values()]
    return Table(tuple(columns), rows)


def _cell(value: object) -> float | str:
    return float(value) if isinstance(value, np.number | int | float) else str(value)
