"""The posterior: marginals on the diagonal, pairs of coordinates below it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weighbridge.core.constants import PROBABILITY
from weighbridge.core.tables.regions import highest_density_regions
from weighbridge.plots.canvas import (
    COLOURS,
    TRUTH,
    check_probability,
    few_ticks,
    num_bins,
    percent,
    shorten,
)
from weighbridge.plots.coordinates import choose_coordinates
from weighbridge.plots.density import levels_of, smooth_density
from weighbridge.plots.labelling import Labelling
from weighbridge.plots.numbers import minus, write_mean, write_number
from weighbridge.plots.surface import Panels, own_axes, parent_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Number of draws shown as points, and number of grid cells of a density along each side.
NUM_POINTS = 600
NUM_CELLS = 96
# Probability of the inner, darker region.
CORE = 0.5
# Style of marked draws.
MARKED = {"color": COLOURS[1], "markersize": 4, "markeredgewidth": 0.8}
# A true value farther than this many widths outside the posterior is shown by an arrow.
FAR = 2.0


class Coordinate(NamedTuple):
    """One scalar entry: its draws, its label, its axis limits, and its true value."""

    values: np.ndarray
    label: str
    limits: tuple[float, float]
    truth: float | None


class Weights(NamedTuple):
    """Weights of the draws, their effective number, and the masses of the shaded regions."""

    values: np.ndarray
    ess: float
    masses: tuple[float, ...]


def plot_posterior(
    samples: Mapping[str, np.ndarray],
    weights: np.ndarray,
    names: Sequence[str] | None = None,
    *,
    title: str = "",
    marked: np.ndarray | None = None,
    labelling: Labelling | None = None,
    axes: Surface | None = None,
    probability: float = PROBABILITY,
) -> Figure:
    """Marginals and pairs of up to eight scalar coordinates of a weighted posterior.

    Args:
        samples: draws by parameter name, the draw along the first axis.
        weights: weights of the draws; their sum is 1.
        names: parameters (``"w"``) or entries of them (``"w[0]"``); by default all.
        title: text above the figure, one line or several.
        marked: which draws to mark, such as divergent ones.
        labelling: true values, other names and units.
        axes: where to draw: an empty figure or subfigure, or n x n axes for n coordinates.
        probability: mass of the shaded highest-density region; an inner one holds half.
    """
    check_probability(probability)
    chosen, count = choose_coordinates(samples, names)
    known = (labelling or Labelling()).of(samples)
    coordinates = []
    for name, values in chosen.items():
        truth = known.truths.get(name)
        limits = _limits(values, weights, truth)
        coordinates.append(Coordinate(values, known.names[name], limits, truth))
    masses = tuple(sorted({probability, CORE}, reverse=True))
    weighing = Weights(weights, 1 / float(np.sum(weights**2)), masses)
    panels = _grid(axes, len(chosen))
    points = _points(weights)
    marks = np.zeros(len(weights), bool) if marked is None else np.asarray(marked, bool)
    for row, below in enumerate(coordinates):
        for column, across in enumerate(coordinates[: row + 1]):
            panel = panels.grid[row, column]
            panel.set_xlim(across.limits)
            if column == row:
                _draw_marginal(panel, across, weighing)
            else:
                panel.set_ylim(below.limits)
                _draw_pair(panel, across, below, weighing, points)
                if marks.any():
                    panel.plot(
                        across.values[marks], below.values[marks], "x", label="divergent", **MARKED
                    )
            _label(panel, (row, column), coordinates)
    if panels.parent is not None:
        panels.figure.align_labels()
    panels.heading(_notes(title, weighing, marks, coordinates, count))
    return panels.figure


def _grid(surface: Surface | None, size: int) -> Panels:
    """Panels on and below the diagonal; a user's axes above it are switched off."""
    side = min(2.3, 13.0 / size)
    parent = parent_of(surface, (max(side * size, 5.0), max(side * size, 3.0) + 0.7))
    if parent is None:
        grid = own_axes(surface, (size, size))
        for panel in grid[np.triu_indices(size, 1)]:
            panel.set_axis_off()
        return Panels(grid, None)
    places = parent.add_gridspec(size, size)
    grid = np.full((size, size), None, object)
    for row in range(size):
        for column in range(row + 1):
            grid[row, column] = parent.add_subplot(places[row, column])
    return Panels(grid, parent, surface is None)


def _notes(
    title: str, weighing: Weights, marks: np.ndarray, coordinates: Sequence[Coordinate], count: int
) -> list[str]:
    """The lines above the figure."""
    weights, ess, masses = weighing
    drawn = f"{len(weights):,} draws"
    if np.ptp(weights) > 0:
        drawn = f"{len(weights):,} weighted draws (ESS {ess:,.0f})"
    shares = " and ".join(percent(mass) for mass in reversed(masses))
    notes = [f"{drawn}; shaded: highest density, {shares}; above: mean ± sd"]
    if marks.any() and len(coordinates) > 1:
        notes[-1] += f"; crosses: {np.sum(marks):,} divergent"
    if any(coordinate.truth is not None for coordinate in coordinates):
        notes[-1] += "; dashed: truth"
    if count > len(coordinates):
        notes.append(f"{len(coordinates)} of {count} coordinates; choose others with names=[...]")
    return [*title.splitlines(), *notes]


