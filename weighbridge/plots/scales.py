"""Axes of log Bayes factors, which range from a fraction of a nat to thousands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from weighbridge.plots.numbers import minus

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def bend_factors(
    axes: Axes, along: Literal["x", "y"], lowest: float, highest: float, decisive: float
) -> None:
    """Linear scale for moderate factors; otherwise logarithmic outside the decisive range."""
    if lowest > -20 * decisive and highest < 20 * decisive:
        return
    scale: dict[str, Any] = {"linthresh": 2 * decisive}
    decades = math.ceil(math.log10(max(-lowest, highest)))
    tens = [10.0**k for k in range(1, decades + 1, 1 + decades // 4)]
    ticks = [value for ten in tens for value in (-ten, ten) if 1.5 * lowest <= value <= highest]
    ticks = sorted([0.0, *ticks])
    labels = [minus(f"{tick:,.0f}") for tick in ticks]
    ends = (1.6 * min(lowest, -decisive), max(1.6 * highest, 0.4 * decisive))
    if along == "x":
        axes.set_xscale("symlog", **scale)
        axes.set_xticks(ticks, labels)
        axes.set_xlim(ends)
    else:
        axes.set_yscale("symlog", **scale)
        axes.set_yticks(ticks, labels)
        axes.set_ylim(ends)
