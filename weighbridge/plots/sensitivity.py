"""How much the marginals of a posterior change with the prior and with the likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import COLOURS, short_names, tidy
from weighbridge.plots.surface import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Largest number of entries drawn: those most sensitive to the prior.
MOST = 30


def plot_sensitivity(
    prior: Mapping[str, float],
    likelihood: Mapping[str, float],
    *,
    sensitive: float,
    note: str,
    axes: Surface | None = None,
) -> Figure:
    """Sensitivity of every scalar entry to the prior and to the likelihood.

    Args:
        prior: distance that each entry's marginal moves per doubling of the prior's power.
        likelihood: the same for the power of the likelihood.
        sensitive: threshold above which an entry is sensitive.
        note: text above the figure.
        axes: where to draw: an empty figure or subfigure, or a single axes.

    >>> figure = plot_sensitivity({"a": 0.1}, {"a": 0.2}, sensitive=0.05, note="")
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a']
    """
    order = sorted(prior, key=lambda entry: -np.nan_to_num(prior[entry], nan=-1.0))
    kept = set(order[:MOST])
    entries = [entry for entry in prior if entry in kept]
    drawn = panels(axes, (1, 1), (7.0, 1.7 + 0.28 * len(entries)))
    (panel,) = drawn.flat
    places = np.arange(len(entries))
    panel.axvspan(0.0, sensitive, color="0.92", zorder=0)
    largest = sensitive
    for found, name, marker, colour in (
        (prior, "prior", "o", COLOURS[1]),
        (likelihood, "likelihood", "s", COLOURS[0]),
    ):
        values = np.array([found[entry] for entry in entries])
        largest = max(largest, float(np.nanmax(values, initial=0.0)))
        panel.plot(
            values, places, marker, color=colour, label=name, clip_on=False, zorder=3,
            markerfacecolor=colour if marker == "o" else "none",
        )  # fmt: skip
    for place, entry in zip(places, entries):
        if np.isnan(prior[entry]):
            panel.annotate(
                "does not vary", (0.02 * largest, float(place)), va="center", fontsize="small"
            )
    panel.set_xlim(0.0, 1.08 * largest)
    panel.set_xlabel("how far the marginal moves for each doubling of the power")
    panel.set_ylabel("entry")
    tidy(panel)
    panel.set_ylim(len(entries) - 0.5, -0.5)
    panel.set_yticks(places, short_names(entries, 30), fontsize="small")
    notes = [note] if note else []
    notes.append(f"grey: below {sensitive:g}, not sensitive")
    if len(entries) < len(prior):
        notes.append(f"{len(entries)} of {len(prior)} entries, the most sensitive to the prior")
    drawn.heading(notes)
    drawn.legend(*panel.get_legend_handles_labels())
    return drawn.figure
