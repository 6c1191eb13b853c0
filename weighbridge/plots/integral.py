"""An integral: the estimate and its error as the number of draws grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import COLOURS, tidy
from weighbridge.plots.surface import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface


def plot_integral(
    path: Sequence[tuple[int, float, float]], *, title: str, axes: Surface | None = None
) -> Figure:
    """The estimate from the first draws, with two standard errors on either side.

    An estimate that repeatedly leaves its earlier bands has a heavy tail.

    Args:
        path: tuples of the number of draws, the estimate from them, and its standard error.
        title: text above the figure.
        axes: where to draw: an empty figure or subfigure, or a single axes.

    >>> figure = plot_integral([(100, 1.1, 0.1), (200, 1.0, 0.07)], title="1.00 +- 0.07")
    >>> figure.axes[0].get_xlabel()
    'draws'
    """
    drawn = panels(axes, (1, 1), (7.5, 3.8))
    panel = drawn.flat[0]
    draws, values, errors = np.array(path, float).T
    known = np.isfinite(errors)
    panel.fill_between(
        draws[known], (values - 2 * errors)[known], (values + 2 * errors)[known],
        color=COLOURS[0], alpha=0.2, linewidth=0, label="2 standard errors either way",
    )  # fmt: skip
    panel.plot(draws, values, marker="o", markersize=4, color=COLOURS[0], label="estimate so far")
    panel.axhline(values[-1], color="0.4", linestyle="--", linewidth=1, label="by all draws")
    panel.set_xscale("log")
    panel.set_xlabel("draws")
    panel.set_ylabel("value")
    panel.legend(fontsize="small", frameon=False)
    tidy(panel)
    drawn.heading([title])
    return drawn.figure
