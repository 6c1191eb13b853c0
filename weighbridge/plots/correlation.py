"""Autocorrelation of the draws of chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.diagnostics import autocorrelation, autocorrelation_length
from weighbridge.plots.canvas import shorten, tidy, whole_numbers
from weighbridge.plots.chains import SHOWN_CHAINS, chain_style, count_chains, flat_draws
from weighbridge.plots.coordinates import choose_coordinates
from weighbridge.plots.labelling import Labelling
from weighbridge.plots.surface import several_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Range of lags: this many autocorrelation lengths, within these bounds.
LENGTHS, FEWEST, MOST = 6.0, 20, 500
COLUMNS = 2
# Two-sided 95 % of a normal distribution.
TWO_SIDED = 1.96


def plot_autocorrelation(
    samples: Mapping[str, np.ndarray],
    names: Sequence[str] | None = None,
    *,
    labelling: Labelling | None = None,
    axes: Surface | None = None,
) -> Figure:
    """Autocorrelation of up to eight scalar coordinates by lag, chain by chain.

    The grey band holds 95 % of the autocorrelations of independent draws.

    Args:
        samples: draws by parameter name, chains x draws x shape.
        names: parameters (``"w"``) or entries of them (``"w[0]"``); by default all.
        labelling: other names.
        axes: where to draw: an empty figure or subfigure, or one axes per coordinate.

    >>> draws = {"w": np.random.default_rng(0).normal(size=(4, 100, 2))}
    >>> [axes.get_ylabel() for axes in plot_autocorrelation(draws).axes]
    ['autocorrelation', 'autocorrelation']
    """
    chosen, count = choose_coordinates(flat_draws(samples), names)
    known = (labelling or Labelling()).of(flat_draws(samples))
    num_chains, num_draws = next(iter(samples.values())).shape[:2]
    chains = {name: values.reshape(num_chains, num_draws) for name, values in chosen.items()}
    lengths = {name: float(autocorrelation_length(draws)) for name, draws in chains.items()}
    longest = max((length for length in lengths.values() if np.isfinite(length)), default=1.0)
    num_lags = int(min(np.clip(LENGTHS * longest, FEWEST, MOST), num_draws - 1))
    drawn = several_panels(axes, len(chosen), COLUMNS, (4.6, 2.3))
    reach = TWO_SIDED / np.sqrt(num_draws)
    for panel, (name, draws) in zip(drawn.flat, chains.items()):
        panel.axhspan(-reach, reach, color="0.9", zorder=0)
        panel.axhline(0.0, color="grey", linewidth=0.8)
        found = autocorrelation(draws[:SHOWN_CHAINS])[:, : num_lags + 1]
        for number, heights in enumerate(found):
            panel.plot(heights, label=f"chain {number}", **chain_style(number))
        length = lengths[name]
        worth = f"length {length:.3g}" if np.isfinite(length) else "these draws do not vary"
        panel.set_title(f"{shorten(known.names[name], 26)}: {worth}", loc="left", fontsize="small")
        panel.set_xlabel("lag (draws)", fontsize="small")
        panel.set_ylabel("autocorrelation", fontsize="small")
        panel.set_xlim(0, num_lags)
        lowest = float(np.nanmin(found, initial=-reach))
        panel.set_ylim(min(-0.15, 1.1 * lowest), 1.0)
        tidy(panel)
        whole_numbers(panel.xaxis)
    notes = [
        f"{count_chains(num_chains)} of {num_draws:,} draws; grey: 95 % of independent ones; "
        "length: draws worth one independent"
    ]
    if num_chains > SHOWN_CHAINS:
        notes.append(f"{SHOWN_CHAINS} chains are drawn; the length is that of all")
    if count > len(chosen):
        notes.append(f"{len(chosen)} of {count} coordinates; choose others with names=[...]")
    drawn.heading(notes)
    if num_chains > 1:
        drawn.legend(*drawn.flat[0].get_legend_handles_labels())
    return drawn.figure
