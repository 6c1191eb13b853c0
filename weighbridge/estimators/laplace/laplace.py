"""Laplace's method: a Gaussian at every mode of the posterior."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from weighbridge.core.checks import check_count, check_seed, require_counts
from weighbridge.core.compilation import in_double_precision
from weighbridge.core.islands import rounding_error
from weighbridge.core.progress.reporters import Reporter
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MAX_CHECK_PARETO_K,
    MAX_LAPLACE_DIFFERENCE,
    MAX_NEXT_ORDER,
    MAX_ROUNDING,
    MAX_UNSEEN_MODES,
    MIN_CHECK_DRAWS,
)
from weighbridge.core.types import PyTree, Report
from weighbridge.data.values import num_rows
from weighbridge.estimators.laplace.charts import Chart, Coordinates
from weighbridge.estimators.laplace.checking import ModesCheck, check_modes
from weighbridge.estimators.laplace.modes import REMARK, Modes, find_modes
from weighbridge.estimators.laplace.next_order import NextOrder, next_order
from weighbridge.estimators.laplace.summit import Summit, SummitKind
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.protocols import BatchMethod
from weighbridge.estimators.sequential import posterior
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.trace import Trace

# Modes closer than this, in the standard deviations of either, overlap: only the one with the
# larger mass counts.
SEPARATE = 3.0
# Draws of the check: as many as let rows times draws stay below the budget, within these bounds.
BUDGET, MOST_DRAWS, LEAST_DRAWS = 256_000_000, 4096, 512
# Draws of the check for each line of the next order.
LINES_FOR = 8
FLAG_OF = {
    SummitKind.EDGE: Status.MODE_AT_EDGE,
    SummitKind.SADDLE: Status.SINGULAR_CURVATURE,
    SummitKind.SINGULAR: Status.SINGULAR_CURVATURE,
    SummitKind.UNCONVERGED: Status.MODE_NOT_REACHED,
}


@dataclass(frozen=True)
class Laplace(BatchMethod):
    r"""Laplace's method: the posterior as a sum of Gaussians, one at every separate mode.

    .. math:: \log Z \approx \log \sum_k c_k \, f(v_k) (2\pi)^{D/2} \det(-H_k)^{-1/2}

    f is the unnormalised posterior (prior times likelihood) in the coordinates v, v_k its modes,
    H_k the second derivatives of log f there, and c_k the number of copies of a mode under
    permutations of exchangeable components (K! if they all differ). It is exact where f is
    Gaussian. It is not invariant: other coordinates give another answer. Tierney & Kadane (1986),
    J. American Statistical Association 81:82-86.

    The modes are found from several starts. Importance sampling around them then gives a second
    estimate without the assumption of a Gaussian. The stated error is the difference of the two,
    with the standard error of the second one; so it is an upper estimate of the error, not a
    standard deviation over seeds. If the check fails, which it does in many dimensions, the error
    is the next term of the expansion, with a flag. Modes that no start reached are missed by both,
    and nothing can show this. The posterior draws are those of the check, with their weights.

    Args:
        num_starts: climbs to modes, from draws of the prior; more, up to 16 times as many, while
            many modes were found by a single climb.
        coordinates: "unconstrained", "own" (the model's parameters themselves), a function of the
            named parameters that returns as many numbers as there are degrees of freedom, or a
            mapping from names to functions of one parameter, such as ``{"sigma": jnp.log}``, where
            other parameters keep their unconstrained coordinates.
        num_draws: draws of the check; None: up to 4,096, fewer with more than 62,500 rows.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(50, seed=1)
    >>> result = wb.evidence(wb.zoo.gaussian.model(), data, wb.Laplace(num_starts=4), seed=0)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 1e-10
    True
    """

    num_starts: int = 16
    coordinates: Coordinates = "unconstrained"
    num_draws: int | None = None

    name: ClassVar[str] = "laplace"
    num_islands: ClassVar[int] = 1
    counts: ClassVar[tuple[str, ...]] = ("num_evaluations",)

    def __post_init__(self) -> None:
        require_counts(self, "num_starts")
        if self.num_draws is not None:
            check_count("num_draws", self.num_draws, least=100)
        Chart.of(self.coordinates)

    def report_to(self, reporter: Reporter, label: str, island_round: int) -> Report:
        """The progress: climbs that have ended, then the check."""

        def report(share: float, log_evidence: float, steps: int) -> None:
            done = f"{100 * share:.0f} %: " + ("climbing" if share < 0.5 else "checking")
            reporter.advance(share, done, log_evidence, steps, label, island_round)

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
    ) -> Evidence:
        """The evidence of a model on data that are in memory.

        Args:
            model: with a log-likelihood of rows or of all data.
            values: the observations; None for a model that contains its data.
            weight: how often each row counts.
            seed: the same seed gives the same numbers.
            first_island: number of the run; another one has other starts and draws.
            report: called with the share of the work that is done, the log evidence so far, and a
                number of steps.
        """
        check_seed(seed)
        began = time.perf_counter()
        chart = Chart.of(self.coordinates)
        with in_double_precision():
            density = JointDensity(model, values, weight)
            numbers = random_numbers(seed, Stream.LAPLACE_CHECK, first_island)
            start_seed = int(numbers.integers(2**62))

            reached = 0.0

            def climbing(share: float) -> None:
                nonlocal reached
                reached = max(reached, 0.4 * share)  # further starts begin again
                if report is not None:
                    report(reached, math.nan, 1)

            options: dict[str, Any] = {"num_starts": self.num_starts, "seed": start_seed}
            modes = around = find_modes(density, **options, report=climbing)
            climbs = around.num_evaluations - density.num_evaluations
            if chart.name != "unconstrained":
                modes = find_modes(density, **options, chart=chart)
                climbs += modes.num_evaluations
            counted = separate(modes)
            log_evidence = float(np.logaddexp.reduce(modes.log_mass[counted]))
            if report is not None:
                report(0.5, log_evidence, 1)
            num_draws = self.num_draws or _affordable(values)
            check = check_modes(density, around, numbers, num_draws)
            further = next_order(density, around, numbers, num_draws // LINES_FOR)
            if report is not None:
                report(1.0, log_evidence, 1)
            used = np.isfinite(check.log_weight)
            if used.any():
                where, log_weight = check.position[used], check.log_weight[used]
            else:
                where, log_weight = modes.position, modes.log_mass
            samples, log_weights = posterior(model, where, log_weight)
        std_error, flags = judge(modes, around, check, further, log_evidence)
        return Evidence(
            log_evidence=log_evidence,
            std_error=std_error,
            num_observations=density.num_observations,
            method=self.name,
            trace=Trace(power=np.ones(1), log_evidence=np.array([log_evidence])),
            samples=samples,
            log_weights=log_weights,
            diagnostics={
                **_diagnostics(modes, check, further, log_evidence),
                "num_separate": len(counted),
                "num_evaluations": climbs + density.num_evaluations,
            },
            flags=flags,
            elapsed=time.perf_counter() - began,
        )


def _affordable(values: PyTree | None) -> int:
    rows = 1 if values is None else max(num_rows(values), 1)
    return int(np.clip(BUDGET // rows, LEAST_DRAWS, MOST_DRAWS))


def separate(modes: Modes) -> np.ndarray:
    """Which modes count: those that are far from every counted mode with a larger mass.

    Each Gaussian alone covers a pair of modes that overlap, so that their sum counts it twice.
    """
    summits = [
        Summit(*parts) for parts in zip(modes.position, modes.log_density, modes.root, modes.kinds)
    ]
    counted: list[int] = []
    for number in np.argsort(-modes.log_mass, kind="stable"):
        mine = summits[number]
        near = any(
            min(
                mine.distance(summits[other].position[None])[0],
                summits[other].distance(mine.position[None])[0],
            )
            < SEPARATE
            for other in counted
        )
        if not near:
            counted.append(int(number))
    return np.array(sorted(counted))


def judge(
    modes: Modes, around: Modes, check: ModesCheck, further: NextOrder, log_evidence: float
) -> tuple[float, tuple[Status, ...]]:
    """The stated error, and the flags.

    Args:
        modes: those of the chosen coordinates.
        around: those of the unconstrained coordinates, which the check is around.
        check: importance sampling.
        further: the next term of the expansion, from which the error is taken if the check fails
            and the expansion seems to converge.
        log_evidence: the answer.
    """
    found = {FLAG_OF[kind] for kind in (*modes.kinds, *around.kinds) if kind is not SummitKind.MODE}
    flags = [status for status in dict.fromkeys(FLAG_OF.values()) if status in found]
    difference = log_evidence - check.log_evidence
    rounding = rounding_error(log_evidence)
    # Beyond an edge there may be anything, which draws around it do not show.
    inside = SummitKind.EDGE not in around.kinds
    is_good = check.khat <= MAX_CHECK_PARETO_K and check.ess >= MIN_CHECK_DRAWS
    error = math.nan
    if inside and is_good and math.isfinite(check.std_error):
        error = math.hypot(difference, check.std_error)
        if abs(difference) > MAX_LAPLACE_DIFFERENCE:
            flags.append(Status.NOT_GAUSSIAN)
    else:
        flags.append(Status.CHECK_FAILED)
        error = _error_of_order(modes, around, further)
        # Bad draws rarely find too much, so what they find more may be mass that the modes lack.
        error = math.hypot(error, max(-difference, 0.0))
        if math.isnan(error):
            flags.append(Status.EXPANSION_FAILED)
    missed = -math.log1p(-min(modes.unseen, 0.95))
    if modes.unseen > MAX_UNSEEN_MODES:
        flags.append(Status.MODES_UNSEEN)
    if rounding > MAX_ROUNDING:
        flags.append(Status.ROUNDED)
    return math.hypot(error, missed, rounding), tuple(flags)


def _error_of_order(modes: Modes, around: Modes, further: NextOrder) -> float:
    """The next term of the expansion as an error; NaN where it does not seem to converge."""
    difference = _sum(modes.log_mass) - _sum(around.log_mass)
    size = abs(further.correction) + 2.0 * further.std_error
    are_modes = all(kind is SummitKind.MODE for kind in (*modes.kinds, *around.kinds))
    if not are_modes or not size <= MAX_NEXT_ORDER * modes.position.shape[1]:
        return math.nan
    return size + abs(difference)


def _sum(log_mass: np.ndarray) -> float:
    return float(np.logaddexp.reduce(log_mass))


def _diagnostics(
    modes: Modes, check: ModesCheck, further: NextOrder, log_evidence: float
) -> dict[str, Any]:
    mass = modes.log_mass
    share = np.exp(mass - np.logaddexp.reduce(mass))
    return {
        "island_log_evidence": np.array([log_evidence]),
        "check_log_evidence": check.log_evidence,
        "check_error": check.std_error,
        "check_ess": check.ess,
        "check_pareto_k": check.khat,
        "next_order": further.correction,
        "next_order_error": further.std_error,
        "num_modes": int(sum(kind is SummitKind.MODE for kind in modes.kinds)),
        "num_starts": modes.num_starts,
        "mode_log_mass": mass,
        "mode_share": share,
        "mode_log_density": modes.log_density,
        "mode_log_copies": modes.log_copies,
        "mode_found_by": modes.found_by,
        "mode_kind": [kind.value for kind in modes.kinds],
        "mode_position": modes.position,
        "modes_unseen": modes.unseen,
        "draws_remark": REMARK,
    }
