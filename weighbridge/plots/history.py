"""The comparison of models along the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import draw_changes, from_zero, styles, whole_numbers
from weighbridge.plots.scales import bend_factors
from weighbridge.plots.surface import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Larger log Bayes factors are drawn on a logarithmic scale.
LINEAR_UP_TO = 10.0


def plot_history(
    rows: np.ndarray,
    curves: Mapping[str, Mapping[str, np.ndarray]],
    *,
    changes: Sequence[float] = (),
    axes: Surface | None = None,
) -> Figure:
    """Log Bayes factors, probabilities and annealing steps of models along the rows seen.

    Bands show two standard errors on either side.

    Args:
        rows: rows seen, one entry for each update.
        curves: for each model ``log_evidence``, ``std_error``, ``probability``,
            ``probability_error`` and ``annealing_steps``; NaN if missing.
        changes: rows at which to draw a vertical line.
        axes: where to draw: an empty figure or subfigure, or three axes.
    """
    drawn = panels(axes, (3, 1), (7.5, 7.8), sharex=True)
    upper, middle, lower = drawn.flat
    size = 3 if len(rows) > 10 else 6
    known = np.array([curve["log_evidence"] for curve in curves.values()]).reshape(-1, len(rows))
    best = np.max(np.where(np.isnan(known), -np.inf, known), axis=0, initial=-np.inf)
    lowest = 0.0
    for (name, curve), style in zip(curves.items(), styles(len(curves))):
        factor = curve["log_evidence"] - best
        lowest = min(lowest, float(np.nanmin(factor, initial=0.0)))
        heights = (
            (factor, curve["std_error"]),
            (curve["probability"], curve["probability_error"]),
            (curve["annealing_steps"], None),
        )
        for panel, (height, error) in zip(drawn.flat, heights):
            panel.plot(
                rows, height, marker=".", markersize=size, label=name, clip_on=panel is not middle,
                **style,
            )  # fmt: skip
            if error is not None:
                reach = 2 * np.nan_to_num(error)
                low, high = height - reach, height + reach
                if panel is middle:
                    low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
                panel.fill_between(rows, low, high, color=style["color"], alpha=0.15, linewidth=0)
    draw_changes(drawn.flat, changes)
    upper.set_ylabel("log Bayes factor\nagainst the best (nats)")
    bend_factors(upper, "y", lowest, 0.0, LINEAR_UP_TO)
    middle.set_ylabel("probability")
    middle.set_ylim(0.0, 1.0)  # nothing is outside; marks at the edge are not clipped
    lower.set_ylabel("annealing steps\nper update")
    from_zero(lower)
    lower.set_xlabel("rows seen")
    if len(rows) > 1 and rows[0] > 0 and rows[-1] > 20 * rows[0]:
        lower.set_xscale("log")
    else:
        whole_numbers(lower.xaxis)
    return drawn.finish([*curves, *(["change found"] if len(changes) else [])])
