"""Tick labels for matplotlib; a module of its own, because it imports matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import Formatter

from weighbridge.plots.numbers import write_numbers


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
