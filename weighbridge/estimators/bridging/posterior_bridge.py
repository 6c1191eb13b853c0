"""``wb.bridge``: the evidence from posterior draws that exist already."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import numpy as np

from weighbridge.core.checks import check_count, check_seed
from weighbridge.core.compilation import in_double_precision
from weighbridge.core.progress.announcing import announce
from weighbridge.core.progress.reporters import Reporter, choose_reporter
from weighbridge.core.status import Status
from weighbridge.core.types import PyTree
from weighbridge.data.row_checking import RowPolicy
from weighbridge.estimators.bridging.from_draws import (
    BridgeAnswer,
    BridgePlan,
    bridge_draws,
    check_proposal,
)
from weighbridge.estimators.draws_origin import require_origin
from weighbridge.estimators.nested.result import NestedEvidence
from weighbridge.estimators.posterior_draws import PosteriorDraws, read_draws
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.models.held import Held, take
from weighbridge.models.model import Model
from weighbridge.models.row_gate import require_model
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.posterior import Posterior
from weighbridge.results.trace import Trace
from weighbridge.sampling.chain_draws import named_draws
from weighbridge.sampling.kernels.psgld import PSGLD
from weighbridge.sampling.kernels.rsghmc import RiemannianSGHMC
from weighbridge.sampling.kernels.sghmc import SGHMC
from weighbridge.sampling.kernels.sgld import SGLD
from weighbridge.sampling.kernels.sgnht import SGNHT

NAME = "bridge"
READING = "reading the draws and the data"
# Evaluations between two reports.
WATCHED = 4096
# Kernels whose draws are not exactly from the posterior.
APPROXIMATE = {kernel.__name__ for kernel in (SGLD, PSGLD, SGHMC, RiemannianSGHMC, SGNHT)}


def bridge(
    posterior: Any,
    model: Model,
    data: Any = None,
    *,
    proposal: str = "auto",
    repetitions: int = 1,
    seed: int = 0,
    on_bad_row: RowPolicy = "raise",
    progress: bool | Reporter | None = None,
) -> Evidence:
    r"""The evidence from draws of a posterior, by bridge sampling.

    With the unnormalised posterior f, a normalised proposal q that is fitted to some of the draws,
    and l = f / q, iterated until Z no longer changes,

    .. math:: Z = \frac{\frac1{N_2} \sum_{j \sim q} l_j / (s_1 l_j + s_2 Z)}
                       {\frac1{N_1} \sum_{i \sim p} 1 / (s_1 l_i + s_2 Z)},
              \qquad s_1 = \frac{N_1 / \tau}{N_1 / \tau + N_2}, \; s_2 = 1 - s_1

    the optimal bridge, with the effective number of autocorrelated draws N_1 / tau. The draws of
    all chains are cut into five parts in the order of time. The proposal for a part is fitted to
    the next two parts, in a circle, so that all draws are used for both and no two parts fit each
    other.

    The standard error is that of numerator and denominator, with the spectrum of the terms of each
    chain. Jackknives over blocks and over chains check it. It cannot show modes that are absent
    from the draws: what no chain has visited is not counted.

    Args:
        posterior: a ``wb.Posterior``, also from ``wb.from_arviz``; an ``wb.Evidence``, whose draws
            have weights; or a mapping of parameter names to arrays, chains x draws x shape.
        model: the model of which they are draws.
        data: the observations, in any form that ``wb.evidence`` accepts.
        proposal: "normal"; "student_t"; "warp3", a normal for a posterior that is made symmetric,
            which helps if it is skewed; "mixture", a normal for each cluster of the draws; or
            "auto": the one that overlaps most in a small pilot bridge within the draws that fit
            the first proposal.
        repetitions: times that the proposals are drawn; the answer is the mean. More of them
            reduce the part of the error that is due to the proposals.
        seed: the same seed gives the same numbers.
        on_bad_row: what to do with rows that cannot be used: "raise" an error, or "skip" them.
        progress: True or False, or a reporter; by default, only a long run shows it.

    Returns:
        The log evidence with its error; ``samples`` are the posterior draws.
        ``diagnostics["error_measures"]`` has the words of the R package bridgesampling.

    >>> import weighbridge as wb
    >>> data, model = wb.zoo.gaussian.simulate(100, seed=1), wb.zoo.gaussian.model()
    >>> numbers, exact = np.random.default_rng(0), data.sum() / 101
    >>> draws = {"mu": exact + numbers.normal(size=(4, 250)) / 101**0.5}
    >>> result = wb.bridge(draws, model, data)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 5 * result.std_error
    True

    References: Meng & Wong (1996), Statistica Sinica 6:831-860; Frühwirth-Schnatter (2004),
    Econometrics Journal 7:143-167; Gronau et al. (2017), J. Math. Psychol. 81:80-97.
    """
    began = time.perf_counter()
    check_seed(seed)
    check_proposal(proposal)
    check_count("repetitions", repetitions)
    require_model(model)
    reporter = choose_reporter(progress)
    with in_double_precision(), contextlib.closing(reporter):
        announce(reporter, READING)
        held = take(model, data, "wb.bridge", on_bad_row)
        draws = read_draws(model, posterior)
        require_origin(posterior, model, held)
        plan = BridgePlan(proposal, repetitions, seed)
        expected = draws.log_weights.size * (3 + 2 * repetitions)
        density = WatchedDensity(model, *held.contents(), reporter, expected)
        answer = bridge_draws(density, draws, _num_islands(posterior), plan)
        approximate = isinstance(posterior, Posterior) and _kernel_name(posterior) in APPROXIMATE
        flags = (Status.UNADJUSTED,) * approximate
        return to_evidence(density, draws, answer, flags, held, seconds=time.perf_counter() - began)


class WatchedDensity(JointDensity):
    """A joint density that shows how many of the expected evaluations are done."""

    def __init__(
        self,
        model: Model,
        values: PyTree,
        weight: np.ndarray | None,
        reporter: Reporter,
        expected: int,
    ) -> None:
        super().__init__(model, values, weight)
        self._reporter, self._expected = reporter, expected

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Log density at positions x coordinates."""
        found = np.empty(len(positions))
        for start in range(0, len(positions), WATCHED):
            part = slice(start, start + WATCHED)
            found[part] = super().__call__(positions[part])
            share = min(self.num_evaluations / self._expected, 0.99)
            done = f"{self.num_evaluations:,} evaluations"
            self._reporter.advance(share, done, math.nan, self.num_evaluations)
        return found


