"""The common part of estimators that temper the likelihood of all the data.

All of them run the annealing loop on the path p(theta) p(data | theta)^lambda. They differ in the
schedule, in whether they resample, and in how they compute log Z from the path.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from weighbridge.core.checks import check_seed, require_counts, require_fraction, require_particles
from weighbridge.core.compilation import in_double_precision
from weighbridge.core.islands import combine_islands
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_TEMPERED_SPREAD
from weighbridge.core.types import PyTree, Report
from weighbridge.estimators.annealing.loop import COUNTS, Annealed, PathSeed, anneal
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC
from weighbridge.estimators.annealing.moves.walks import DEFAULT_MOVES, Moves, check_moves
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings
from weighbridge.estimators.protocols import BatchMethod
from weighbridge.estimators.sequential import posterior
from weighbridge.estimators.tempering.judgement import (
    Judged,
    genealogy_error,
    judge,
    path_flags,
)
from weighbridge.estimators.tempering.path_report import path_diagnostics, trace_of
from weighbridge.estimators.tempering.preparation import (
    Prepared,
    check_outcome,
    explaining,
    prepare,
)
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence

# A round has at least this many islands: the spread of fewer gives a poor estimate of the error.
LEAST_OF_A_ROUND = 8
# A round has at least this many particles for each dimension: with fewer, a bridge fails.
PARTICLES_FOR_EACH = 10


@dataclass(frozen=True)
class Tempering(BatchMethod):
    """Base class of the tempering methods; use one of its subclasses."""

    num_islands: int = 16
    num_particles: int = 64
    target_ess: float = 0.5
    moves: Moves | None = None
    max_annealing_steps: int = 2000

    counts: ClassVar[tuple[str, ...]] = COUNTS
    disagreement: ClassVar[float] = MAX_TEMPERED_SPREAD
    # Whether its path can be run in reverse, which bounds from both sides need.
    reversible: ClassVar[bool] = False
    # Whether the answer may come from a bridge between the last particles and Gaussians.
    bridges: ClassVar[bool] = False
    resample_below: ClassVar[float] = 0.5
    # Moves if the user gives none and the likelihood has a gradient.
    default_moves: ClassVar[AdaptiveHMC] = DEFAULT_MOVES

    def __post_init__(self) -> None:
        require_counts(self, "max_annealing_steps")
        require_particles(self)
        require_fraction(self, "target_ess")
        check_moves(self.moves)

    @property
    def name(self) -> str:
        """Name of the method in results."""
        return type(self).__name__.lower()

    @property
    def chain_length(self) -> int:
        """Number of states of a chain; more than 1 for waste-free resampling."""
        return 1

    @property
    def conditional(self) -> float:
        """Whether the ESS includes the carried weights (1) or only the incremental ones (0)."""
        return 1.0

    def resampling_scheme(self) -> str:
        """Name of the resampling scheme."""
        return "systematic"

    def schedule(self) -> np.ndarray | None:
        """The powers of the path; None: the ESS determines them."""
        return None

    def step_ess(self, dimension: int) -> float:
        """The target ESS for a model of this many parameters."""
        return self.target_ess

    def settings(self, dimension: int) -> Settings:
        """Settings of the annealing loop for a model of this many parameters."""
        return Settings(
            self.step_ess(dimension),
            self.resample_below,
            self.conditional,
            resampling=self.resampling_scheme(),
            schedule=self.schedule(),
            max_steps=self.max_annealing_steps,
            may_end_early=True,
        )

    def island_estimates(self, outcome: Annealed, path: Path) -> np.ndarray:
        """Log evidence of each island, from the path."""
        return np.asarray(outcome.steps[-1].log_evidence)

    def of_a_round(self, dimension: int) -> Self:
        """The method for one round of a run with a tolerance: half of the islands, if enough.

        Half of the islands may be enough, especially if a bridge gives the answer, as long as they
        have enough particles for its Gaussians. If not, two half rounds cost as much as one round.

        >>> from weighbridge import SMC
        >>> [SMC(num_islands=islands).of_a_round(5).num_islands for islands in (10, 16, 32)]
        [10, 8, 16]
        >>> SMC().of_a_round(100).num_islands
        16
        """
        half = self.num_islands // 2
        enough = half * self.num_particles >= PARTICLES_FOR_EACH * dimension
        return replace(self, num_islands=half) if enough and half >= LEAST_OF_A_ROUND else self

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
            model: with a log-likelihood of rows or of all data.
            values: the observations; None for a model that contains its data.
            weight: how often each row counts.
            seed: the same seed gives the same numbers.
            first_island: number of the first island; other islands draw other random numbers.
            report: called with the power, the log evidence so far and the number of steps.
        """
        began = time.perf_counter()
        check_seed(seed)
        with in_double_precision():
            prepared = prepare(self, model, values, weight, seed, first_island)
            with explaining(prepared):
                outcome = anneal(
                    PathSeed(seed, 0, prepared.islands),
                    prepared.cloud,
                    lambda _: prepared.path(),
                    prepared.mover,
                    self.settings(model.dimension),
                    take_step=prepared.take_step,
                    between=prepared.follow,
                    report=report,
                )
            check_outcome(outcome)
            if outcome.is_whole:
                judged = judge(self, prepared, outcome)
                result = self._answer(prepared, outcome, judged)
            else:
                result = self._so_far(prepared, outcome)
        return replace(result, elapsed=time.perf_counter() - began)

    def _answer(self, prepared: Prepared, outcome: Annealed, judged: Judged) -> Evidence:
        """The result of a complete path."""
        decision = judged.decision
        samples, log_weights = posterior(prepared.model, judged.position, judged.log_weight)
        return Evidence(
            log_evidence=decision.log_evidence,
            std_error=decision.std_error,
            num_observations=prepared.num_observations,
            method=self.name,
            trace=trace_of(outcome, prepared.path_beyond(), prepared.num_observations),
            samples=samples,
            log_weights=log_weights,
            diagnostics={
                "island_log_evidence": judged.estimates,
                "genealogy_error": genealogy_error(outcome, self),
                **path_diagnostics(outcome, prepared.host),
                **({} if judged.second is None else judged.second.diagnostics),
                **decision.diagnostics,
                **({"power_reached": 1.0} if judged.interrupted else {}),
            },
            flags=(Status.INTERRUPTED,) * judged.interrupted + decision.flags,
        )

    def _so_far(self, prepared: Prepared, outcome: Annealed) -> Evidence:
        r"""The result of an interrupted path.

        .. math:: Z_\lambda = \int p(\theta) p(data | \theta)^\lambda d \theta

        at the last power lambda. This is not the evidence, so no error is stated.
        """
        islands = np.asarray(outcome.steps[-1].log_evidence)
        combined = combine_islands(islands)
        samples, log_weights = posterior(prepared.model, *map(np.asarray, outcome.cloud[:2]))
        flags = (f for f in path_flags(outcome, combined, None) if f is not Status.ERROR_UNKNOWN)
        return Evidence(
            log_evidence=combined.log_evidence,
            std_error=math.nan,
            num_observations=prepared.num_observations,
            method=self.name,
            trace=trace_of(outcome, prepared.path_beyond(), prepared.num_observations),
            samples=samples,
            log_weights=log_weights,
            diagnostics={
                "power_reached": outcome.powers[-1],
                "island_log_evidence": islands,
                **path_diagnostics(outcome, prepared.host),
            },
            flags=(Status.INTERRUPTED, *flags),
        )
