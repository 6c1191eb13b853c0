"""The result of nested sampling: an evidence whose trace has one entry for each point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weighbridge.core.pickling import travels
from weighbridge.plots.nested_run import plot_nested_run
from weighbridge.results.evidence_result import Evidence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface


@travels()
@dataclass(frozen=True, eq=False, repr=False)
class NestedEvidence(Evidence):
    """The log evidence by nested sampling, with all points of its runs.

    ``samples`` and ``log_weights`` have one entry for each point, from the lowest likelihood to the
    highest. ``trace`` is a table of the points with the columns that anesthetic reads, ``logL``,
    ``logL_birth`` and ``nlive``, and with ``insertion``, ``log_volume`` and ``log_evidence``.
    """

    def plot_run(self, *, axes: Surface | None = None) -> Figure:
        """Live points, likelihood, posterior weight and evidence against the log volume.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or one axes per panel.
        """
        return plot_nested_run(
            self.trace, self.log_weights, self.log_evidence, self.std_error, axes=axes
        )
