"""Figures. Matplotlib is imported only when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.base import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that belongs to no window, so that it works on any machine."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            'Plots need matplotlib: pip install "weighbridge[plot]".'
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def plot_paths(
    traces: Mapping[str, Mapping[str, np.ndarray]], *, changes: Sequence[float] = ()
) -> Figure:
    """Log evidence per row, and annealing steps, against the rows seen, for several models.

    Args:
        traces: for each name, columns ``rows``, ``log_evidence`` and ``annealing_steps``.
        changes: rows at which to draw a vertical line.
    """
    figure = new_figure(7.5, 6.5)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for name, trace in traces.items():
        rows = trace["rows"]
        upper.plot(rows, trace["log_evidence"] / rows, marker=".", markersize=3, label=name)
        lower.plot(rows, trace["annealing_steps"], marker=".", markersize=3, label=name)
    for change in changes:
        for axes in (upper, lower):
            axes.axvline(change, color="0.6", linestyle="--", linewidth=1, zorder=0)
    upper.set_ylabel("log evidence per row (nats)")
    lower.set_ylabel("annealing steps per chunk")
    lower.set_yscale("log")
    lower.set_xlabel("rows seen")
    if all(len(trace["rows"]) > 1 and trace["rows"][0] > 0 for trace in traces.values()):
        lower.set_xscale("log")
    upper.legend(frameon=False)
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    return figure