def to_evidence(
    density: JointDensity,
    draws: PosteriorDraws,
    answer: BridgeAnswer,
    flags: tuple[Status, ...] = (),
    held: Held | None = None,
    *,
    seconds: float,
) -> Evidence:
    """The answer of a bridge as the result that users get.

    Args:
        density: the unnormalised log posterior.
        draws: the posterior draws.
        answer: the answer.
        flags: further reasons for caution, the most serious ones.
        held: the rows, if they are to be in the result.
        seconds: duration.
    """
    named = named_draws(density.model, draws.positions)
    # Whoever reads these draws again must know that they are autocorrelated.
    chains = {"num_chains": len(draws.positions)} if draws.ordered else {}
    return Evidence(
        log_evidence=answer.log_evidence,
        std_error=answer.precision.std_error,
        num_observations=density.num_observations,
        method=NAME,
        trace=Trace(log_evidence=answer.path),
        samples={n: np.asarray(v).reshape(-1, *v.shape[2:]) for n, v in named.items()},
        log_weights=draws.flat()[1],
        diagnostics=answer.diagnostics | chains | ({} if held is None else held.noticed()),
        flags=(*flags, *answer.flags),
        elapsed=seconds,
        fingerprint=None if held is None else held.fingerprint,
    )


def _kernel_name(posterior: Posterior) -> str:
    if posterior.kernel is not None:
        return type(posterior.kernel).__name__
    return str(posterior.state.get("kernel", ""))


def _num_islands(posterior: Any) -> int:
    """Islands of a result whose draws are island by island; points of nested sampling are not."""
    if not isinstance(posterior, Evidence) or isinstance(posterior, NestedEvidence):
        return 0
    return int(np.size(posterior.diagnostics.get("island_log_evidence", ())))
