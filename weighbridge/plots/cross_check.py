"""The log evidences of several methods, side by side."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from weighbridge.plots.canvas import COLOURS, short_names, tidy
from weighbridge.plots.models import FLAGGED
from weighbridge.plots.surface import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface


def plot_cross_check(
    found: Mapping[str, tuple[float, float]],
    *,
    cautions: Mapping[str, str],
    lower_bound: float,
    axes: Surface | None = None,
) -> Figure:
    """One line for each method: its log evidence, with two standard errors either way.

    Args:
        found: log evidence and standard error by the name of the method.
        cautions: for methods that are not to be trusted: why, in a few words.
        lower_bound: a bound on the log evidence that a path gives; NaN if there is none.
        axes: where to draw: an empty figure or subfigure, or a single axes.
    """
    drawn = panels(axes, (1, 1), (7.0, 1.4 + 0.5 * len(found)))
    (panel,) = drawn.flat
    labels = []
    for place, (name, short) in enumerate(zip(found, short_names(list(found), 38))):
        value, error = found[name]
        known, caution = not math.isnan(error), cautions.get(name, "")
        panel.errorbar(
            value, place, xerr=2 * error if known else None, fmt="o", capsize=3, color=COLOURS[0],
            markerfacecolor="none" if caution else COLOURS[0],
        )  # fmt: skip
        wrapped = textwrap.wrap(caution, 34, max_lines=2, placeholder=" ...")
        labels.append("\n".join([short, *wrapped]))
    if not math.isnan(lower_bound):
        panel.axvline(
            lower_bound, color=COLOURS[1], linestyle=":", label="lower bound of a path (95 %)"
        )
    panel.set_yticks(range(len(labels)), labels, fontsize="small")
    for label, name in zip(panel.get_yticklabels(), found):
        if cautions.get(name):
            label.set_color(FLAGGED)
    panel.set_ylim(len(labels) - 0.5, -0.5)
    panel.set_xlabel("log evidence (nats), with 2 standard errors")
    panel.set_ylabel("method")
    tidy(panel)
    panel.grid(visible=False, axis="y")
    handles, names = panel.get_legend_handles_labels()
    drawn.finish([])
    if handles:
        drawn.legend(handles, names)
    return drawn.figure
