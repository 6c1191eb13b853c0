"""Models side by side: log Bayes factors, probabilities, and the factors along the rows."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import short_names, styles, tidy
from weighbridge.plots.scales import bend_factors
from weighbridge.plots.surface import own_axes, parent_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Colour of the names of models whose evidence is flagged.
FLAGGED = "#B00020"


def plot_comparison(
    factors: Mapping[str, tuple[float, float]],
    probabilities: Mapping[str, tuple[float, float]],
    *,
    decisive: float,
    traces: Mapping[str, Mapping[str, np.ndarray]],
    cautions: Mapping[str, str] | None = None,
    bounds: Mapping[str, str] | None = None,
    undecided: bool = False,
    axes: Surface | None = None,
) -> Figure:
    """Log Bayes factors and probabilities of models, and the factors along the rows.

    Args:
        factors: log Bayes factor of each model against the first, with its standard error.
        probabilities: probability and standard error; in the order of ``factors``.
        decisive: log Bayes factor above which the evidence is decisive.
        traces: paths of the models; the factors along the rows are drawn if all have rows.
        cautions: for flagged models: why not to trust them, in a few words.
        bounds: for factors that are bounds: "at most"; for others: why they have no error.
        undecided: whether the probabilities are not to be trusted.
        axes: where to draw: an empty figure or subfigure, or two axes (then without the paths).
    """
    names = list(factors)
    paths = _factor_paths(names, traces)
    labels = _labels(factors, cautions or {}, bounds or {})
    height = 1.3 + 0.5 * len(names) + 0.15 * sum(label.count("\n") > 1 for label in labels)
    parent = parent_of(axes, (10.0, height + (3.0 if paths else 0.0)))
    if parent is None:
        left, right = own_axes(axes, (1, 2)).flat
    else:
        ratios = [height, 3.0] if paths else [height]
        grid = parent.add_gridspec(len(ratios), 2, height_ratios=ratios)
        left, right = parent.add_subplot(grid[0, 0]), parent.add_subplot(grid[0, 1])
    places = range(len(names))
    for place, name, style in zip(places, names, styles(len(names))):
        _draw_factor(left, place, *factors[name], style["color"])
        _draw_probability(right, place, *probabilities[name], style["color"])
    bend_factors(left, "x", min(value for value, _ in factors.values()), 0.0, decisive)
    left.axvline(-decisive, color="0.5", linestyle=":", linewidth=1, zorder=0)
    left.annotate(
        "decisive", (-decisive, 1.0), xycoords=left.get_xaxis_transform(), xytext=(-3, 3),
        textcoords="offset points", ha="right", fontsize="small", color="0.35",
    )  # fmt: skip
    left.set_yticks(places, labels, fontsize="small")
    for label, name in zip(left.get_yticklabels(), names):
        if name in (cautions or {}):
            label.set_color(FLAGGED)
    left.set_ylim(len(names) - 0.5, -0.5)
    left.set_xlabel("log Bayes factor against the best (nats)")
    left.set_ylabel("model")
    right.set_yticks(places, [""] * len(names))
    right.set_ylim(left.get_ylim())
    right.set_xlim(0, 1)
    right.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
    right.set_xlabel("posterior probability" + " (not to be trusted)" * undecided)
    for panel in (left, right):
        tidy(panel)
        panel.grid(visible=False, axis="y")
    if parent is not None:
        if paths:
            _draw_factor_paths(parent.add_subplot(grid[1, :]), paths, names, decisive)
        parent.supxlabel("Bars: 2 standard errors either way.", fontsize="small", color="0.35")
    figure: Figure = left.get_figure(root=True)
    return figure


def _labels(
    factors: Mapping[str, tuple[float, float]],
    cautions: Mapping[str, str],
    bounds: Mapping[str, str],
) -> list[str]:
    """Names of the models for the axis, with the cautions about their numbers."""
    labels = []
    for (name, (_, error)), short in zip(factors.items(), short_names(list(factors), 38)):
        unknown = f" ({bounds.get(name, 'error unknown')})" if math.isnan(error) else ""
        caution = textwrap.wrap(cautions.get(name, ""), 28, max_lines=2, placeholder=" ...")
        labels.append("\n".join([*textwrap.wrap(short + unknown, 28), *caution]))
    return labels


def _draw_factor(axes: Axes, place: int, value: float, error: float, colour: str) -> None:
    known = not math.isnan(error)
    axes.errorbar(
        value, place, xerr=2 * error if known else None, fmt="o", capsize=3,
        color=colour, markerfacecolor=colour if known else "none",
    )  # fmt: skip


def _draw_probability(axes: Axes, place: int, value: float, error: float, colour: str) -> None:
    known = not math.isnan(error)
    axes.barh(place, value, height=0.55, color=colour, alpha=0.6, fill=known, edgecolor=colour)
    if known:
        lower, upper = max(value - 2 * error, 0.0), min(value + 2 * error, 1.0)
        reach = [[value - lower], [upper - value]]
        bars = axes.errorbar(value, place, xerr=reach, fmt="none", capsize=3, color="0.2")
        for part in bars.get_children():  # a bar that ends at 1 is not clipped
            part.set_clip_on(False)
    axes.annotate(
        write_probability(value), (1.0, place), xytext=(8, 0), textcoords="offset points",
        va="center", fontsize="small", annotation_clip=False,
    )  # fmt: skip


def write_probability(value: float) -> str:
    """A probability with three decimals; never written as exactly 0 or 1.

    >>> write_probability(0.25), write_probability(1e-9), write_probability(0.999999)
    ('0.250', '< 0.001', '> 0.999')
    """
    if value < 0.0005:
        return "< 0.001"
    if value >= 0.9995:
        return "> 0.999"
    return f"{value:.3f}"


def _factor_paths(
    names: Sequence[str], traces: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows and log Bayes factors against the first model; empty if the paths share no rows."""
    if any(name not in traces or "rows" not in traces[name] for name in names):
        return {}
    if any("power" in traces[name] for name in names):
        return {}  # powers of different likelihoods are not comparable
    common = traces[names[0]]["rows"]
    for name in names[1:]:
        common = np.intersect1d(common, traces[name]["rows"])
    if len(common) < 2:
        return {}
    heights = {}
    for name in names:
        chosen = np.searchsorted(traces[name]["rows"], common)
        heights[name] = traces[name]["log_evidence"][chosen]
    best = heights[names[0]]
    return {name: (common, height - best) for name, height in heights.items()}


def _draw_factor_paths(
    axes: Axes,
    paths: Mapping[str, tuple[np.ndarray, np.ndarray]],
    names: Sequence[str],
    decisive: float,
) -> None:
    labels = short_names(names, 24)
    for name, label, style in zip(names, labels, styles(len(names))):
        axes.plot(*paths[name], marker=".", markersize=3, label=label, **style)
    axes.set_xscale("log")
    heights = np.concatenate([height for _, height in paths.values()])
    bend_factors(axes, "y", float(heights.min()), float(heights.max()), decisive)
    axes.set_xlabel("rows seen")
    axes.set_ylabel("log Bayes factor (nats)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    tidy(axes)
