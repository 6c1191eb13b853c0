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

# Histograms per line, and their largest number.
COLUMNS, MOST = 4, 16


def plot_ranks(
    ranks: Mapping[str, np.ndarray],
    edges: np.ndarray,
    *,
    axes: Surface | None = None,
) -> Figure:
    """Histograms of ranks, with the band that holds 99 % of the counts of uniform ranks.

    Args:
        ranks: by name, from 0 to the number of draws.
        edges: first rank of every bar, and the last rank plus one.
        axes: where to draw: an empty figure or subfigure, or one axes per entry.

    >>> len(plot_ranks({"a": np.arange(20)}, np.arange(0, 21, 4)).axes)
    1
    """
    from scipy.stats import binom

    chosen = dict(list(ranks.items())[:MOST])
    drawn = several_panels(axes, len(chosen), COLUMNS, (3.0, 2.2))
    count = len(next(iter(chosen.values())))
    num_draws = int(edges[-1]) - 1
    shares = np.diff(edges) / edges[-1]
    low, high = binom.ppf([[0.005], [0.995]], count, shares)
    for panel, (name, values) in zip(drawn.flat, chosen.items()):
        panel.stairs(high, edges, baseline=low, fill=True, color="0.9", zorder=0)
        panel.stairs(
            count * shares, edges, baseline=None, color="grey", linewidth=0.8, linestyle=":"
        )
        panel.hist(values, edges.tolist(), color=COLOURS[0], alpha=0.8)
        for end in (low, high):  # visible also where bars cover the band
            panel.stairs(end, edges, baseline=None, color="0.4", linewidth=0.7)
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
