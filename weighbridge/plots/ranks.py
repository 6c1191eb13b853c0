"""Ranks of true parameters among posterior draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.plots.canvas import COLOURS, new_figure, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Histograms in a row, and at most.
COLUMNS, MOST = 4, 16


def plot_ranks(ranks: Mapping[str, np.ndarray], num_draws: int, num_bins: int) -> Figure:
    """Histograms of ranks, each with the band that 99 % of the counts of uniform ranks lie in.

    Args:
        ranks: by name, from 0 to ``num_draws``.
        num_draws: draws that were ranked among.
        num_bins: bars of a histogram.

    >>> len(plot_ranks({"a": np.arange(20)}, 19, 5).axes)
    1
    """
    from scipy.stats import binom

    chosen = dict(list(ranks.items())[:MOST])
    columns = min(COLUMNS, len(chosen))
    height = -(-len(chosen) // columns)
    figure = new_figure(3.0 * columns + 1.0, 2.0 * height + 0.6)
    panels: Any = figure.subplots(height, columns, squeeze=False)
    count = len(next(iter(chosen.values())))
    low, high = binom.ppf((0.005, 0.995), count, 1 / num_bins)
    for axes, (name, values) in zip(panels.flat, chosen.items()):
        edges = np.linspace(0, num_draws + 1, num_bins + 1)
        axes.axhspan(low, high, color="0.9", zorder=0)
        axes.axhline(count / num_bins, color="grey", linewidth=0.8, linestyle=":")
        axes.hist(values, edges.tolist(), color=COLOURS[0], alpha=0.8)
        axes.set_title(shorten(name, 20), loc="left", fontsize="small")
        axes.set_xlim(0, num_draws + 1)
    for axes in list(panels.flat)[len(chosen) :]:
        axes.remove()
    notes = f"ranks of {count:,} truths; grey: 99 % of uniform ones"
    if len(ranks) > MOST:
        notes += f"; {MOST} of {len(ranks)} entries"
    figure.suptitle(notes, x=0.01, ha="left", fontsize="small")
    return figure
