"""Chains: the marginal of each, its trace, and the ranks of its draws among all draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.plots.canvas import COLOURS, DASHES, TRUTH, few_ticks, num_bins, shorten, tidy
from weighbridge.plots.coordinates import choose_coordinates
from weighbridge.plots.labelling import Labelling
from weighbridge.plots.surface import panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Largest number of chains drawn; for the many walkers of an ensemble, the first ones.
SHOWN_CHAINS = 8
CHAIN_COLOURS = (*COLOURS, "0.62")
# The other dashes are too sparse for the steps of a histogram.
NUM_DASHES = 4
RANK_BINS = 20


def plot_chains(
    samples: Mapping[str, np.ndarray],
    divergent: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    *,
    labelling: Labelling | None = None,
    caution: str = "",
    axes: Surface | None = None,
) -> Figure:
    """Marginal, trace and ranks of up to eight scalar coordinates, chain by chain.

    Chains that agree have flat ranks: Vehtari, Gelman, Simpson, Carpenter & Buerkner (2021),
    Bayesian Analysis 16:667-718.

    Args:
        samples: draws by parameter name, chains x draws x shape.
        divergent: which draws came from divergent trajectories, chains x draws.
        names: parameters (``"w"``) or entries of them (``"w[0]"``); by default all.
        labelling: true values, other names and units.
        caution: why not to trust the draws, in a few words, for the heading.
        axes: where to draw: an empty figure or subfigure, or n x 3 axes for n coordinates.

    >>> draws = {"w": np.random.default_rng(0).normal(size=(4, 100, 2))}
    >>> figure = plot_chains(draws)
    >>> len(figure.axes), [text.get_text() for text in figure.legends[0].get_texts()]
    (6, ['chain 0', 'chain 1', 'chain 2', 'chain 3'])
    """
    flat = flat_draws(samples)
    chosen, count = choose_coordinates(flat, names)
    known = (labelling or Labelling()).of(flat)
    num_chains, num_draws = next(iter(samples.values())).shape[:2]
    size = (11.0, 1.75 * len(chosen) + 1.0)
    drawn = panels(axes, (len(chosen), 3), size)
    for row, (name, values) in zip(drawn.grid, chosen.items()):
        chains = values.reshape(num_chains, num_draws)
        truth = known.truths.get(name)
        _draw_marginals(row[0], chains, truth)
        _draw_traces(row[1], chains, divergent, truth)
        _draw_ranks(row[2], chains)
        label, short = (shorten(known.names[name], width) for width in (26, 14))
        for panel, across, up in zip(row, (label, "draw", "rank"), ("density", short, "frequency")):
            tidy(panel)
            panel.set_xlabel(across, fontsize="small")
            panel.set_ylabel(up, fontsize="small")
            panel.tick_params(labelsize="small")
        row[0].set_yticks([])
        for axis in (row[0].xaxis, row[1].yaxis):
            few_ticks(axis, 5)
    for panel, title in zip(drawn.grid[0], ("marginals", "traces", "ranks among all (1: even)")):
        panel.set_title(title, loc="left", fontsize="small")
    notes = [f"{count_chains(num_chains)} of {num_draws:,} draws"]
    if num_chains > SHOWN_CHAINS:
        notes[0] += f", {SHOWN_CHAINS} of them drawn"
    if divergent is not None and np.any(divergent):
        notes[0] += f"; crosses: {np.sum(divergent):,} divergent"
    if any(name in known.truths for name in chosen):
        notes[0] += "; dashed: truth"
    if count > len(chosen):
        notes.append(f"{len(chosen)} of {count} coordinates; choose others with names=[...]")
    drawn.heading([*notes, *filter(None, [caution])])
    if num_chains > 1:
        # The lines of the ranks are thick enough to show colours and dashes.
        handles, labels = drawn.grid[0, 2].get_legend_handles_labels()
        drawn.legend(handles, labels)
    return drawn.figure


def flat_draws(samples: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The draws of all chains on one axis, chain after chain."""
    return {name: np.asarray(v).reshape(-1, *v.shape[2:]) for name, v in samples.items()}


def count_chains(count: int) -> str:
    """The number of chains, in words.

    >>> count_chains(1), count_chains(4)
    ('1 chain', '4 chains')
    """
    return "1 chain" if count == 1 else f"{count:,} chains"


def chain_style(number: int) -> dict[str, Any]:
    """Colour and dash of a chain, distinct for any kind of colour vision."""
    return {
        "color": CHAIN_COLOURS[number % len(CHAIN_COLOURS)],
        "linestyle": DASHES[number % NUM_DASHES],
        "linewidth": 1.2,
    }


def _draw_marginals(axes: Axes, chains: np.ndarray, truth: float | None) -> None:
    edges = np.histogram_bin_edges(chains, num_bins(chains.size))
    for number, draws in enumerate(chains[:SHOWN_CHAINS]):
        heights = np.histogram(draws, edges, density=True)[0]
        axes.stairs(heights, edges, **chain_style(number))
    if truth is not None:
        axes.axvline(truth, **TRUTH)
    axes.set_ylim(bottom=0.0)


def _draw_traces(
    axes: Axes, chains: np.ndarray, divergent: np.ndarray | None, truth: float | None
) -> None:
    for number, draws in enumerate(chains[:SHOWN_CHAINS]):
        axes.plot(draws, color=chain_style(number)["color"], linewidth=0.5, alpha=0.8)
        if divergent is not None:
            places = np.flatnonzero(divergent[number])
            axes.plot(places, draws[places], "x", color="black", markersize=4, zorder=3)
    if truth is not None:
        axes.axhline(truth, zorder=4, **TRUTH)
    axes.set_xlim(0, max(chains.shape[1] - 1, 1))


def _draw_ranks(axes: Axes, chains: np.ndarray) -> None:
    """Relative frequency of the ranks of each chain among all draws; flat if chains agree."""
    order = np.argsort(np.argsort(chains, axis=None, kind="stable"), kind="stable")
    ranks = order.reshape(chains.shape)
    bins = min(RANK_BINS, max(chains.shape[1] // 10, 2))
    edges = np.linspace(0.0, chains.size, bins + 1)
    for number, draws in enumerate(ranks[:SHOWN_CHAINS]):
        heights = np.histogram(draws, edges)[0] / (chains.shape[1] / bins)
        axes.stairs(heights, edges, label=f"chain {number}", **chain_style(number))
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlim(0.0, chains.size)
    axes.set_ylim(bottom=0.0)
