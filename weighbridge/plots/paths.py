"""The path of an estimate: along the rows seen, or along the annealing steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.plots.canvas import finish, stacked_panels, styles, write_out_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_paths(
    traces: Mapping[str, Mapping[str, np.ndarray]], *, changes: Sequence[float] = ()
) -> Figure:
    """The paths of several models: along the rows seen, or along the annealing steps.

    Of runs that took rows as they came: log evidence per row, annealing steps, and ESS where it
    is known. Of runs that tempered all the data: log evidence so far, power, and ESS.

    Args:
        traces: for each name, columns ``rows``, ``log_evidence``, ``annealing_steps`` and maybe
            ``ess``, or ``power``, ``log_evidence`` and ``ess``.
        changes: rows at which to draw a vertical line.
    """
    if all("power" in trace for trace in traces.values()):
        return _plot_tempering(traces)
    shows_ess = all("ess" in trace for trace in traces.values())
    panels = stacked_panels(3 if shows_ess else 2)
    longest = max((len(trace["rows"]) for trace in traces.values()), default=0)
    for (name, trace), style in zip(traces.items(), styles(len(traces))):
        rows = trace["rows"]
        heights = [trace["log_evidence"] / rows, trace["annealing_steps"]]
        heights += [trace["ess"]] if shows_ess else []
        _draw_lines(panels, rows, heights, name, style)
    for change in changes:
        for axes in panels:
            axes.axvline(change, color="0.6", linestyle="--", linewidth=1, zorder=0)
    panels[0].set_ylabel("log evidence\nper row (nats)")
    panels[1].set_ylabel("annealing steps\nper chunk")
    if all(np.all(trace["annealing_steps"] > 0) for trace in traces.values()):
        panels[1].set_yscale("log")
        panels[1].set_ylim(bottom=0.8)
        write_out_numbers(panels[1].yaxis)
    if shows_ess:
        panels[2].set_ylabel("ESS per island")
        panels[2].set_ylim(bottom=0)
    panels[-1].set_xlabel("rows seen")
    if longest > 1:
        panels[-1].set_xscale("log")
        write_out_numbers(panels[-1].xaxis)
    return finish(panels, list(traces))


def _plot_tempering(traces: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    panels = stacked_panels(3)
    for (name, trace), style in zip(traces.items(), styles(len(traces))):
        steps = np.arange(1, len(trace["power"]) + 1)
        heights = [trace["log_evidence"], trace["power"], trace["ess"]]
        _draw_lines(panels, steps, heights, name, style)
    panels[0].set_ylabel("log evidence\nso far (nats)")
    panels[1].set_ylabel("power of the\nlikelihood")
    panels[1].set_yscale("log")
    panels[2].set_ylabel("ESS of the step,\nper island")
    panels[2].set_ylim(bottom=0)
    panels[2].set_xlabel("annealing step")
    panels[2].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return finish(panels, list(traces))


def _draw_lines(
    panels: Sequence[Axes],
    x: np.ndarray,
    heights: Sequence[np.ndarray],
    name: str,
    style: Mapping[str, Any],
) -> None:
    size = 3 if len(x) > 10 else 6
    for axes, height in zip(panels, heights):
        axes.plot(x, height, marker=".", markersize=size, label=name, **style)
