"""How matplotlib labels ticks: imported where something is drawn, for it imports matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import Formatter

from weighbridge.plots.numbers import write_numbers


class PlainNumbers(Formatter):
    """Labels that say where each tick stands, with no offset or factor at the axis' end."""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Labels of all ticks of an axis."""
        return [self.fix_minus(text) for text in write_numbers(values)]

    def __call__(self, x: float, pos: Any = None) -> str:
        """The label of one tick, or the place of the pointer."""
        return self.fix_minus(write_numbers([x])[0])


class SeparateNumbers(PlainNumbers):
    """The same for a logarithmic axis, whose ticks have nothing to do with each other."""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Labels of all ticks of an axis."""
        return [self(value) for value in values]
