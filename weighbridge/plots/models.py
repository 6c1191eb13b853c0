"""Models side by side: log Bayes factors, probabilities, and how the factors came about."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from weighbridge.plots.canvas import minus, new_figure, short_names, styles, write_out_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_comparison(
    factors: Mapping[str, tuple[float, float]],
    probabilities: Mapping[str, tuple[float, float]],
    *,
    decisive: float,
    traces: Mapping[str, Mapping[str, np.ndarray]],
) -> Figure:
    """Log Bayes factors and probabilities of models, and how the factors came about.

    Args:
        factors: log Bayes factor of each model against the first, with its standard error.
        probabilities: likewise; the order is that of ``factors``.
        decisive: log Bayes factor beyond which the evidence is decisive.
        traces: paths of the models, to draw the factors as rows arrive where all have them.
    """
    names = list(factors)
    paths = _factor_paths(names, traces)
    height = 1.3 + 0.5 * len(names)
    figure = new_figure(10.0, height + (3.0 if paths else 0.0))
    ratios = [height, 3.0] if paths else [height]
    grid = figure.add_gridspec(len(ratios), 2, height_ratios=ratios)
    left = figure.add_subplot(grid[0, 0])
    right = figure.add_subplot(grid[0, 1], sharey=left)
    places = range(len(names))
    for place, name, style in zip(places, names, styles(len(names))):
        _draw_factor(left, place, *factors[name], style["color"])
        _draw_probability(right, place, *probabilities[name], style["color"])
    _scale_factors(left, "x", min(value for value, _ in factors.values()), 0.0, decisive)
    left.axvline(-decisive, color="0.5", linestyle=":", linewidth=1, zorder=0)
    left.annotate(
        "decisive", (-decisive, 1.0), xycoords=left.get_xaxis_transform(), xytext=(-3, 3),
        textcoords="offset points", ha="right", fontsize="small", color="0.35",
    )  # fmt: skip
    unknown = [math.isnan(error) for _, error in factors.values()]
    short = short_names(names, 38)
    labels = [f"{n}{' (error unknown)' if u else ''}" for n, u in zip(short, unknown)]
    left.set_yticks(
        places, ["\n".join(textwrap.wrap(label, 28)) for label in labels], fontsize="small"
    )
    left.set_ylim(len(names) - 0.5, -0.5)
    left.set_xlabel("log Bayes factor against the best (nats)")
    right.tick_params(labelleft=False)
    right.set_xlim(0, 1.22)
    right.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
    right.set_xlabel("posterior probability")
    for axes in (left, right):
        axes.grid(alpha=0.3, axis="x")
    if paths:
        _draw_factor_paths(figure.add_subplot(grid[1, :]), paths, names, decisive)
    figure.supxlabel("Bars: 2 standard errors either way.", fontsize="small", color="0.35")
    return figure


def _draw_factor(axes: Axes, place: int, value: float, error: float, colour: str) -> None:
    known = not math.isnan(error)
    axes.errorbar(
        value, place, xerr=2 * error if known else None, fmt="o", capsize=3,
        color=colour, markerfacecolor=colour if known else "none",
    )  # fmt: skip


def _draw_probability(axes: Axes, place: int, value: float, error: float, colour: str) -> None:
    known = not math.isnan(error)
    axes.barh(place, value, height=0.55, color=colour, alpha=0.6)
    upper = value
    if known:
        lower, upper = max(value - 2 * error, 0.0), min(value + 2 * error, 1.0)
        reach = [[value - lower], [upper - value]]
        axes.errorbar(value, place, xerr=reach, fmt="none", capsize=3, color="0.2")
    text = "< 0.001" if value < 0.0005 else f"{value:.3f}"
    axes.annotate(
        text, (upper, place), xytext=(6, 0), textcoords="offset points", va="center",
        fontsize="small",
    )  # fmt: skip


def _scale_factors(
    axes: Axes, along: Literal["x", "y"], lowest: float, highest: float, decisive: float
) -> None:
    """Linear while all factors can be seen so; beyond, logarithmic outside the decisive ones."""
    if lowest > -20 * decisive and highest < 20 * decisive:
        return
    scale: dict[str, Any] = {"linthresh": 2 * decisive}
    decades = math.ceil(math.log10(max(-lowest, highest)))
    tens = [10.0**k for k in range(1, decades + 1, 1 + decades // 4)]
    ticks = [value for ten in tens for value in (-ten, ten) if 1.5 * lowest <= value <= highest]
    ticks = sorted([0.0, *ticks])
    labels = [minus(f"{tick:,.0f}") for tick in ticks]
    ends = (1.6 * min(lowest, -decisive), max(1.6 * highest, 0.4 * decisive))
    if along == "x":
        axes.set_xscale("symlog", **scale)
        axes.set_xticks(ticks, labels)
        axes.set_xlim(ends)
    else:
        axes.set_yscale("symlog", **scale)
        axes.set_yticks(ticks, labels)
        axes.set_ylim(ends)


def _factor_paths(
    names: Sequence[str], traces: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows and log Bayes factors against the first model; empty where paths share no rows."""
    if any(name not in traces or "rows" not in traces[name] for name in names):
        return {}
    if any("power" in traces[name] for name in names):
        return {}  # powers of different likelihoods are no common way
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
    write_out_numbers(axes.xaxis)
    heights = np.concatenate([height for _, height in paths.values()])
    _scale_factors(axes, "y", float(heights.min()), float(heights.max()), decisive)
    axes.set_xlabel("rows seen")
    axes.set_ylabel("log Bayes factor (nats)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    axes.grid(alpha=0.3)