def _points(weights: np.ndarray) -> np.ndarray:
    """Indices of draws to show as points, evenly spaced in the weights."""
    cumulative = np.cumsum(weights)
    places = (np.arange(NUM_POINTS) + 0.5) / NUM_POINTS * cumulative[-1]
    return np.unique(np.searchsorted(cumulative, places))


def _limits(values: np.ndarray, weights: np.ndarray, truth: float | None) -> tuple[float, float]:
    """Limits that include nearly all draws, and the true value if it is not far away."""
    ends = np.quantile(values, (0.002, 0.998), weights=weights, method="inverted_cdf")
    low, high = float(ends[0]), float(ends[1])
    width = high - low
    if truth is not None and low - FAR * width <= truth <= high + FAR * width:
        low, high = min(low, truth), max(high, truth)
    margin = 0.05 * (high - low) or 0.05 * abs(low) or 1.0
    return low - margin, high + margin


def _draw_marginal(axes: Axes, coordinate: Coordinate, weighing: Weights) -> None:
    """A weighted histogram, with the highest-density regions that hold the masses."""
    values, weights = coordinate.values, weighing.values
    heights, edges = np.histogram(
        values, num_bins(weighing.ess), coordinate.limits, density=True, weights=weights
    )
    axes.stairs(heights, edges, color=COLOURS[0], linewidth=1)
    for mass in weighing.masses:
        region = highest_density_regions(values, weights, mass)
        fine = np.linspace(*coordinate.limits, 40 * len(heights), endpoint=False)
        cell = np.minimum(np.searchsorted(edges, fine, side="right") - 1, len(heights) - 1)
        inside = np.any([(fine >= part.low) & (fine <= part.high) for part in region], axis=0)
        axes.fill_between(
            fine, heights[cell], where=inside.tolist(), step="post",
            color=COLOURS[0], alpha=0.3, linewidth=0,
        )  # fmt: skip
    mean = float(np.sum(weights * values))
    deviation = math.sqrt(float(np.sum(weights * (values - mean) ** 2)))
    axes.set_ylim(bottom=0)
    axes.set_yticks([])
    axes.set_title(minus(write_mean(mean, deviation)), fontsize="small")
    if coordinate.truth is not None:
        _draw_truth(axes, coordinate.truth, coordinate.limits)


def _draw_truth(axes: Axes, truth: float, limits: tuple[float, float]) -> None:
    """A line at the true value, or an arrow with its value if it is too far away."""
    low, high = limits
    if low <= truth <= high:
        axes.axvline(truth, label="truth", **TRUTH)
        return
    left = truth < low
    text = minus(f"truth {write_number(float(f'{truth:.4g}'))}")
    axes.annotate(
        f"\N{LEFTWARDS ARROW} {text}" if left else f"{text} \N{RIGHTWARDS ARROW}",
        (0.03 if left else 0.97, 0.95), xycoords="axes fraction", va="top",
        ha="left" if left else "right", fontsize="x-small", zorder=5,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
    )  # fmt: skip


def _draw_pair(
    axes: Axes, across: Coordinate, below: Coordinate, weighing: Weights, points: np.ndarray
) -> None:
    """A smoothed density with contours, over some of the draws."""
    axes.plot(
        across.values[points], below.values[points], ".", color="0.55", markersize=1.5, alpha=0.6,
        zorder=1,
    )  # fmt: skip
    if across.truth is not None and across.limits[0] <= across.truth <= across.limits[1]:
        axes.axvline(across.truth, zorder=4, **TRUTH)
    if below.truth is not None and below.limits[0] <= below.truth <= below.limits[1]:
        axes.axhline(below.truth, zorder=4, **TRUTH)
    edges = [np.linspace(*limits, NUM_CELLS + 1) for limits in (across.limits, below.limits)]
    density = smooth_density(across.values, below.values, weighing.values, weighing.ess, edges)
    levels = levels_of(density, weighing.masses)
    highest = float(density.max())
    rising = all(a < b for a, b in zip([0.0, *levels], [*levels, highest]))
    if not rising:  # all draws are in one cell or in adjacent cells
        return
    centres = [0.5 * (line[1:] + line[:-1]) for line in edges]
    for level, shade in zip(levels, (0.3, 0.45)):
        above = [level, 1.1 * highest]
        axes.contourf(*centres, density.T, above, colors=[COLOURS[0]], alpha=shade, zorder=2)
    axes.contour(*centres, density.T, levels, colors=[COLOURS[0]], linewidths=0.8, zorder=3)


def _label(axes: Axes, place: tuple[int, int], coordinates: Sequence[Coordinate]) -> None:
    """Names and numbers only at the left and at the bottom."""
    row, column = place
    axes.tick_params(labelsize="x-small")
    few_ticks(axes.xaxis, 4 if len(coordinates) > 1 else 7)
    if row == len(coordinates) - 1:
        axes.set_xlabel(shorten(coordinates[column].label, 24))
        if len(coordinates) > 1:
            axes.tick_params(axis="x", rotation=45)
    else:
        axes.tick_params(labelbottom=False)
    if column == row:
        if row == 0:
            axes.set_ylabel("density")
        return
    few_ticks(axes.yaxis, 4)
    if column == 0:
        axes.set_ylabel(shorten(coordinates[row].label, 24))
    else:
        axes.tick_params(labelleft=False)
