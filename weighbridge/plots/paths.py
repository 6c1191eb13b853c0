"""The path of an estimate: along the rows seen, or along the annealing steps."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.plots.answer import Answer
from weighbridge.plots.canvas import draw_changes, from_zero, styles, whole_numbers
from weighbridge.plots.numbers import minus
from weighbridge.plots.surface import Panels, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

Traces = Mapping[str, Mapping[str, np.ndarray]]
ANSWER_COLOUR = "#D55E00"
# Characters per line above the figure.
LINE = 105
# Most panels of a path that neither tempers nor takes rows.
MAX_COLUMNS = 3


def plot_paths(
    traces: Traces,
    *,
    changes: Sequence[float] = (),
    answer: Answer | None = None,
    axes: Surface | None = None,
) -> Figure:
    """The paths of several models: along the rows seen, the annealing steps, or the points.

    For runs that take rows as they come: log evidence per row, annealing steps, and ESS if known.
    For runs that temper all the data: log evidence so far, power, ESS, and the variance of power x
    log-likelihood if known. The variance is about half the number of parameters that the data
    determine; a peak far above shows a phase transition, at which tempering may fail. For other
    methods: log evidence, and up to two of the other columns that all traces have.

    Args:
        traces: for each name, columns ``rows``, ``log_evidence``, ``annealing_steps`` and maybe
            ``ess``, or ``power``, ``log_evidence`` and ``ess``, or ``log_evidence`` and others.
        changes: rows at which to draw a vertical line.
        answer: for a single run: its answer, drawn with two standard errors on either side.
        axes: where to draw: an empty figure or subfigure, or one axes per panel.
    """
    if all({"power", "ess"} <= set(trace) for trace in traces.values()):
        return _plot_tempering(traces, answer, axes)
    if not all({"rows", "annealing_steps"} <= set(trace) for trace in traces.values()):
        return _plot_points(traces, answer, axes)
    shows_ess = all("ess" in trace for trace in traces.values())
    drawn = _stacked(axes, 3 if shows_ess else 2)
    longest = max((len(trace["rows"]) for trace in traces.values()), default=0)
    for (name, trace), style in zip(traces.items(), styles(len(traces))):
        rows = trace["rows"]
        heights = [trace["log_evidence"] / rows, trace["annealing_steps"]]
        heights += [trace["ess"]] if shows_ess else []
        _draw_lines(drawn.flat, rows, heights, "path" if answer else name, style)
        if answer is not None and len(rows):
            _point_at(drawn.flat[0], float(rows[-1]), answer)
    draw_changes(drawn.flat, changes)
    drawn.flat[0].set_ylabel("log evidence\nper row (nats)")
    drawn.flat[1].set_ylabel("annealing steps\nper chunk")
    if all(np.all(trace["annealing_steps"] > 0) for trace in traces.values()):
        drawn.flat[1].set_yscale("log")
        drawn.flat[1].set_ylim(bottom=0.8)
    if shows_ess:
        drawn.flat[2].set_ylabel("ESS per island")
        from_zero(drawn.flat[2])
    drawn.flat[-1].set_xlabel("rows seen")
    if longest > 1:
        drawn.flat[-1].set_xscale("log")
    else:
        whole_numbers(drawn.flat[-1].xaxis)
    return _finish(drawn, list(traces), answer)


def _plot_tempering(traces: Traces, answer: Answer | None, axes: Surface | None) -> Figure:
    shows_heat = all("log_likelihood_variance" in trace for trace in traces.values())
    drawn = _stacked(axes, 4 if shows_heat else 3)
    for (name, trace), style in zip(traces.items(), styles(len(traces))):
        steps = np.arange(1, len(trace["power"]) + 1)
        heights = [trace["log_evidence"], trace["power"], trace["ess"]]
        if shows_heat:
            heights.append(trace["power"] ** 2 * trace["log_likelihood_variance"])
        _draw_lines(drawn.flat, steps, heights, "path" if answer else name, style)
    if answer is not None:
        _draw_level(drawn.flat[0], answer)
    drawn.flat[0].set_ylabel("log evidence\nso far (nats)")
    drawn.flat[1].set_ylabel("power of the\nlikelihood")
    drawn.flat[1].set_yscale("log")
    drawn.flat[2].set_ylabel("ESS of the step,\nper island")
    from_zero(drawn.flat[2])
    if shows_heat:
        drawn.flat[3].set_ylabel("variance of\npower x log-likelihood")
        from_zero(drawn.flat[3])
    drawn.flat[-1].set_xlabel("annealing step")
    figure = _finish(drawn, list(traces), answer)
    whole_numbers(drawn.flat[-1].xaxis)
    return figure


def _plot_points(traces: Traces, answer: Answer | None, axes: Surface | None) -> Figure:
    """The log evidence along the points of a trace, and other columns below it."""
    first = next(iter(traces.values()))
    shared = [name for name in first if all(name in trace for trace in traces.values())]
    columns = ["log_evidence", *(name for name in shared if name != "log_evidence")][:MAX_COLUMNS]
    drawn = _stacked(axes, len(columns))
    for (name, trace), style in zip(traces.items(), styles(len(traces))):
        points = np.arange(1, len(trace["log_evidence"]) + 1)
        heights = [trace[column] for column in columns]
        _draw_lines(drawn.flat, points, heights, "path" if answer else name, style)
    if answer is not None:
        _draw_level(drawn.flat[0], answer)
    drawn.flat[0].set_ylabel("log evidence\nso far (nats)")
    for panel, column in zip(drawn.flat[1:], columns[1:]):
        panel.set_ylabel(column.replace("_", " "))
    drawn.flat[-1].set_xlabel("point of the path")
    figure = _finish(drawn, list(traces), answer)
    whole_numbers(drawn.flat[-1].xaxis)
    return figure


def _stacked(surface: Surface | None, count: int) -> Panels:
    return panels(surface, (count, 1), (7.5, 1.2 + 2.2 * count), sharex=True)


def _finish(drawn: Panels, names: Sequence[str], answer: Answer | None) -> Figure:
    if answer is None:
        # Other lines, such as changes, are named in the legend too.
        labels = drawn.flat[0].get_legend_handles_labels()[1]
        return drawn.finish(labels if len(labels) > len(names) else names)
    figure = drawn.finish([])
    notes = [part for text in (answer.caution, answer.note) for part in textwrap.wrap(text, LINE)]
    drawn.flat[0].set_title("\n".join([*names, *map(minus, notes)]), loc="left", fontsize="small")
    drawn.flat[0].legend(fontsize="small", framealpha=0.8)
    return figure


def _draw_level(axes: Axes, answer: Answer) -> None:
    """The answer as a line over the whole path, with its band."""
    label = minus(f"answer: {answer.written}")
    axes.axhline(answer.log_evidence, color=ANSWER_COLOUR, linestyle="--", label=label, zorder=1)
    if math.isfinite(answer.std_error):
        reach = 2 * answer.std_error
        axes.axhspan(
            answer.log_evidence - reach, answer.log_evidence + reach, color=ANSWER_COLOUR,
            alpha=0.2, linewidth=0, zorder=0, label="2 standard errors either way",
        )  # fmt: skip


def _point_at(axes: Axes, rows: float, answer: Answer) -> None:
    """The answer at the last row, with two standard errors on either side."""
    error = 2 * answer.std_error / rows if math.isfinite(answer.std_error) else None
    axes.errorbar(
        rows, answer.log_evidence / rows, yerr=error, fmt="D", markersize=5, capsize=3,
        color=ANSWER_COLOUR, markerfacecolor="none", label=minus(f"answer: {answer.written}"),
        zorder=3,
    )  # fmt: skip


def _draw_lines(
    drawn: Sequence[Axes],
    x: np.ndarray,
    heights: Sequence[np.ndarray],
    name: str,
    style: Mapping[str, Any],
) -> None:
    size = 3 if len(x) > 10 else 6
    for axes, height in zip(drawn, heights):
        axes.plot(x, height, marker=".", markersize=size, label=name, **style)
