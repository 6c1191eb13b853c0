"""Results in other people's forms: a text table, an ArviZ data tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weighbridge.base import MissingDependencyError


@dataclass(frozen=True)
class Table:
    """A small table of numbers that prints itself; ``table[row, column]`` reads a cell.

    >>> table = Table(("mean", "sd"), {"mu": (0.5, 0.1)})
    >>> print(table)
        mean   sd
    mu   0.5  0.1
    >>> table["mu", "sd"]
    0.1
    """

    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[float | str]]

    def __getitem__(self, cell: tuple[str, str]) -> float | str:
        row, column = cell
        return self.rows[row][self.columns.index(column)]

    def __str__(self) -> str:
        body = [[name, *(_cell(value) for value in values)] for name, values in self.rows.items()]
        grid = [["", *self.columns], *body]
        widths = [max(len(row[k]) for row in grid) for k in range(len(grid[0]))]
        lines = []
        for row in grid:
            cells = [row[0].ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def summarise(samples: Mapping[str, np.ndarray], weights: np.ndarray, probability: float) -> Table:
    """Weighted mean, standard deviation and equal-tailed interval of each scalar entry."""
    tail = 0.5 * (1 - probability)
    columns = ("mean", "sd", f"{100 * tail:g}%", "50%", f"{100 * (1 - tail):g}%")
    rows: dict[str, tuple[float, ...]] = {}
    for name, draws in samples.items():
        for index in np.ndindex(draws.shape[1:]):
            label = f"{name}[{','.join(map(str, index))}]" if index else name
            values = draws[(slice(None), *index)]
            mean = float(np.sum(weights * values))
            deviation = float(np.sqrt(np.sum(weights * (values - mean) ** 2)))
            # Not interpolated: a far draw of next to no weight must not pull at a quantile.
            points = np.quantile(
                values, (tail, 0.5, 1 - tail), weights=weights, method="inverted_cdf"
            )
            rows[label] = (mean, deviation, *map(float, points))
    return Table(columns, rows)


def to_arviz(samples: Mapping[str, np.ndarray]) -> Any:
    """Equally weighted draws as an ArviZ data tree with one chain."""
    try:
        from arviz_base import from_dict
    except ImportError as error:
        raise MissingDependencyError(
            'to_arviz() needs arviz-base: pip install "weighbridge[arviz]".'
        ) from error
    return from_dict({"posterior": {name: draws[None] for name, draws in samples.items()}})
