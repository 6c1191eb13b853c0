"""Predictive draws: bands over rows, or histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import COLOURS, finish, new_figure, num_bins, stacked_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_PANELS = 6


def plot_bands(draws: np.ndarray, x: np.ndarray | None) -> Figure:
    """Predictive mean, and intervals of 50 % and 90 %, of every row.

    Args:
        draws: draws x rows x components of a value; each component has a panel.
        x: where the rows stand; by default their numbers.
    """
    from matplotlib.ticker import MaxNLocator

    count = min(draws.shape[2], MAX_PANELS)
    panels = stacked_panels(count)
    places = np.arange(draws.shape[1]) if x is None else x
    order = np.argsort(places, kind="stable")
    for component, axes in enumerate(panels):
        values = draws[:, order, component]
        low, lower, upper, high = np.quantile(values, (0.05, 0.25, 0.75, 0.95), axis=0)
        where, middle = places[order], values.mean(axis=0)
        if len(where) > 60 or x is not None:
            axes.fill_between(where, low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
            axes.fill_between(where, lower, upper, color=COLOURS[0], alpha=0.35, linewidth=0)
            axes.plot(where, middle, color=COLOURS[0], marker="." if len(where) < 60 else "")
        else:
            axes.vlines(where, low, high, color=COLOURS[0], alpha=0.35, linewidth=3)
            axes.vlines(where, lower, upper, color=COLOURS[0], linewidth=3)
            axes.plot(where, middle, "o", color="black", markersize=3.5)
        axes.set_ylabel("prediction" if draws.shape[2] == 1 else f"prediction [{component}]")
    panels[-1].set_xlabel("row" if x is None else "x")
    if x is None:
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    title = "mean, with intervals of 50 % and 90 %"
    return finish(panels, [title + _left_out(draws.shape[2])])


def plot_draws(draws: np.ndarray) -> Figure:
    """Histograms of predictive draws: draws x components, each with a panel."""
    count = min(draws.shape[1], MAX_PANELS)
    figure = new_figure(6.0, 1.0 + 2.2 * count)
    for component, axes in enumerate(figure.subplots(count, 1, squeeze=False)[:, 0]):
        values = draws[:, component]
        axes.hist(values, bins=num_bins(len(values)), density=True, color=COLOURS[0], alpha=0.6)
        axes.axvline(values.mean(), color="black", linewidth=1)
        axes.set_xlabel("prediction" if draws.shape[1] == 1 else f"prediction [{component}]")
        axes.set_ylabel("density")
    figure.suptitle("draws; line: mean" + _left_out(draws.shape[1]), fontsize="medium")
    return figure


def _left_out(count: int) -> str:
    return f" (first {MAX_PANELS} of {count} components)" if count > MAX_PANELS else ""
