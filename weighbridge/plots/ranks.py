"""Ranks of true parameters among posterior draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import COLOURS, few_ticks, shorten, tidy, whole_numbers
from weighbridge.plots.surface import several_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Histograms in a row, and at most.
COLUMNS, MOST = 4, 16


def plot_ranks(
    ranks: Mapping[str, np.ndarray],
    num_draws: int,
    num_bins: int,
    *,
    axes: Surface | None = None,
) -> Figure:
    """Histograms of ranks, each with the band that 99 % of the counts of uniform ranks lie in.

    Args:
        ranks: by name, from 0 to ``num_draws``.
        num_draws: draws that were ranked among.
        num_bins: bars of a histogram.
        axes: where to draw: an empty figure or subfigure, or as many axes as entries.

    >>> len(plot_ranks({"a": np.arange(20)}, 19, 5).axes)
    1
    """
    from scipy.stats import binom

    chosen = dict(list(ranks.items())[:MOST])
    drawn = several_panels(axes, len(chosen), COLUMNS, (3.0, 2.2))
    count = len(next(iter(chosen.values())))
    low, high = binom.ppf((0.005, 0.995), count, 1 / num_bins)
    for panel, (name, values) in zip(drawn.flat, chosen.items()):
        edges = np.linspace(0, num_draws + 1, num_bins + 1)
        panel.axhspan(low, high, color="0.9", zorder=0)
        panel.axhline(count / num_bins, color="grey", linewidth=0.8, linestyle=":")
        panel.hist(values, edges.tolist(), color=COLOURS[0], alpha=0.8)
        for end in (low, high):  # also where bars hide the band
            panel.axhline(end, color="0.4", linewidth=0.7)
        panel.set_title(shorten(name, 20), loc="left", fontsize="small")
        panel.set_xlim(0, num_draws + 1)
        panel.set_xlabel(f"rank among {num_draws:,} draws", fontsize="small")
        panel.set_ylabel("simulations", fontsize="small")
        tidy(panel)
        few_ticks(panel.xaxis, 5)
        whole_numbers(panel.yaxis)
    notes = f"ranks of {count:,} truths; grey: 99 % of uniform ones"
    if len(ranks) > MOST:
        notes += f"; {MOST} of {len(ranks)} entries"
    drawn.heading([notes])
    return drawn.figure
