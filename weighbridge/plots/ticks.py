"""Tick labels for matplotlib; a module of its own, because it imports matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import Formatter, MaxNLocator

from weighbridge.plots.numbers import write_numbers

# Steps between ticks, as matplotlib has them by itself.
STEPS = (1, 2, 2.5, 5, 10)
# Widths in units of the font size: of a digit, of a comma or a point, and between two labels; and
# the room that matplotlib's count of ticks leaves for each label.
DIGIT, POINT, GAP, ROOM = 0.64, 0.35, 0.6, 3.0


class PlainNumbers(Formatter):
    """Labels with the exact position of each tick, without an offset or factor at the axis."""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Labels of all ticks of an axis."""
        return [self.fix_minus(text) for text in write_numbers(values)]

    def __call__(self, x: float, pos: Any = None) -> str:
        """The label of one tick, or the position of the pointer."""
        return self.fix_minus(write_numbers([x])[0])


class SeparateNumbers(PlainNumbers):
    """Labels for a logarithmic axis, where each tick is formatted by itself."""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Labels of all ticks of an axis."""
        return [self(value) for value in values]


class ApartTicks(MaxNLocator):
    """Ticks of a horizontal axis, as few as the lengths of their labels ask for.

    Matplotlib leaves the same room for every label: 200,000 and 400,000 would touch each other.
    """

    def __init__(self) -> None:
        super().__init__("auto", steps=list(STEPS))

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Ticks at round numbers, from one end to the other."""
        ticks = super().tick_values(vmin, vmax)
        if self.axis is None or not vmax > vmin:
            return ticks
        room = ROOM * self.axis.get_tick_space() / (vmax - vmin)
        for bins in range(len(ticks) - 1, 0, -1):
            needed = max(map(_width, write_numbers(ticks)), default=0.0)
            if len(ticks) < 3 or np.min(np.diff(ticks)) * room >= needed:
                break
            ticks = MaxNLocator(bins, steps=list(STEPS)).tick_values(vmin, vmax)
        return ticks


def _width(label: str) -> float:
    """How wide a label is, with the gap to the next, in units of the font size."""
    points = sum(label.count(letter) for letter in ",.")
    return GAP + POINT * points + DIGIT * (len(label) - points)
