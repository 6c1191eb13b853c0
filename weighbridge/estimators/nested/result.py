"""The result of nested sampling, with all points of its runs; several results merged to one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.status import Status
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.estimators.nested.merging import COLUMNS, COUNTS, weigh_points
from weighbridge.estimators.nested.points import Points
from weighbridge.plots.nested_run import plot_nested_run
from weighbridge.results.evidence_result import Evidence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Diagnostics of a merged result that are the largest of its parts, or their mean over walkers.
LARGEST = ("remainder", "cut_off", "thin_gain")
AVERAGED = ("moves_per_walk", "remembered", "efficiency", "waited")


@travels()
@dataclass(frozen=True, eq=False, repr=False)
class NestedEvidence(Evidence, Tabular):
    """The log evidence by nested sampling, with all points of its runs.

    ``samples`` and ``log_weights`` have one entry for each point, from the lowest likelihood to the
    highest. ``trace`` is a table of the points with the columns that anesthetic reads, ``logL``,
    ``logL_birth`` and ``nlive``, and with ``insertion``, ``log_volume`` and ``log_evidence``.
    ``to_pandas()`` is a table of the weighted points. ``NestedEvidence.load`` reads what ``save``
    wrote; loaded results can be merged.
    """

    def _frame(self) -> Frame:
        """All points with their weights, and the columns that anesthetic reads."""
        names = ("logL", "logL_birth", "nlive", "insertion")
        columns = {name: self.trace[name] for name in names if name in self.trace}
        return Frame({**self.samples, "log_weight": self.log_weights, **columns})

    def plot_run(self, *, axes: Surface | None = None) -> Figure:
        """Live points, likelihood, posterior weight and evidence against the log volume.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or one axes per panel.
        """
        return plot_nested_run(
            self.trace, self.log_weights, self.log_evidence, self.std_error, axes=axes
        )

    def __add__(self, other: NestedEvidence) -> NestedEvidence:
        """Both results merged by their birth contours, as ``wb.merge`` does."""
        return merge([self, other]) if isinstance(other, NestedEvidence) else NotImplemented


def merge(results: Sequence[Evidence]) -> NestedEvidence:
    r"""Results of nested sampling on the same model and data as one, by birth contours.

    Points of independent runs are put together; where several runs have live points, their numbers
    add up. This is not the mean of the Z. Higson et al. (2018), Bayesian Analysis 13:873-896.

    Args:
        results: made with different seeds.

    >>> import weighbridge as wb
    >>> model, data = wb.zoo.gaussian.model(), wb.zoo.gaussian.simulate(20, seed=1)
    >>> method = wb.NestedSampling(num_live=100)
    >>> runs = [wb.evidence(model, data, method, seed=seed) for seed in (0, 1)]
    >>> both = wb.merge(runs)
    >>> both.std_error < min(run.std_error for run in runs)
    True
    >>> (runs[0] + runs[1]).log_evidence == both.log_evidence
    True
    """
    results = list(results)
    if not results:
        raise MethodError("wb.merge needs at least one result.")
    for result in results:
        if not isinstance(result, Evidence) or result.method != "nested":
            raise MethodError(
                "wb.merge merges results of nested sampling (wb.NestedSampling), not "
                f"{getattr(result, 'method', type(result).__name__)!r}."
            )
    first = results[0]
    if any(r.fingerprint != first.fingerprint for r in results if r.fingerprint):
        raise MethodError("These results are of different data and cannot be merged.")
    shapes = {n: v.shape[1:] for n, v in first.samples.items()}
    if any({n: v.shape[1:] for n, v in r.samples.items()} != shapes for r in results):
        raise MethodError("These results are of different models and cannot be merged.")
    points = _points(results)
    if len(set(zip(points.log_likelihood, points.tie))) < len(points.tie):
        raise MethodError("A result was given twice, or two have the same seed; use other seeds.")
    walkers = [max(r.diagnostics["num_walkers"], 1) for r in results]
    averaged = {
        name: float(np.average([r.diagnostics[name] for r in results], weights=walkers))
        for name in AVERAGED
    }
    shrinkage, seed = (first.diagnostics[name] for name in ("shrinkage", "seed"))
    weighed = weigh_points(points, shrinkage, seed, averaged["remembered"])
    samples = {
        n: np.concatenate([r.samples[n] for r in results])[weighed.order] for n in first.samples
    }
    summed = {n: sum(r.diagnostics[n] for r in results) for n in COUNTS}
    found = first.diagnostics | weighed.diagnostics | summed | averaged
    for name in LARGEST:
        found[name] = max(r.diagnostics[name] for r in results)
    judged = {
        Status.RANKS_NOT_UNIFORM,
        Status.RANKS_FAR_FROM_UNIFORM,
        Status.ISLANDS_DISAGREE,
        Status.TOLERANCE_NOT_REACHED,
    }
    if any(Status.FLAT not in r.flags for r in results):
        judged.add(Status.FLAT)
    kept = [flag for r in results for flag in r.flags if flag not in judged]
    base = {name: getattr(first, name) for name in ("num_observations", "method", "fingerprint")}
    return NestedEvidence(
        log_evidence=weighed.log_evidence,
        std_error=math.hypot(weighed.std_error, max(r.diagnostics["cut_off"] for r in results)),
        trace=weighed.trace,
        samples=samples,
        log_weights=weighed.log_weights,
        diagnostics=found,
        flags=tuple(dict.fromkeys([*weighed.flags, *kept])),
        elapsed=sum(r.elapsed for r in results),
        **base,
    )


def _points(results: Sequence[Evidence]) -> Points:
    """The points of results; islands of different results have different numbers."""
    pieces, num_islands = [], 0
    for result in results:
        named = {leaf: result.trace[name] for leaf, name in COLUMNS.items()}
        names, index = np.unique(named["island"], return_inverse=True)
        named["island"] = index + num_islands
        num_islands += len(names)
        nowhere = np.zeros(len(result.log_weights))
        pieces.append(Points(position=nowhere, log_prior=nowhere, **named))
    return Points(*(np.concatenate(leaves) for leaves in zip(*pieces)))
