"""A run of nested sampling against the log of the prior mass above its points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.plots.canvas import from_zero, styles
from weighbridge.plots.surface import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface


def plot_nested_run(
    trace: Mapping[str, np.ndarray],
    log_weights: np.ndarray,
    log_evidence: float,
    std_error: float,
    *,
    axes: Surface | None = None,
) -> Figure:
    """Live points, relative likelihood, posterior weight and evidence, as in other tools.

    Args:
        trace: columns ``log_volume``, ``logL``, ``nlive`` and ``log_evidence``.
        log_weights: log weights of the points.
        log_evidence: the answer.
        std_error: its error; the band has two of them on either side. NaN if it is not known.
        axes: where to draw: an empty figure or subfigure, or one axes per panel.
    """
    drawn = panels(axes, (4, 1), (7.5, 8.5), sharex=True)
    across = -trace["log_volume"]
    with np.errstate(under="ignore"):
        likelihood = np.exp(trace["logL"] - np.max(trace["logL"]))
        evidence = np.exp(trace["log_evidence"] - log_evidence)
        density = np.exp(log_weights - np.max(log_weights))
    heights = [trace["nlive"], likelihood, density, evidence]
    names = ["live points", "likelihood /\nmaximum", "posterior\nweight", "evidence /\nanswer"]
    (style,) = styles(1)
    for panel, height, name in zip(drawn.flat, heights, names):
        panel.plot(across, height, **style)
        panel.set_ylabel(name)
        from_zero(panel)
    band = np.exp(2.0 * (std_error if math.isfinite(std_error) else 0.0) * np.array([-1.0, 1.0]))
    drawn.flat[-1].axhspan(*band, alpha=0.2, linewidth=0)
    # A wide band is cut off: the curve must stay readable.
    drawn.flat[-1].set_ylim(top=1.05 * max(evidence.max(), min(band[1], 2.0)))
    drawn.flat[-1].set_xlabel("- log of the prior mass above")
    return drawn.finish([])
