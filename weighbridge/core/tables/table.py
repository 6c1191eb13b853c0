"""A small table of numbers that can be printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weighbridge.core.pickling import travels
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown


@travels()
@dataclass(frozen=True)
class Table(Tabular, Shown):
    """A small table of numbers that can be printed; ``table[row, column]`` reads a cell.

    >>> table = Table(("mean", "sd"), {"mu": (0.5, 0.1)})
    >>> print(table)
        mean   sd
    mu   0.5  0.1
    >>> table["mu", "sd"]
    0.1

    Attributes:
        columns: their names.
        rows: one cell per column, by the name of the row.
        notes: cautions about the numbers; printed below them.
    """

    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[float | str]]
    notes: tuple[str, ...] = ()

    def __getitem__(self, cell: tuple[str, str]) -> float | str:
        row, column = cell
        return self.rows[row][self.columns.index(column)]

    def texts(self) -> dict[str, list[str]]:
        """The cells as they are printed, by the name of the row.

        >>> Table(("mean", "sd"), {"mu": (0.5, 0.1)}).texts()
        {'mu': ['0.5', '0.1']}
        """
        return {
            name: [self._text(column, value) for column, value in zip(self.columns, values)]
            for name, values in self.rows.items()
        }

    def _text(self, column: str, value: float | str) -> str:
        return value if isinstance(value, str) else f"{value:.4g}"

    def _frame(self) -> Frame:
        columns = {
            name: [row[k] for row in self.rows.values()] for k, name in enumerate(self.columns)
        }
        return Frame(columns, list(self.rows))

    def _page(self) -> Page:
        return Page("", self.columns, self.texts(), self.notes)

    def __str__(self) -> str:
        body = [[name, *cells] for name, cells in self.texts().items()]
        grid = [["", *self.columns], *body]
        widths = [max(len(row[k]) for row in grid) for k in range(len(grid[0]))]
        lines = []
        for row in grid:
            cells = [row[0].ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *self.notes])
