"""How models compared as the rows came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import finish, stacked_panels, styles, write_out_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A log Bayes factor beyond this is drawn on a logarithmic scale.
LINEAR_UP_TO = 10.0


def plot_history(rows: np.ndarray, curves: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """Log Bayes factors, probabilities and annealing steps of models along the rows seen.

    Bands reach two standard errors either way.

    Args:
        rows: rows seen, one entry for each update.
        curves: for each model ``log_evidence``, ``std_error``, ``probability``,
            ``probability_error`` and ``annealing_steps``; NaN where there is none.
    """
    from matplotlib.ticker import FuncFormatter

    panels = stacked_panels(3)
    size = 3 if len(rows) > 10 else 6
    known = np.array([curve["log_evidence"] for curve in curves.values()]).reshape(-1, len(rows))
    best = np.max(np.where(np.isnan(known), -np.inf, known), axis=0, initial=-np.inf)
    lowest = 0.0
    for (name, curve), style in zip(curves.items(), styles(len(curves))):
        factor = curve["log_evidence"] - best
        lowest = min(lowest, float(np.nanmin(factor, initial=0.0)))
        drawn = (
            (factor, curve["std_error"]),
            (curve["probability"], curve["probability_error"]),
            (curve["annealing_steps"], None),
        )
        for axes, (height, error) in zip(panels, drawn):
            axes.plot(rows, height, marker=".", markersize=size, label=name, **style)
            if error is not None:
                reach = 2 * np.nan_to_num(error)
                low, high = height - reach, height + reach
                if axes is panels[1]:
                    low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
                axes.fill_between(rows, low, high, color=style["color"], alpha=0.15, linewidth=0)
    panels[0].set_ylabel("log Bayes factor\nagainst the best")
    if lowest < -10 * LINEAR_UP_TO:
        panels[0].set_yscale("symlog", linthresh=LINEAR_UP_TO)
        panels[0].set_ylim(top=LINEAR_UP_TO)
    panels[1].set_ylabel("probability")
    panels[1].set_ylim(-0.03, 1.03)
    panels[2].set_ylabel("annealing steps\nper update")
    panels[2].set_ylim(bottom=0)
    panels[2].set_xlabel("rows seen")
    if len(rows) > 1 and rows[0] > 0 and rows[-1] > 20 * rows[0]:
        panels[2].set_xscale("log")
        write_out_numbers(panels[2].xaxis)
    else:
        panels[2].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return finish(panels, list(curves))
