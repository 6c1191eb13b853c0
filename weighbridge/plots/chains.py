"""Chains: the marginal of each, its trace, and the ranks of its draws among all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.plots.canvas import COLOURS, new_figure, num_bins, shorten
from weighbridge.plots.posterior import choose_coordinates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Chains of which each is drawn; of an ensemble's many walkers the first.
SHOWN_CHAINS = 8
RANK_BINS = 20


def plot_chains(
    samples: Mapping[str, np.ndarray],
    divergent: np.ndarray | None = None,
    names: Sequence[str] | None = None,
) -> Figure:
    """Marginal, trace and ranks of up to eight scalar coordinates, chain by chain.

    Chains that agree have flat ranks: Vehtari, Gelman, Simpson, Carpenter & Buerkner (2021),
    Bayesian Analysis 16:667-718.

    Args:
        samples: draws by parameter name, chains x draws x shape.
        divergent: which draws came from divergent trajectories, chains x draws.
        names: parameters (``"w"``) or entries of them (``"w[0]"``); by default all.

    >>> draws = {"w": np.random.default_rng(0).normal(size=(4, 100, 2))}
    >>> len(plot_chains(draws).axes)
    6
    """
    num_chains, num_draws = next(iter(samples.values())).shape[:2]
    flat = {name: np.asarray(v).reshape(-1, *v.shape[2:]) for name, v in samples.items()}
    chosen, count = choose_coordinates(flat, names)
    figure = new_figure(11.0, 1.7 * len(chosen) + 0.8)
    panels: Any = figure.subplots(len(chosen), 3, squeeze=False)
    for row, (name, values) in zip(panels, chosen.items()):
        chains = values.reshape(num_chains, num_draws)
        _draw_marginals(row[0], chains)
        _draw_traces(row[1], chains, divergent)
        _draw_ranks(row[2], chains)
        row[0].set_ylabel(shorten(name, 18))
    for axes, title in zip(panels[0], ("marginals", "traces", "ranks")):
        axes.set_title(title, loc="left", fontsize="small")
    notes = f"{num_chains} chains of {num_draws:,} draws"
    if num_chains > SHOWN_CHAINS:
        notes += f", {SHOWN_CHAINS} of them drawn"
    if divergent is not None and np.any(divergent):
        notes += f"; crosses: {np.sum(divergent):,} divergent"
    if count > len(chosen):
        notes += f"\n{len(chosen)} of {count} coordinates; choose others with names=[...]"
    figure.suptitle(notes, x=0.01, ha="left", fontsize="small")
    return figure


def _draw_marginals(axes: Axes, chains: np.ndarray) -> None:
    edges = np.histogram_bin_edges(chains, num_bins(chains.size))
    for number, draws in enumerate(chains[:SHOWN_CHAINS]):
        axes.hist(draws, edges.tolist(), density=True, histtype="step", color=_colour(number))
    axes.set_yticks([])


def _draw_traces(axes: Axes, chains: np.ndarray, divergent: np.ndarray | None) -> None:
    for number, draws in enumerate(chains[:SHOWN_CHAINS]):
        axes.plot(draws, color=_colour(number), linewidth=0.5, alpha=0.8)
        if divergent is not None:
            places = np.flatnonzero(divergent[number])
            axes.plot(places, draws[places], "x", color="black", markersize=4, zorder=3)
    axes.set_xlim(0, max(chains.shape[1] - 1, 1))


def _draw_ranks(axes: Axes, chains: np.ndarray) -> None:
    """How often draws of a chain fall into each part of the common order; flat if all agree."""
    order = np.argsort(np.argsort(chains, axis=None, kind="stable"), kind="stable")
    ranks = order.reshape(chains.shape) / chains.size
    bins = min(RANK_BINS, max(chains.shape[1] // 10, 2))
    for number, draws in enumerate(ranks[:SHOWN_CHAINS]):
        heights = np.histogram(draws, bins, range=(0.0, 1.0))[0] / (chains.shape[1] / bins)
        axes.stairs(heights, np.linspace(0.0, 1.0, bins + 1), color=_colour(number))
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0.0)
    axes.set_yticks([])


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
