"""Bridge sampling as a method: the posterior is sampled first."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.checks import check_count, check_seed
from weighbridge.core.compilation import in_double_precision
from weighbridge.core.errors import MethodError
from weighbridge.core.progress.reporters import Reporter
from weighbridge.core.status import Status
from weighbridge.core.types import Kernel, PyTree, Report
from weighbridge.estimators.bridging.from_draws import BridgePlan, bridge_draws, check_proposal
from weighbridge.estimators.bridging.posterior_bridge import NAME, to_evidence
from weighbridge.estimators.posterior_draws import read_draws
from weighbridge.estimators.posterior_run import PosteriorRun, report_steps, sample_posterior
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.protocols import BatchMethod
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence
from weighbridge.sampling.sampling import check_adaptation


@dataclass(frozen=True)
class Bridge(BatchMethod):
    r"""Bridge sampling: the posterior is sampled by NUTS, then bridged to proposals fitted to it.

    .. math:: Z = \frac{\mathrm{E}_q[f / q \; \alpha]}{\mathrm{E}_p[\alpha]}, \qquad
              \alpha = \frac{1}{s_1 f / q + s_2 Z}

    It is accurate where chains mix well, also with many parameters. It does not see modes that no
    chain has visited; ``wb.SMC()`` and ``wb.NestedSampling()`` look for them. See ``wb.bridge``,
    which does the same with draws that exist already.

    Args:
        num_samples: draws of each chain.
        num_warmup: steps of the warm-up of each chain, which are not kept.
        num_chains: chains.
        kernel: the kernel of the chains; by default NUTS, or slice sampling if the likelihood has
            no gradient.
        proposal: "auto", "normal", "student_t", "warp3" or "mixture".
        repetitions: times that the proposals are drawn.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(50, seed=1)
    >>> method = wb.Bridge(num_samples=250, num_warmup=200)
    >>> result = wb.evidence(wb.zoo.gaussian.model(), data, method, seed=0)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 5 * result.std_error
    True

    References: Meng & Wong (1996), Statistica Sinica 6:831-860; Meng & Schilling (2002),
    J. Comput. Graph. Stat. 11:552-586.
    """

    num_samples: int = 1000
    num_warmup: int = 1000
    num_chains: int = 4
    kernel: Kernel | None = None
    proposal: str = "auto"
    repetitions: int = 1

    name: ClassVar[str] = NAME

    def __post_init__(self) -> None:
        check_proposal(self.proposal)
        check_count("repetitions", self.repetitions)
        run = self._run()
        if self.kernel is None:
            return
        if not isinstance(self.kernel, Kernel) or self.kernel.uses_batches:
            raise MethodError(
                "kernel must be a kernel such as wb.NUTS() that samples the posterior exactly, not "
                f"{self.kernel!r}."
            )
        check_adaptation(self.kernel, run.num_warmup)

    def _run(self) -> PosteriorRun:
        return PosteriorRun(self.num_samples, self.num_warmup, self.num_chains, self.kernel)

    def report_to(self, reporter: Reporter, label: str, island_round: int) -> Report:
        """The progress by the steps of the chains."""
        return report_steps(reporter, label, island_round)

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
            first_island: another number gives other draws.
            report: called with the share done, the log evidence at the end (before it NaN) and the
                number of steps of all chains.
        """
        began = time.perf_counter()
        check_seed(seed)
        posterior = sample_posterior(
            model,
            values,
            weight,
            self._run(),
            seed=seed,
            first_island=first_island,
            report=report,
        )
        stopped = interrupts.is_due()
        # The draws so far are bridged even if the sampling was stopped.
        with in_double_precision(), interrupts.stopped_by(threading.Event(), 0.0):
            density = JointDensity(model, values, weight)
            draws = read_draws(model, posterior)
            plan = BridgePlan(self.proposal, self.repetitions, seed, first_island)
            answer = bridge_draws(density, draws, 0, plan)
            result = to_evidence(
                density,
                draws,
                answer,
                (Status.INTERRUPTED,) * stopped,
                seconds=time.perf_counter() - began,
            )
        if report is not None:
            steps = self.num_chains * (self.num_warmup + self.num_samples)
            report(1.0, result.log_evidence, steps)
        return result
