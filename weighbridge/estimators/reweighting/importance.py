"""Importance sampling."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from weighbridge.core.checks import check_seed, require_counts
from weighbridge.core.compilation import in_double_precision
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.progress.reporters import Reporter
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.resampling import effective_sample_size, log_mean_exp
from weighbridge.core.status import Status
from weighbridge.core.types import PyTree, Report
from weighbridge.estimators.annealing.labels import Cell
from weighbridge.estimators.proposals.joint_density import BLOCK, JointDensity
from weighbridge.estimators.protocols import BatchMethod
from weighbridge.estimators.reweighting.history import LogDensity, ProposalDraws, evaluate_at
from weighbridge.estimators.reweighting.population import AdaptationSettings, adapt
from weighbridge.estimators.reweighting.proposal import ProposalDensity, checked_draws
from weighbridge.estimators.reweighting.starting import (
    check_proposal,
    find_cell,
    find_start,
    require_cover,
)
from weighbridge.estimators.reweighting.weights import WeighedDraws, weigh
from weighbridge.estimators.sequential import posterior
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.trace import Trace

# Draws of the answer that are evaluated between two reports.
BETWEEN_REPORTS = 8 * BLOCK
# Share of the progress that the search for modes gets.
SEARCH = 0.1


@dataclass(frozen=True)
class Importance(BatchMethod):
    r"""Importance sampling: the evidence as the mean weight of independent draws.

    .. math:: Z = \int f(u) \, du \approx \frac1n \sum_i \frac{f(u_i)}{q(u_i)}, \qquad u_i \sim q

    f is prior times likelihood, q a proposal: a mixture of Student-t distributions at the modes of
    f, with a wide defensive one. It adapts to weighted draws (population Monte Carlo), starting
    with displaced and stretched copies. The answer comes from fresh draws of the proposal that fits
    best, so nothing of it was used for the adaptation, and the estimate of Z is unbiased. There is
    no Markov chain. It is fast for a few modes in up to some fifty dimensions. A mode that the
    proposal misses cannot be seen.

    Cappe, Douc, Guillin, Marin & Robert (2008), Statistics and Computing 18:447-459; Hesterberg
    (1995), Technometrics 37:185-194; Vehtari, Simpson, Gelman, Yao & Gabry (2024), J. Machine
    Learning Research 25(72).

    Args:
        proposal: "laplace" (at the modes of the posterior), "prior", posterior draws (a
            ``wb.Posterior``, an ``wb.Evidence``, or a mapping from names to arrays), or your own: a
            mapping from parameter names to NumPyro distributions, a NumPyro distribution of
            unconstrained vectors, or an object with ``draw(numbers, count)`` and
            ``log_density(points)``.
        num_draws: draws of every island, for the answer.
        num_islands: groups of independent draws.
        adaptive: whether the proposal adapts; by default all do but your own.
        num_components: Student-t components that adapt.
        degrees: their degrees of freedom.
        defensive: share of the wide component.
        num_populations: most populations for the adaptation.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(50, seed=1)
    >>> result = wb.evidence(wb.zoo.gaussian.model(), data, wb.Importance(), seed=0)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 4 * result.std_error
    True
    """

    proposal: Any = "laplace"
    num_draws: int = 512
    num_islands: int = 16
    adaptive: bool | None = None
    num_components: int = 8
    degrees: int = 5
    defensive: float = 0.1
    num_populations: int = 12

    name: ClassVar[str] = "importance"
    counts: ClassVar[tuple[str, ...]] = ("num_evaluations",)

    def __post_init__(self) -> None:
        require_counts(self, "num_draws", "num_islands", "num_components", "degrees")
        require_counts(self, "num_populations")
        if self.num_draws < 2:
            raise MethodError("num_draws must be at least 2: one weight has no spread.")
        if not isinstance(self.defensive, int | float) or not 0 < self.defensive < 1:
            raise MethodError(
                f"defensive must lie between 0 and 1, not {self.defensive!r}: it is the share of "
                "the wide component, which keeps weights from becoming large."
            )
        if self.adaptive not in (None, True, False):
            raise MethodError(f"adaptive is True, False or None, not {self.adaptive!r}.")
        check_proposal(self.proposal)

    def report_to(self, reporter: Reporter, label: str, island_round: int) -> Report:
        """The progress in words of importance sampling: evaluations, and how even weights are."""

        def report(share: float, log_evidence: float, evaluations: int, efficiency: float) -> None:
            done = f"{evaluations:,} evaluations, efficiency {100 * efficiency:.2g} %"
            reporter.advance(share, done, log_evidence, evaluations, label, island_round)

        return report

    def merge_rounds(self, results: Sequence[Evidence]) -> Evidence:
        """Rounds have different proposals; all their weights together are weighed again."""
        first = results[0]
        ratios = np.concatenate([r.diagnostics["log_ratios"] for r in results])
        unseen = min(r.diagnostics.get("modes_unseen", 0.0) for r in results)
        weighed = weigh(ratios).with_unseen(unseen)
        diagnostics = first.diagnostics | _diagnostics(weighed, ratios)
        if "modes_unseen" in diagnostics:
            diagnostics["modes_unseen"] = unseen
        diagnostics |= {n: sum(r.diagnostics[n] for r in results) for n in self.counts}
        raised = dict.fromkeys(flag for result in results for flag in result.flags)
        interrupted = (Status.INTERRUPTED,) if Status.INTERRUPTED in raised else ()
        return replace(
            first,
            log_evidence=weighed.log_evidence,
            std_error=weighed.std_error,
            samples={n: np.concatenate([r.samples[n] for r in results]) for n in first.samples},
            log_weights=weighed.log_weights,
            diagnostics=diagnostics,
            flags=(*interrupted, *weighed.flags),
            elapsed=sum(result.elapsed for result in results),
        )

    def estimate(
        self,
        model: Model,
        values: PyTree | None,
        weight: np.ndarray | None,
        *,
        seed: int = 0,
        first_island: int = 0,
        report: Report | None = None,
    ) -> Evidence:
        """The evidence of a model on data that are in memory.

        Args:
            model: with a log-likelihood of rows or of all data, in JAX or on the host.
            values: the observations; None for a model that contains its data.
            weight: how often each row counts.
            seed: the same seed gives the same numbers.
            first_island: number of the first island; other islands draw other random numbers.
            report: called with the share done, the log evidence so far, the number of evaluations
                and the effective draws as a share.
        """
        began = time.perf_counter()
        check_seed(seed)
        with in_double_precision():
            density = JointDensity(model, values, weight)
            run = _Run(self, density, seed, first_island, report)
            proposal = run.search()
            final = run.answer(proposal)
            if run.is_given:
                require_cover(proposal, model, run.log_density())
            result = self._result(run, final)
        return replace(result, elapsed=time.perf_counter() - began)

    def _result(self, run: _Run, final: ProposalDraws) -> Evidence:
        ratios = final.log_weight.reshape(self.num_islands, self.num_draws)
        weighed = weigh(ratios).with_unseen(run.remarks.get("modes_unseen", 0.0))
        samples, _ = posterior(run.density.model, final.position, weighed.log_weights)
        steps = [*run.steps, _told(final.log_weight)]
        return Evidence(
            log_evidence=weighed.log_evidence,
            std_error=weighed.std_error,
            num_observations=run.density.num_observations,
            method=self.name,
            trace=Trace(**{n: np.array([step[n] for step in steps]) for n in steps[0]}),
            samples=samples,
            log_weights=weighed.log_weights,
            diagnostics={
                **_diagnostics(weighed, ratios),
                "num_evaluations": run.density.num_evaluations,
                "num_populations": len(run.steps),
                **run.remarks,
            },
            flags=weighed.flags,
        )


class _Run:
    """One round: the search for a proposal, and the draws of the answer."""

    def __init__(
        self,
        method: Importance,
        density: JointDensity,
        seed: int,
        first_island: int,
        report: Report | None,
    ) -> None:
        self.method, self.density, self.report = method, density, report
        self.seed, self.first_island = seed, first_island
        self.cell: Cell | None = None
        self.remarks: dict[str, Any] = {}
        self.settings = AdaptationSettings(
            method.num_components, method.degrees, method.defensive, method.num_populations
        )
        self.steps: list[dict[str, float]] = []
        self._share = SEARCH
        self.is_given = False  # whether the proposal of the answer is the user's own

    def search(self) -> ProposalDensity:
        """The proposal of the answer."""
        method, model = self.method, self.density.model
        shape = (float(method.degrees), float(method.defensive))
        names = (self.seed, self.first_island)
        self._tell(0.0, np.zeros(1), 0)
        start = find_start(method.proposal, self.density, *names, shape, self._searched)
        self.cell, self.remarks = start.cell, start.remarks
        adapts = start.adapts if method.adaptive is None else method.adaptive
        self.is_given = not (start.adapts or adapts)
        labelled = start.cell is not None or not model.exchangeable
        if not adapts and labelled:
            return start.proposal
        numbers = random_numbers(self.seed, Stream.POPULATIONS, self.first_island, 2)
        size = self.settings.size(model.dimension)
        drawn = checked_draws(start.proposal, numbers, size, model.dimension)
        first = evaluate_at(start.proposal, drawn, self.log_density())
        if not np.isfinite(first.log_weight).any():
            raise _nowhere(size)
        if not labelled:
            self.cell = find_cell(model, first)
            first = evaluate_at(start.proposal, drawn, self.log_density())
        self._population_drawn(first)
        if not adapts:
            return start.proposal
        return adapt(first, self.log_density(), self.settings, *names, self._population_drawn)

    def answer(self, proposal: ProposalDensity) -> ProposalDraws:
        """Fresh draws of every island."""
        method, dimension = self.method, self.density.model.dimension
        pieces: list[ProposalDraws] = []
        together = max(1, BETWEEN_REPORTS // method.num_draws)
        for first in range(0, method.num_islands, together):
            islands = range(first, min(first + together, method.num_islands))
            streams = (
                random_numbers(self.seed, Stream.PROPOSALS, self.first_island + island)
                for island in islands
            )
            draws = [checked_draws(proposal, s, method.num_draws, dimension) for s in streams]
            pieces.append(evaluate_at(proposal, np.concatenate(draws), self.log_density()))
            share = self._share + (1.0 - self._share) * islands.stop / method.num_islands
            drawn = np.concatenate([piece.log_weight for piece in pieces])
            self._tell(share, drawn, self.density.num_evaluations)
        leaves = zip(*(piece[1:] for piece in pieces))
        final = ProposalDraws(proposal, *(np.concatenate(leaf) for leaf in leaves))
        if not np.isfinite(final.log_weight).any():
            raise _nowhere(len(final.log_weight))
        return final

    def log_density(self) -> LogDensity:
        """The density, in the cell of the labelling if there is one."""
        cell = self.cell
        if cell is None:
            return self.density

        def in_cell(position: np.ndarray) -> np.ndarray:
            found = cell(position)
            inside = np.isfinite(found)
            if inside.any():
                found[inside] += self.density(position[inside])
            return found

        return in_cell

    def _searched(self, share: float) -> None:
        self._tell(SEARCH * share, np.zeros(1), 0)

    def _population_drawn(self, population: ProposalDraws) -> None:
        self.steps.append(_told(population.log_weight))
        self._share += (0.8 - self._share) / 4
        self._tell(self._share, population.log_weight, self.density.num_evaluations)

    def _tell(self, share: float, log_weight: np.ndarray, evaluations: int) -> None:
        if self.report is not None:
            told = _told(log_weight)
            self.report(share, told["log_evidence"], evaluations, told["efficiency"])


def _told(log_weight: np.ndarray) -> dict[str, float]:
    """Log of the mean weight, and the effective draws as a share."""
    if not np.isfinite(log_weight).any():
        return {"log_evidence": -np.inf, "efficiency": 0.0}
    return {
        "log_evidence": float(log_mean_exp(log_weight)),
        "efficiency": float(effective_sample_size(log_weight)) / log_weight.size,
    }


def _diagnostics(weighed: WeighedDraws, ratios: np.ndarray) -> dict[str, Any]:
    return {
        "island_log_evidence": weighed.islands,
        "log_ratios": ratios,
        "pareto_k": weighed.pareto_k,
        "ess": weighed.ess,
        "efficiency": weighed.ess / ratios.size,
    }


def _nowhere(count: int) -> ModelError:
    return ModelError(
        f"The density is zero at all {count:,} draws of the proposal. Check that the proposal "
        "covers the posterior, that the log-likelihood is finite there, and the support of the "
        "prior."
    )
