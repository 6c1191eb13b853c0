"""An optimum: where the starts ended, and the parameters with their errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.answer import write_estimate
from weighbridge.plots.canvas import COLOURS, short_names, tidy, whole_numbers
from weighbridge.plots.numbers import minus, write_number
from weighbridge.plots.surface import panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Largest number of parameters drawn.
MOST = 20
# Starts that end at most this many nats below the best count as ending at the best.
SEEN = 1e-3


def plot_optimum(
    optima: np.ndarray,
    values: Mapping[str, float],
    errors: Mapping[str, float] | None,
    *,
    title: str,
    axes: Surface | None = None,
) -> Figure:
    """How far below the best each start ended, and the parameters at the best.

    Args:
        optima: the objective at the end of each start, the best first.
        values: the scalar entries of the parameters.
        errors: their standard errors, if known.
        title: text above the figure, one line or several.
        axes: where to draw: an empty figure or subfigure, or two axes.

    >>> figure = plot_optimum(np.array([-1.0, -1.0, -5.0]), {"mu": 0.5}, {"mu": 0.1}, title="")
    >>> [axes.get_xlabel() for axes in figure.axes]
    ['start, the best first', 'value (bars: 2 standard errors either way)']
    """
    shown = dict(list(values.items())[:MOST])
    drawn = panels(axes, (1, 2), (9.0, max(3.2, 1.2 + 0.34 * len(shown))))
    left, right = drawn.flat
    _draw_starts(left, np.asarray(optima, float))
    _draw_values(right, shown, errors or {})
    for panel in (left, right):
        tidy(panel)
    right.grid(visible=False, axis="y")
    whole_numbers(left.xaxis)
    lines = title.splitlines()
    if len(values) > len(shown):
        lines.append(f"the first {len(shown)} of {len(values)} entries of the parameters")
    drawn.heading(lines)
    return drawn.figure


def _draw_starts(axes: Axes, optima: np.ndarray) -> None:
    """Starts that failed have no position; their number is shown."""
    from weighbridge.plots.ticks import SeparateNumbers

    behind = optima[0] - optima
    known = np.isfinite(behind)
    places = np.arange(1, len(optima) + 1)
    for same, marker, colour in ((True, "o", COLOURS[0]), (False, "X", COLOURS[1])):
        chosen = known & ((behind <= SEEN) == same)
        axes.plot(places[chosen], behind[chosen], marker, color=colour, linestyle="none")
    if behind[known].max() > 100 * SEEN:
        axes.set_yscale("symlog", linthresh=0.1)
        axes.yaxis.set_major_formatter(SeparateNumbers())
    else:
        axes.set_ylim(-0.1, 1.0)
    axes.invert_yaxis()
    axes.set_xlim(0.5, len(optima) + 0.5)
    axes.set_xlabel("start, the best first")
    axes.set_ylabel("nats below the best")
    if not known.all():
        lost = int(np.sum(~known))
        text = f"{lost:,} start{'' if lost == 1 else 's'} failed"
        axes.set_title(text, loc="left", fontsize="small")


def _draw_values(axes: Axes, values: Mapping[str, float], errors: Mapping[str, float]) -> None:
    places = np.arange(len(values))
    for place, (name, value) in zip(places, values.items()):
        error = errors.get(name)
        axes.errorbar(value, place, xerr=None if error is None else 2 * error, fmt="o", capsize=3,
                      color=COLOURS[0])  # fmt: skip
        written = write_number(value) if error is None else write_estimate(value, error)
        axes.annotate(minus(written), (1.0, float(place)), xycoords=axes.get_yaxis_transform(),
                      xytext=(8, 0), textcoords="offset points", va="center", fontsize="small",
                      annotation_clip=False)  # fmt: skip
    axes.set_yticks(places, short_names(list(values), 20), fontsize="small")
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_ylabel("parameter")
    bars = " (bars: 2 standard errors either way)" if errors else ""
    axes.set_xlabel(f"value{bars}")
