"""The path of an estimate, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from weighbridge.core.pickling import travels
from weighbridge.core.tables.excerpt import excerpt
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown


@travels()
class Trace(Tabular, Shown, Mapping[str, np.ndarray]):
    """The path of an estimate: columns of equal length, by name or as attributes.

    >>> trace = Trace(rows=np.array([500, 1000]), log_evidence=np.array([-700.0, -1400.0]))
    >>> trace["rows"].tolist(), trace.rows.tolist(), list(trace)
    ([500, 1000], [500, 1000], ['rows', 'log_evidence'])
    """

    def __init__(self, **columns: np.ndarray) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name]

    def __getattr__(self, name: str) -> np.ndarray:
        if name.startswith("_"):  # also _columns itself, during copying
            raise AttributeError(name)
        if name not in self._columns:
            raise AttributeError(f"The trace has the columns {list(self._columns)}, not {name!r}.")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        length = len(next(iter(self._columns.values()), ()))
        return f"Trace({', '.join(self._columns)}; {length} points)"

    def _frame(self) -> Frame:
        return Frame(self._columns)

    def _page(self) -> Page:
        table = excerpt(self._frame())
        return Page(repr(self), table.columns, table.texts())

    def _small_figure(self) -> None:
        """None: the path is drawn in the figure of its evidence."""
