"""Bounds on the log evidence, from below and from above."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import COLOURS, finish, num_bins, stacked_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_bounds(forward: np.ndarray, backward: np.ndarray, *, lower: float, upper: float) -> Figure:
    """Histograms of forward and backward estimates of the log evidence, and their means.

    Args:
        forward: log evidence of each island, annealed from the prior.
        backward: likewise, annealed from the posterior.
        lower: the bound that the forward ones give.
        upper: the bound that the backward ones give.
    """
    panels = stacked_panels(1)
    both = np.concatenate([forward, backward])
    edges = np.histogram_bin_edges(both[np.isfinite(both)], num_bins(len(both)))
    names = ["forward", "backward"]
    for name, values, bound, colour in zip(names, (forward, backward), (lower, upper), COLOURS):
        panels[0].hist(
            values, list(edges), histtype="stepfilled", color=colour, alpha=0.4, label=name
        )
        panels[0].axvline(bound, color=colour, linestyle="--" if name == "forward" else "-")
    panels[0].set_xlabel("log evidence of an island (nats); lines: lower and upper bound")
    panels[0].set_ylabel("islands")
    return finish(panels, names)
