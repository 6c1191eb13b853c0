"""Bounds on the log evidence, from below and from above."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import COLOURS, num_bins, whole_numbers
from weighbridge.plots.surface import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface


def plot_bounds(
    forward: np.ndarray,
    backward: np.ndarray,
    *,
    lower: tuple[float, float],
    upper: tuple[float, float],
    axes: Surface | None = None,
) -> Figure:
    """Histograms of forward and backward estimates of the log evidence, and their means.

    Args:
        forward: log evidence of each island, annealed from the prior.
        backward: log evidence of each island, annealed from the posterior.
        lower: the bound from the forward estimates, with its standard error.
        upper: the bound from the backward estimates, with its standard error.
        axes: where to draw: an empty figure or subfigure, or a single axes.
    """
    drawn = panels(axes, (1, 1), (7.5, 3.6))
    (panel,) = drawn.flat
    both = np.concatenate([forward, backward])
    edges = np.histogram_bin_edges(both[np.isfinite(both)], num_bins(len(both)))
    names = ("forward", "backward")
    sides = ("lower bound", "upper bound")
    for values, (bound, error), colour, name, side, dash in zip(
        (forward, backward), (lower, upper), COLOURS, names, sides, ("--", "-")
    ):
        panel.hist(
            values, list(edges), histtype="stepfilled", color=colour, alpha=0.35,
            label=f"{name} estimates of islands",
        )  # fmt: skip
        panel.axvline(bound, color=colour, linestyle=dash, label=f"{side}, with 2 standard errors")
        if np.isfinite(error):
            panel.axvspan(
                bound - 2 * error, bound + 2 * error, color=colour, alpha=0.15, linewidth=0
            )
    panel.set_xlabel("log evidence (nats)")
    panel.set_ylabel("islands")
    handles, labels = panel.get_legend_handles_labels()
    whole_numbers(panel.yaxis)
    drawn.finish([])
    drawn.legend(handles, labels)
    return drawn.figure
