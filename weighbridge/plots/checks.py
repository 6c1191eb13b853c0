"""Statistics of simulated data against those of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import COLOURS, new_figure, num_bins, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_COLUMNS = 2


def plot_checks(
    simulated: Mapping[str, np.ndarray],
    observed: Mapping[str, float],
    probabilities: Mapping[str, float],
) -> Figure:
    """Histogram of every statistic over simulated data, with a line where the data stand.

    Args:
        simulated: values of each statistic, one for every simulated data set.
        observed: its value for the data.
        probabilities: how often the simulated exceeds the observed.
    """
    num_rows = -(-len(simulated) // NUM_COLUMNS)
    figure = new_figure(4.0 * NUM_COLUMNS, 0.6 + 2.4 * num_rows)
    for place, (name, values) in enumerate(simulated.items(), start=1):
        axes = figure.add_subplot(num_rows, NUM_COLUMNS, place)
        finite = values[np.isfinite(values)]
        axes.hist(finite, bins=num_bins(len(values)), color=COLOURS[0], alpha=0.6)
        axes.axvline(observed[name], color=COLOURS[1], linewidth=2)
        axes.set_title(f"{shorten(name, 24)}: p = {probabilities[name]:.3f}", fontsize="medium")
        axes.set_yticks([])
    figure.suptitle("simulated from the posterior; line: the data", fontsize="medium")
    return figure
