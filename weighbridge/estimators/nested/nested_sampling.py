"""Nested sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import numpy as np

from weighbridge.core.checks import check_count, check_seed, require_counts
from weighbridge.core.compilation import MANY_NUMBERS, in_double_precision
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.progress.reporters import Reporter
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_TEMPERED_SPREAD
from weighbridge.core.types import PyTree, Report
from weighbridge.data.values import num_rows
from weighbridge.estimators.nested.allocation import GOALS, live_in_first_run
from weighbridge.estimators.nested.merging import COUNTS, walk_flags, weigh_points
from weighbridge.estimators.nested.moves.by_name import find_move
from weighbridge.estimators.nested.replacement import Replacement
from weighbridge.estimators.nested.result import NestedEvidence, merge
from weighbridge.estimators.nested.run import ADDED, NestedRun
from weighbridge.estimators.nested.run_state import restore_run, saver
from weighbridge.estimators.nested.starting import draw_prior
from weighbridge.estimators.nested.stopping import RULES, Stop
from weighbridge.estimators.nested.walkers import Density
from weighbridge.estimators.protocols import Checkpoint, ResumableMethod
from weighbridge.models.model import Model, unravel_positions
from weighbridge.models.targets.all_rows import likelihood_term
from weighbridge.models.targets.host import host_likelihood
from weighbridge.models.targets.unbounded import UnboundedError
from weighbridge.results.evidence_result import Evidence
from weighbridge.sampling.kernels.sghmc import SGHMC

# Positions that are converted to parameters together: other numbers of points compile nothing.
BLOCK = 1024
SHRINKAGES = ("exponential", "mean")


@dataclass(frozen=True)
class NestedSampling(ResumableMethod):
    r"""Nested sampling: the evidence as an integral over the prior mass above a likelihood.

    .. math:: Z = \int_0^1 L(X) \, dX \approx \sum_i L_i \tfrac12 (X_{i-1} - X_{i+1}),
              \qquad \log X_i = -\sum_{j \le i} 1/n_j

    Live points are drawn from the prior. Again and again the lowest of them are deleted and
    replaced by draws from the prior above the highest deleted one. The fraction of the prior mass
    that n live points lose with their lowest one is known. Each deleted point is a shell of its
    own, with M, M - 1, ... live points. New points come from walkers that start at surviving points
    and move within the contour, in unconstrained space.

    It is right where tempering is not: where the posterior changes suddenly with the power of the
    likelihood. Skilling (2006), Bayesian Analysis 1:833-859.

    Args:
        num_live: live points of all islands together.
        num_islands: independent runs, merged by their birth contours.
        moves: "slice", "random_walk", "galilean" (reflection by the gradient), "sghmc" (as
            published, approximate; or a ``wb.SGHMC`` with other settings), or "prior" (rejection).
        num_moves: moves of a walker for one new point; None: tuned, by how much of the likelihood
            at its start a walker remembers ("sghmc": 20).
        delete: share of the live points that is replaced at once.
        stop: "remainder": it stops when the live points would add less than ``remainder`` nats;
            "one_percent": when the highest likelihood times the remaining prior mass is less than
            1 % of the evidence so far. A tenth of the live points goes on, to find a higher peak
            that the others missed.
        remainder: the limit of the first rule (nats).
        goal: "evidence" or "posterior": half of the points are added after a first run, where they
            help this most; ``num_live`` is then a mean. None: the same number everywhere.
        shrinkage: "exponential" for volumes exp(-1/n), or "mean" for n/(n+1).
        max_calls: stop after so many evaluations of the likelihood.
        time_limit: stop after so many seconds, of every call that resumes the run.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(50, seed=1)
    >>> result = wb.evidence(wb.zoo.gaussian.model(), data, wb.NestedSampling(num_live=200), seed=0)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 4 * result.std_error
    True
    """

    num_live: int = 500
    num_islands: int = 4
    moves: str | SGHMC = "slice"
    num_moves: int | None = None
    delete: float = 0.5
    stop: str = "remainder"
    remainder: float = 0.01
    goal: str | None = None
    shrinkage: str = "exponential"
    max_calls: int | None = None
    time_limit: float | None = None

    name: ClassVar[str] = "nested"
    counts: ClassVar[tuple[str, ...]] = COUNTS
    disagreement: ClassVar[float] = MAX_TEMPERED_SPREAD
    thin: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        require_counts(self, "num_live", "num_islands")
        if self.num_live < 2 * self.num_islands:
            raise MethodError(
                f"num_live must be at least 2 for each of the {self.num_islands} islands, not "
                f"{self.num_live}: one live point has nothing to start a walker from. Raise "
                "num_live, or use num_islands=1."
            )
        for name in ("num_moves", "max_calls"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        find_move(self.moves, self.num_moves)
        if self.shrinkage not in SHRINKAGES:
            raise MethodError(f"shrinkage is one of {list(SHRINKAGES)}, not {self.shrinkage!r}.")
        if self.stop not in RULES:
            raise MethodError(f"stop is one of {list(RULES)}, not {self.stop!r}.")
        if self.goal is not None and self.goal not in GOALS:
            raise MethodError(f"goal is None or one of {list(GOALS)}, not {self.goal!r}.")
        if not isinstance(self.delete, int | float) or not 0 < self.delete < 1:
            raise MethodError(
                f"delete must lie between 0 and 1, not {self.delete!r}: it is the share of the "
                "live points that is replaced at once, and some must survive."
            )
        for name in ("remainder", "time_limit"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise MethodError(f"{name} must be positive, not {value!r}.")

    def within(self, tolerance: float | None, time_limit: float | None) -> NestedSampling:
        """The method for a run with a limit of time, which may end a long round too."""
        if time_limit is None or (self.time_limit or math.inf) <= time_limit:
            return self
        return replace(self, time_limit=time_limit)

    def without_limits(self) -> NestedSampling:
        """The method as if nothing but its stop rule ended it."""
        return replace(self, max_calls=None, time_limit=None)

    def merge_rounds(self, results: Sequence[Evidence]) -> Evidence:
        """Rounds are merged by birth contours, as islands are."""
        return merge(results)

    def report_to(self, reporter: Reporter, label: str, island_round: int) -> Report:
        """The progress in words of nested sampling: what is left, and the evaluations so far."""

        def report(
            remainder: float, log_evidence: float, num_evaluations: int, efficiency: float
        ) -> None:
            done = (
                f"{remainder:.2g} nats left, {num_evaluations:,} evaluations, "
                f"efficiency {100 * efficiency:.2g} %"
            )
            share = math.exp(-remainder)
            reporter.advance(share, done, log_evidence, num_evaluations, label, island_round)

        return report

    def estimate(
        self,
        model: Model,
        values: PyTree | None,
        weight: np.ndarray | None,
        *,
        seed: int = 0,
        first_island: int = 0,
        report: Report | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> NestedEvidence:
        """The evidence of a model on data that are in memory.

        Args:
            model: with a log-likelihood of rows or of all data.
            values: the observations; None for a model that contains its data.
            weight: how often each row counts.
            seed: the same seed gives the same numbers.
            first_island: number of the first island; other islands draw other random numbers.
            report: called with the evidence that is left in the live points (nats), the log
                evidence so far, the number of evaluations and the efficiency.
            checkpoint: where the run is kept from time to time, and from where it goes on.
        """
        check_seed(seed)
        islands = np.arange(first_island, first_island + self.num_islands)
        with in_double_precision():
            term, count = likelihood_term(model, values, weight)
            num_live = live_in_first_run(self.num_live // self.num_islands, self.goal or "")
            position = draw_prior(model, seed, islands, num_live)
            move = find_move(self.moves, self.num_moves)
            host = host_likelihood(model, values, position)
            if host is not None and move.uses_gradient:
                raise ModelError(
                    f"The moves {move.name!r} need gradients, but the total_log_likelihood of this "
                    "model runs on the host, without gradients. Write it with jax.numpy, or use "
                    'moves without gradients: "slice".'
                )
            many = values is not None and num_rows(values) * model.dimension >= MANY_NUMBERS
            density = Density(model, term, host, many)
            try:
                kept = None if checkpoint is None else checkpoint.find(first_island)
                run = NestedRun(
                    Replacement.first(density, islands, move),
                    seed,
                    islands,
                    num_live,
                    self.delete,
                    self.goal or "",
                )
                if checkpoint is None or kept is None:
                    run.begin(position)
                else:
                    with checkpoint.refusing():
                        restore_run(run, *kept)
                save = None if checkpoint is None else saver(run, checkpoint, first_island)
                run.complete(self._stop(), report, save)
            except UnboundedError as error:
                raise error.in_term(model, term) from None
            return self._answer(run, count)

    def _stop(self) -> Stop:
        return Stop(
            self.stop,
            self.remainder,
            math.inf if self.max_calls is None else self.max_calls,
            math.inf if self.time_limit is None else self.time_limit,
            # The little volume in which a thin run ends is out of reach for rejection.
            0.0 if self.moves == "prior" else self.thin,
        )

    def _answer(self, run: NestedRun, num_observations: int) -> NestedEvidence:
        points, counts = run.points(), run.counts
        weighed = weigh_points(points, self.shrinkage, run.seed, counts.memory())
        # The evidence that was left when a run was cut short is part of its error.
        is_short = bool(run.ended) and run.stage != ADDED
        cut_off = run.remainder() if is_short else 0.0
        diagnostics: dict[str, Any] = {
            **weighed.diagnostics,
            "num_evaluations": run.density.num_calls,
            "num_batches": counts.batches,
            "num_moves": counts.moves,
            "num_accepted": counts.accepted,
            "num_stuck": counts.stuck,
            "num_walkers": counts.walkers,
            "num_undefined": counts.undefined,
            "num_jumped": counts.jumped,
            "moves_per_walk": int(np.median(counts.num_moves)) if counts.num_moves else 0,
            "remembered": counts.memory(),
            "efficiency": run.efficiency(),
            "waited": counts.waited / max(counts.waited + counts.steps, 1),
            "remainder": run.remainder(),
            "cut_off": cut_off,
            "thin_gain": run.thin_gain,
        }
        dimension, shared = run.density.model.dimension, run.num_live * len(run.islands)
        flags = [
            *weighed.flags,
            *walk_flags(diagnostics, run.replacement.move.name, dimension, shared),
        ]
        if run.ended:
            diagnostics["ended"] = run.ended
        if run.ended == "interrupted":
            flags.insert(0, Status.INTERRUPTED)
        elif is_short:
            flags.insert(0, Status.STOPPED_EARLY)
        level = points.log_likelihood
        if np.all(level == level[0]):
            flags.insert(0, Status.FLAT)
        return NestedEvidence(
            log_evidence=weighed.log_evidence,
            std_error=math.hypot(weighed.std_error, cut_off),
            num_observations=num_observations,
            method=self.name,
            trace=weighed.trace,
            samples=_named(run.density.model, points.position[weighed.order]),
            log_weights=weighed.log_weights,
            diagnostics=diagnostics,
            flags=tuple(flags),
            elapsed=run.elapsed,
        )


def _named(model: Model, position: np.ndarray) -> dict[str, np.ndarray]:
    """Positions as named parameters, converted in blocks of one size."""
    count = len(position)
    rest = np.repeat(position[-1:], -count % BLOCK, axis=0)
    blocks = np.concatenate([position, rest]).reshape(-1, BLOCK, position.shape[1])
    pieces = [jax.device_get(unravel_positions(model, block)) for block in blocks]
    return {name: np.concatenate([p[name] for p in pieces])[:count] for name in model.names}
