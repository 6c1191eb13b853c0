"""Energies of Hamiltonian chains: do the momentum draws reach all of them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weighbridge.core.thresholds import MIN_ENERGY_FRACTION
from weighbridge.diagnostics import energy_fraction
from weighbridge.plots.canvas import COLOURS, num_bins, tidy
from weighbridge.plots.chains import count_chains
from weighbridge.plots.surface import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface


def plot_energy(
    energy: np.ndarray, steps: np.ndarray | None = None, *, axes: Surface | None = None
) -> Figure:
    """Energies minus their mean, and their changes from one draw to the next.

    If the changes are much narrower, chains explore the energies slowly and may miss the tails:
    Betancourt (2016), arXiv:1604.00695. The right panel shows the E-BFMI of each chain.

    Args:
        energy: Hamiltonian of the state that each transition chose, chains x draws.
        steps: for thinned draws, moments of the energies of all steps; see ``energy_fraction``.
        axes: where to draw: an empty figure or subfigure, or two axes.

    >>> figure = plot_energy(np.random.default_rng(0).normal(size=(2, 100)))
    >>> [axes.get_xlabel().split()[0] for axes in figure.axes]
    ['energy', 'E-BFMI']
    """
    energy = np.asarray(energy, float)
    drawn = panels(axes, (1, 2), (8.5, 3.6))
    left, right = drawn.flat
    centred = (energy - energy.mean(axis=1, keepdims=True)).ravel()
    changes = np.diff(energy, axis=1).ravel()
    finite = np.concatenate([centred, changes])
    finite = finite[np.isfinite(finite)]
    edges = np.histogram_bin_edges(finite, num_bins(len(centred)))
    names = ("energy less its mean", "change to the next draw")
    tallest = 0.0
    for values, name, colour, dash in zip((centred, changes), names, COLOURS, ("-", "--")):
        heights = np.histogram(values[np.isfinite(values)], edges, density=True)[0]
        tallest = max(tallest, float(heights.max()))
        left.stairs(heights, edges, fill=True, color=colour, alpha=0.25)
        left.stairs(heights, edges, color=colour, linestyle=dash, linewidth=1.3, label=name)
    left.set_xlabel("energy (nats)")
    left.set_ylabel("density")
    left.set_ylim(0.0, 1.3 * max(tallest, 1e-300))  # with room for the legend
    left.legend(fontsize="small", frameon=False, loc="upper right")
    fractions = energy_fraction(energy, steps)
    places = np.arange(len(fractions))
    low = fractions < MIN_ENERGY_FRACTION
    right.plot(fractions[~low], places[~low], "o", color=COLOURS[0])
    right.plot(fractions[low], places[low], "X", color=COLOURS[1], markersize=8)
    right.axvspan(0.0, MIN_ENERGY_FRACTION, color="0.9", zorder=0)
    right.set_xlabel(f"E-BFMI (grey: below {MIN_ENERGY_FRACTION}, too low)")
    right.set_ylabel("chain")
    right.set_xlim(0.0, max(1.2, 1.1 * float(np.nanmax(fractions, initial=0.0))))
    right.set_ylim(len(fractions) - 0.5, -0.5)
    for panel in (left, right):
        tidy(panel)
    right.set_yticks(places[:: -(-len(places) // 12)])
    num_low = int(np.sum(low))
    verdict = f"; E-BFMI is too low in {count_chains(num_low)}" if num_low else ""
    drawn.heading([f"{count_chains(len(energy))} of {energy.shape[1]:,} draws{verdict}"])
    return drawn.figure
