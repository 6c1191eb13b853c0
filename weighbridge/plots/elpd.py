"""Predictive densities of single rows, and the comparison of models by them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import COLOURS, short_names, styles, tidy, whole_numbers
from weighbridge.plots.surface import panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Number of rows that are labelled: those with the worst values.
NUMBERED = 5
# With more rows than this the points are small, and rasterised in vector files.
MANY_ROWS = 2000


def plot_elpd(
    rows: np.ndarray,
    pointwise: np.ndarray,
    pareto_k: np.ndarray,
    *,
    title: str,
    largest_k: float,
    axes: Surface | None = None,
) -> Figure:
    """The log predictive density of each row, and the Pareto k of its importance weights.

    Args:
        rows: numbers of the rows.
        pointwise: log predictive density of each row, in nats.
        pareto_k: tail shape of the importance weights of each row; empty if there are none.
        title: text above the figure.
        largest_k: above it the value of a row is unreliable.
        axes: where to draw: an empty figure or subfigure, or one axes per panel: two panels, or one
            without Pareto k.

    >>> figure = plot_elpd(np.arange(3), -np.ones(3), np.zeros(3), title="", largest_k=0.7)
    >>> [axes.get_ylabel().split()[0] for axes in figure.axes]
    ['log', 'Pareto']
    """
    count = 2 if len(pareto_k) else 1
    drawn = panels(axes, (count, 1), (7.5, 1.2 + 2.4 * count), sharex=True)
    bad = pareto_k > largest_k if len(pareto_k) else np.zeros(len(rows), bool)
    _draw_points(drawn.flat[0], rows, pointwise, bad)
    drawn.flat[0].set_ylabel("log predictive\ndensity (nats)")
    lowest = np.argsort(pointwise, kind="stable")[:NUMBERED]
    shown = np.flatnonzero(bad)
    worst = shown[np.argsort(-pareto_k[shown], kind="stable")][:NUMBERED] if len(shown) else lowest
    if len(pareto_k):
        below = drawn.flat[1]
        finite = pareto_k[np.isfinite(pareto_k)]
        ends = min(-0.1, float(np.min(finite, initial=0.0))), float(np.max(finite, initial=0.0))
        ends = ends[0] - 0.05, max(largest_k + 0.15, 1.05 * ends[1])
        # A shape that is not finite is drawn at the edge.
        heights = np.clip(np.nan_to_num(pareto_k, nan=np.inf, posinf=np.inf, neginf=-np.inf), *ends)
        _draw_points(below, rows, heights, bad)
        below.axhline(largest_k, color="grey", linestyle="--", linewidth=1, zorder=0)
        below.set_ylim(ends)
        below.set_ylabel("Pareto k")
        on_right = _has_room_on_right(heights, largest_k, ends)
        below.annotate(
            f"unreliable above {largest_k:g}", (1.0 if on_right else 0.0, largest_k),
            xycoords=("axes fraction", "data"), xytext=(-4 if on_right else 4, 3),
            textcoords="offset points", ha="right" if on_right else "left",
            fontsize="x-small", color="0.35", zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
        )  # fmt: skip
        _number(below, rows, heights, worst[bad[worst]])
    _number(drawn.flat[0], rows, pointwise, worst)
    drawn.flat[-1].set_xlabel("row (counting from 0)")
    for panel in drawn.flat:
        panel.margins(y=0.12)
        tidy(panel)
        whole_numbers(panel.xaxis)
    drawn.heading([title])
    return drawn.figure


def _draw_points(axes: Axes, rows: np.ndarray, heights: np.ndarray, bad: np.ndarray) -> None:
    many = len(rows) > MANY_ROWS
    size = 2.0 if many else 5.0
    axes.plot(
        rows[~bad], heights[~bad], ".", color=COLOURS[0], markersize=size, rasterized=many,
        alpha=0.5 if many else 0.9,
    )  # fmt: skip
    if bad.any():  # an empty unclipped line would break the layout
        axes.plot(
            rows[bad], heights[bad], "X", color=COLOURS[1], markersize=size + 1, clip_on=False
        )


def _number(axes: Axes, rows: np.ndarray, heights: np.ndarray, chosen: np.ndarray) -> None:
    """Numbers next to some rows, on the side with more space."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.5, foreground="white")]
    middle = 0.5 * (float(rows[0]) + float(rows[-1]))
    for place in chosen:
        left = rows[place] > middle
        axes.annotate(
            f"{rows[place]:,}", (rows[place], heights[place]), xytext=(-5 if left else 5, 0),
            textcoords="offset points", fontsize="x-small", va="center",
            ha="right" if left else "left", path_effects=halo, zorder=4,
        )  # fmt: skip


def plot_elpd_comparison(
    elpds: Mapping[str, tuple[float, float]],
    differences: Mapping[str, tuple[float, float]],
    *,
    small: float,
    axes: Surface | None = None,
) -> Figure:
    """Log predictive densities of models, and their differences to the best model.

    Args:
        elpds: value and standard error of each model, the best first.
        differences: difference to the best, and its standard error.
        small: smaller differences are no reason to prefer a model.
        axes: where to draw: an empty figure or subfigure, or two axes.

    >>> both = {"a": (-9.0, 1.0), "b": (-19.0, 2.0)}
    >>> figure = plot_elpd_comparison(both, {"a": (0.0, 0.0), "b": (-10.0, 1.0)}, small=4.0)
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a', 'b']
    """
    names = list(elpds)
    drawn = panels(axes, (1, 2), (10.0, 1.5 + 0.5 * len(names)))
    left, right = drawn.flat
    right.axvspan(-small, small, color="0.9", zorder=0)
    for place, (name, style) in enumerate(zip(names, styles(len(names)))):
        for panel, (value, error) in ((left, elpds[name]), (right, differences[name])):
            panel.errorbar(value, place, xerr=2 * error, fmt="o", capsize=3, color=style["color"])
    for panel in (left, right):
        tidy(panel)
        panel.set_ylim(len(names) - 0.5, -0.5)
        panel.set_yticks(range(len(names)), [""] * len(names))
    labels = ["\n".join(textwrap.wrap(name, 28)) for name in short_names(names, 38)]
    left.set_yticks(range(len(names)), labels, fontsize="small")
    left.set_ylabel("model")
    left.set_xlabel("expected log predictive density (nats)")
    right.set_xlabel("difference to the best (nats)")
    drawn.heading([f"Bars: 2 standard errors either way; grey: below {small:g} nats, too small"])
    return drawn.figure


def _has_room_on_right(heights: np.ndarray, line: float, ends: tuple[float, float]) -> bool:
    """Whether fewer rows stand just above a line in the last half of them than in the first.

    >>> _has_room_on_right(np.array([0.0, 0.1, 0.72, 0.75]), 0.7, (0.0, 1.0))
    False
    """
    above = (heights >= line) & (heights < line + 0.15 * (ends[1] - ends[0]))
    half = (len(heights) + 1) // 2
    return int(np.sum(above[half:])) <= int(np.sum(above[:half]))
