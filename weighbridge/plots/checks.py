"""Statistics of simulated data compared with those of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import COLOURS, few_ticks, num_bins, shorten, tidy, whole_numbers
from weighbridge.plots.surface import several_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

NUM_COLUMNS = 2


def plot_checks(
    simulated: Mapping[str, np.ndarray],
    observed: Mapping[str, float],
    probabilities: Mapping[str, float],
    *,
    axes: Surface | None = None,
) -> Figure:
    """Histogram of every statistic over simulated data, with a line at the value of the data.

    Args:
        simulated: values of each statistic, one per simulated data set.
        observed: the value of each statistic for the data.
        probabilities: how often the simulated value exceeds the observed one.
        axes: where to draw: an empty figure or subfigure, or one axes per statistic.
    """
    drawn = several_panels(axes, len(simulated), NUM_COLUMNS, (4.0, 2.5))
    for panel, (name, values) in zip(drawn.flat, simulated.items()):
        finite = values[np.isfinite(values)]
        panel.hist(finite, bins=num_bins(len(values)), color=COLOURS[0], alpha=0.6)
        panel.axvline(observed[name], color=COLOURS[1], linewidth=2, label="the data")
        title = f"{shorten(name, 24)}: p = {probabilities[name]:.3f}"
        panel.set_title(title, loc="left", fontsize="medium")
        panel.set_xlabel(shorten(name, 40))
        panel.set_ylabel("simulated data sets", fontsize="small")
        tidy(panel)
        few_ticks(panel.xaxis, 6)
        whole_numbers(panel.yaxis)
    notes = "histogram: data simulated from the posterior; line: the data; p: share above it"
    drawn.heading([notes])
    return drawn.figure
