"""The posterior: marginals on the diagonal, pairs of coordinates below it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.base import MethodError
from weighbridge.export import highest_density_interval, scalar_entries
from weighbridge.plots.canvas import COLOURS, minus, new_figure, num_bins, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

MAX_COORDINATES = 8
# Draws that are shown as points, cells of a density along each side, mass within its contours.
NUM_POINTS = 600
NUM_CELLS = 96
CONTOURS = (0.9, 0.5)
# Bandwidths to choose from, as fractions of the one that is right for a single hump.
BANDWIDTHS = (1.0, 0.6, 0.35, 0.2)
# How draws are marked that are worth a look.
MARKED = {"color": COLOURS[1], "markersize": 4, "markeredgewidth": 0.8}


def plot_posterior(
    samples: Mapping[str, np.ndarray],
    weights: np.ndarray,
    names: Sequence[str] | None = None,
    *,
    title: str = "",
    marked: np.ndarray | None = None,
) -> Figure:
    """Marginals and pairs of up to eight scalar coordinates of a weighted posterior.

    Args:
        samples: draws by parameter name, the draw along the first axis.
        weights: of the draws, adding up to 1.
        names: parameters (``"w"``) or entries of them (``"w[0]"``); by default all.
        title: what to write above.
        marked: which draws to mark, such as divergent ones.
    """
    chosen, count = choose_coordinates(samples, names)
    ess = 1 / float(np.sum(weights**2))
    size = len(chosen)
    side = min(2.3, 13.0 / size)
    figure = new_figure(max(side * size, 5.0), max(side * size, 3.0) + 0.7)
    grid = figure.add_gridspec(size, size)
    labels = list(chosen)
    points = _points(weights)
    limits = {name: _limits(values, weights) for name, values in chosen.items()}
    for row, below in enumerate(labels):
        for column, across in enumerate(labels[: row + 1]):
            axes = figure.add_subplot(grid[row, column])
            axes.set_xlim(limits[across])
            if column == row:
                _draw_marginal(axes, chosen[across], weights, limits[across], ess)
            else:
                axes.set_ylim(limits[below])
                _draw_pair(axes, chosen[across], chosen[below], weights, ess, points)
                if marked is not None and np.any(marked):
                    axes.plot(chosen[across][marked], chosen[below][marked], "x", **MARKED)  # type: ignore[arg-type]
            _label(axes, row, column, labels, limits)
    figure.align_labels()
    drawn = f"{len(weights):,} draws"
    if np.ptp(weights) > 0:
        drawn = f"{len(weights):,} weighted draws (ESS {ess:,.0f})"
    notes = [*([title] if title else []), f"{drawn}; shaded: 50 % and 90 % of the mass"]
    if marked is not None and np.any(marked):
        notes[-1] += f"; crosses: {np.sum(marked):,} divergent"
    if count > size:
        notes.append(f"{size} of {count} coordinates; choose others with names=[...]")
    figure.suptitle("\n".join(notes), x=0.01, ha="left", fontsize="small")
    return figure


def choose_coordinates(
    samples: Mapping[str, np.ndarray], names: Sequence[str] | None
) -> tuple[dict[str, np.ndarray], int]:
    """Scalar entries to draw, and how many there were to choose from.

    If there are too many, every parameter gives its first entry, then its second, and so on.

    >>> samples = {"w": np.zeros((5, 20)), "b": np.zeros(5)}
    >>> chosen, count = choose_coordinates(samples, None)
    >>> list(chosen), count
    (['w[0]', 'w[1]', 'w[2]', 'w[3]', 'w[4]', 'w[5]', 'w[6]', 'b'], 21)
    >>> list(choose_coordinates(samples, ["w[7]", "b"])[0])
    ['w[7]', 'b']
    """
    wanted: dict[str, list[str]] = {}
    entries = scalar_entries(samples)
    for name in [*samples] if names is None else [names] if isinstance(names, str) else names:
        if name in samples:
            wanted[name] = list(scalar_entries({name: samples[name]}))
        elif name in entries:
            wanted[name] = [name]
        else:
            near = difflib.get_close_matches(str(name), [*samples, *entries], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise MethodError(
                f"There is no parameter {name!r}; there are {list(samples)}, and entries of them "
                f"as in 'w[0]'.{hint}"
            )
    labels = list(dict.fromkeys(label for group in wanted.values() for label in group))
    if not labels:
        raise MethodError("There is nothing to draw: no parameter was named, or none has draws.")
    turns = {label: place for group in wanted.values() for place, label in enumerate(group)}
    kept = set(sorted(labels, key=turns.__getitem__)[:MAX_COORDINATES])
    return {label: entries[label] for label in labels if label in kept}, len(labels)


def _points(weights: np.ndarray) -> np.ndarray:
    """Indices of draws to show as points, evenly spaced in the weights."""
    cumulative = np.cumsum(weights)
    places = (np.arange(NUM_POINTS) + 0.5) / NUM_POINTS * cumulative[-1]
    return np.unique(np.searchsorted(cumulative, places))


def _limits(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    ends = np.quantile(values, (0.002, 0.998), weights=weights, method="inverted_cdf")
    low, high = float(ends[0]), float(ends[1])
    margin = 0.05 * (high - low) or 0.05 * abs(low) or 1.0
    return low - margin, high + margin


def _draw_marginal(
    axes: Axes, values: np.ndarray, weights: np.ndarray, limits: tuple[float, float], ess: float
) -> None:
    """A weighted histogram, with the shortest intervals that hold half and nine tenths."""
    heights, edges = np.histogram(values, num_bins(ess), limits, density=True, weights=weights)
    axes.stairs(heights, edges, color=COLOURS[0], linewidth=1)
    for probability in CONTOURS:
        low, high = highest_density_interval(values, weights, probability)
        fine = np.linspace(*limits, 40 * len(heights), endpoint=False)
        cell = np.minimum(np.searchsorted(edges, fine, side="right") - 1, len(heights) - 1)
        axes.fill_between(
            fine, heights[cell], where=(fine >= low) & (fine <= high), step="post",
            color=COLOURS[0], alpha=0.3, linewidth=0,
        )  # fmt: skip
    mean = float(np.sum(weights * values))
    deviation = math.sqrt(float(np.sum(weights * (values - mean) ** 2)))
    axes.set_ylim(bottom=0)
    axes.set_yticks([])
    axes.set_title(minus(_with_error(mean, deviation)), fontsize="small")


def _with_error(mean: float, deviation: float) -> str:
    """Mean and standard deviation, to two digits of the latter."""
    if not deviation > 0 or not math.isfinite(deviation):
        return f"{mean:.4g}"
    place = 1 - math.floor(math.log10(deviation))
    if 0 <= place <= 5 and abs(mean) < 1e5:
        return f"{mean:.{place}f} ± {deviation:.{place}f}"
    digits = max(2, 2 + math.floor(math.log10(max(abs(mean), deviation) / deviation)))
    return f"{mean:.{digits}g} ± {deviation:.2g}"


def _draw_pair(
    axes: Axes,
    across: np.ndarray,
    below: np.ndarray,
    weights: np.ndarray,
    ess: float,
    points: np.ndarray,
) -> None:
    """A smoothed density with contours of its mass, over some of the draws."""
    axes.plot(across[points], below[points], ".", color="0.55", markersize=1.5, alpha=0.6, zorder=1)
    edges = [np.linspace(*limits, NUM_CELLS + 1) for limits in (axes.get_xlim(), axes.get_ylim())]
    density = _density(across, below, weights, ess, edges)
    ordered = np.sort(density, axis=None)[::-1]
    held = np.cumsum(ordered) / ordered.sum()
    levels = [float(ordered[np.searchsorted(held, mass)]) for mass in CONTOURS]
    if not 0 < levels[0] < levels[1] < ordered[0]:  # all draws in one cell, or next to it
        return
    centres = [0.5 * (line[1:] + line[:-1]) for line in edges]
    for level, shade in zip(levels, (0.3, 0.45)):
        above = [level, 1.1 * ordered[0]]
        axes.contourf(*centres, density.T, above, colors=[COLOURS[0]], alpha=shade, zorder=2)
    axes.contour(*centres, density.T, levels, colors=[COLOURS[0]], linewidths=0.8, zorder=3)


def _density(
    across: np.ndarray,
    below: np.ndarray,
    weights: np.ndarray,
    ess: float,
    edges: Sequence[np.ndarray],
) -> np.ndarray:
    """Smoothed weights on a grid.

    The bandwidth is the one whose density foretells the draws best when each is left out in
    turn (Habbema, Hermans & van den Broek 1974): one fixed in advance blurs modes and rings.
    """
    counts, _, _ = np.histogram2d(across, below, bins=list(edges), weights=weights)
    squares, _, _ = np.histogram2d(across, below, bins=list(edges), weights=weights**2)
    own = np.divide(squares, counts, out=np.zeros_like(counts), where=counts > 0)
    scales = [_scale(values, weights) * ess ** (-1 / 6) for values in (across, below)]
    best, highest = counts, -np.inf
    for fraction in BANDWIDTHS:
        smooth = [_smoother(fraction * scale, line) for scale, line in zip(scales, edges)]
        density = smooth[0] @ counts @ smooth[1].T
        left_out = density - own * np.outer(np.diag(smooth[0]), np.diag(smooth[1]))
        score = float(np.sum(counts * np.log(np.maximum(left_out, 1e-12))))
        if score > highest:
            best, highest = density, score
    return np.asarray(best)


def _scale(values: np.ndarray, weights: np.ndarray) -> float:
    mean = np.sum(weights * values)
    return float(np.sqrt(np.sum(weights * (values - mean) ** 2)))


def _smoother(bandwidth: float, edges: np.ndarray) -> np.ndarray:
    """Matrix that smooths counts along one side; no mass leaves at the ends."""
    cells = max(bandwidth / (edges[1] - edges[0]), 0.8)
    place = np.arange(len(edges) - 1)
    kernel = np.exp(-0.5 * ((place[:, None] - place[None, :]) / cells) ** 2)
    return np.asarray(kernel / kernel.sum(axis=0))


def _label(
    axes: Axes,
    row: int,
    column: int,
    labels: Sequence[str],
    limits: Mapping[str, tuple[float, float]],
) -> None:
    """Names and numbers at the left and at the bottom only."""
    axes.tick_params(labelsize="x-small")
    _short_numbers(axes.xaxis, limits[labels[column]])
    if row == len(labels) - 1:
        axes.set_xlabel(shorten(labels[column], 24))
        axes.tick_params(axis="x", rotation=45)
    else:
        axes.tick_params(labelbottom=False)
    if column == row:
        return
    _short_numbers(axes.yaxis, limits[labels[row]])
    if column == 0:
        axes.set_ylabel(shorten(labels[row], 24))
    else:
        axes.tick_params(labelleft=False)


def _short_numbers(axis: Axis, limits: tuple[float, float]) -> None:
    """Three or four numbers, with the digits that tell them apart and no offset."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    largest, width = max(map(abs, limits)), limits[1] - limits[0]
    form = f".{2 + max(0, math.ceil(math.log10(largest / width)))}g"
    if width > 1e-4 and largest < 1e6:
        form = f",.{max(0, math.ceil(-math.log10(width / 4)))}f"
    axis.set_major_locator(MaxNLocator(3, prune="both"))
    axis.set_major_formatter(FuncFormatter(lambda value, _: minus(f"{value:{form}}")))
