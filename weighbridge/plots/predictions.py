"""Predictive draws: bands over rows, or histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weighbridge.core.constants import PROBABILITY
from weighbridge.core.tables.summaries import highest_density_intervals
from weighbridge.plots.canvas import (
    COLOURS,
    check_probability,
    num_bins,
    percent,
    tidy,
    whole_numbers,
)
from weighbridge.plots.surface import panels, several_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

MAX_PANELS = 6
# Probability of the inner, darker interval.
CORE = 0.5
# Fewer rows than this are drawn as single bars.
FEW_ROWS = 60


def plot_bands(
    draws: np.ndarray,
    x: np.ndarray | None,
    *,
    axes: Surface | None = None,
    probability: float = PROBABILITY,
) -> Figure:
    """Predictive mean and highest-density intervals of every row.

    Args:
        draws: draws x rows x components of a value; each component has a panel.
        x: positions of the rows on the axis; by default their numbers.
        axes: where to draw: an empty figure or subfigure, or one axes per component.
        probability: mass of the wider interval; the inner one holds half.
    """
    check_probability(probability)
    count = min(draws.shape[2], MAX_PANELS)
    drawn = panels(axes, (count, 1), (7.5, 1.2 + 2.2 * count), sharex=True)
    places = np.arange(draws.shape[1]) if x is None else x
    order = np.argsort(places, kind="stable")
    where = places[order]
    masses = sorted({probability, CORE}, reverse=True)
    for component, panel in enumerate(drawn.flat):
        values = draws[:, order, component]
        middle = values.mean(axis=0)
        for mass, shade in zip(masses, (0.2, 0.35)):
            low, high = highest_density_intervals(values, mass)
            name = f"{percent(mass)} highest density"
            if len(where) > FEW_ROWS or x is not None:
                panel.fill_between(
                    where, low, high, color=COLOURS[0], alpha=shade, linewidth=0, label=name
                )
            else:
                panel.vlines(
                    where, low, high, color=COLOURS[0], alpha=1.7 * shade, linewidth=3, label=name
                )
        if len(where) > FEW_ROWS or x is not None:
            marker = "." if len(where) < FEW_ROWS else ""
            panel.plot(where, middle, color=COLOURS[0], marker=marker, label="mean")
        else:
            panel.plot(where, middle, "o", color="black", markersize=3.5, label="mean")
        panel.set_ylabel("prediction" if draws.shape[2] == 1 else f"prediction [{component}]")
        tidy(panel)
    drawn.flat[-1].set_xlabel("row" if x is None else "x")
    if x is None:
        whole_numbers(drawn.flat[-1].xaxis)
    drawn.legend(*drawn.flat[0].get_legend_handles_labels())
    if draws.shape[2] > MAX_PANELS:
        drawn.heading([f"first {MAX_PANELS} of {draws.shape[2]} components"])
    return drawn.figure


def plot_draws(
    draws: np.ndarray, *, axes: Surface | None = None, probability: float = PROBABILITY
) -> Figure:
    """Histograms of predictive draws: draws x components, each with a panel.

    Args:
        draws: draws x components.
        axes: where to draw: an empty figure or subfigure, or one axes per component.
        probability: mass of the shaded highest-density interval.
    """
    check_probability(probability)
    count = min(draws.shape[1], MAX_PANELS)
    drawn = several_panels(axes, count, 1, (6.0, 2.4))
    for component, panel in enumerate(drawn.flat):
        values = draws[:, component]
        panel.hist(values, bins=num_bins(len(values)), density=True, color=COLOURS[0], alpha=0.6)
        panel.axvline(values.mean(), color="black", linewidth=1, label="mean")
        low, high = (
            float(end[0]) for end in highest_density_intervals(values[:, None], probability)
        )
        panel.axvspan(low, high, color="0.9", zorder=0, label=f"{percent(probability)} HDI")
        panel.set_xlabel("prediction" if draws.shape[1] == 1 else f"prediction [{component}]")
        panel.set_ylabel("density")
        tidy(panel)
    notes = f"{len(draws):,} draws; line: mean; grey: {percent(probability)} highest density"
    if draws.shape[1] > MAX_PANELS:
        notes += f" (first {MAX_PANELS} of {draws.shape[1]} components)"
    drawn.heading([notes])
    return drawn.figure
