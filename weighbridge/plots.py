"""Figures. Matplotlib is imported only when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.base import CheckpointError, MissingDependencyError
from weighbridge.checkpoint import check_place

if TYPE_CHECKING:
    from matplotlib.axis import Axis
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


def check_figure_place(path: str | Path) -> None:
    """Refuse a file that no figure can be written to; ask before a long run, not after it."""
    path = Path(path)
    known = new_figure(1.0, 1.0).canvas.get_supported_filetypes()
    if path.suffix.lower().lstrip(".") not in known:
        raise CheckpointError(
            f"Could not write the figure {path}: its name must end in .png, .pdf, .svg or "
            "another format of matplotlib."
        )
    check_place(path)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file, in the format that its name ends in."""
    check_figure_place(path)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise CheckpointError(
            f"Could not write the figure {path}: {error.strerror or error}. Choose another place."
        ) from error


def plot_paths(
    traces: Mapping[str, Mapping[str, np.ndarray]], *, changes: Sequence[float] = ()
) -> Figure:
    """The paths of several models: along the rows seen, or along the power of the likelihood.

    Of runs that took rows as they came: log evidence per row, and annealing steps. Of runs that
    tempered all the data: log evidence so far, and ESS.

    Args:
        traces: for each name, columns ``rows``, ``log_evidence`` and ``annealing_steps``, or
            ``power``, ``log_evidence`` and ``ess``.
        changes: rows at which to draw a vertical line.
    """
    if all("power" in trace for trace in traces.values()):
        return _plot_tempering(traces)
    figure = new_figure(7.5, 6.5)
    upper, lower = figure.subplots(2, 1, sharex=True)
    longest = max((len(trace["rows"]) for trace in traces.values()), default=0)
    size = 3 if longest > 10 else 6
    for name, trace in traces.items():
        rows = trace["rows"]
        upper.plot(rows, trace["log_evidence"] / rows, marker=".", markersize=size, label=name)
        lower.plot(rows, trace["annealing_steps"], marker=".", markersize=size, label=name)
    for change in changes:
        for axes in (upper, lower):
            axes.axvline(change, color="0.6", linestyle="--", linewidth=1, zorder=0)
    upper.set_ylabel("log evidence per row (nats)")
    lower.set_ylabel("annealing steps per chunk")
    lower.set_yscale("log")
    _write_out_numbers(lower.yaxis)
    lower.set_xlabel("rows seen")
    if longest > 1:
        lower.set_xscale("log")
        _write_out_numbers(lower.xaxis)
    upper.legend(frameon=False)
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    return figure


def _plot_tempering(traces: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    figure = new_figure(7.5, 6.5)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for name, trace in traces.items():
        upper.plot(trace["power"], trace["log_evidence"], marker=".", label=name)
        lower.plot(trace["power"], trace["ess"], marker=".", label=name)
    upper.set_ylabel("log evidence so far (nats)")
    lower.set_ylabel("ESS of the step, per island")
    lower.set_xlabel("power of the likelihood")
    lower.set_xscale("log")
    upper.legend(frameon=False)
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    return figure


def _write_out_numbers(axis: Axis) -> None:
    """Label a logarithmic axis 200, 500, 1,000: runs often span less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(_write_out))
    axis.set_minor_formatter(NullFormatter())


def _write_out(value: float, _: int | None = None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
