"""The harmonic mean of the likelihood over posterior draws: a warning, not an estimate."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.checks import check_seed
from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import DataError
from weighbridge.core.progress.reporters import Reporter
from weighbridge.core.status import Status
from weighbridge.core.types import PyTree, Report
from weighbridge.diagnostics.pareto import pareto_khat
from weighbridge.estimators.draws_origin import require_origin
from weighbridge.estimators.posterior_draws import PosteriorDraws, read_draws
from weighbridge.estimators.posterior_run import PosteriorRun, report_steps, sample_posterior
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.protocols import BatchMethod
from weighbridge.estimators.sequential import posterior
from weighbridge.models.held import take
from weighbridge.models.model import Model
from weighbridge.models.row_gate import require_model
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.trace import Trace

# Points of the trace: the estimate from the first draws, from more, and at last from all.
NUM_POINTS = 100


@dataclass(frozen=True)
class HarmonicMean(BatchMethod):
    r"""The harmonic mean of the likelihood over posterior draws. Do not believe it.

    .. math:: \frac1Z = \int \frac{p(\theta | y)}{p(y | \theta)} \, d\theta, \qquad
              \hat Z = \Bigl( \frac1M \sum_i \frac{1}{p(y | \theta_i)} \Bigr)^{-1},
              \qquad \theta_i \sim p(\theta | y)

    The identity is exact, but the sum is dominated by draws of very low likelihood, which a
    posterior hardly ever gives: the variance is infinite if the prior is wider than the likelihood,
    and the estimate is too high. It hardly changes if the prior is made wider; the evidence does.
    It is here because people use it and ask about it: every result has the flag
    ``Status.INFINITE_VARIANCE`` and no error. ``diagnostics["khat"]`` is the Pareto shape of
    the inverse likelihoods (above 0.5 the variance is infinite; a small value proves nothing,
    because the tail may not have been drawn), and ``diagnostics["largest_share"]`` the share of a
    single draw in the sum.

    Newton & Raftery (1994), J. R. Stat. Soc. B 56:3-48; Neal's reply there; Cameron (2020), MSc
    thesis, Stellenbosch University, section 3.1.3.

    Args:
        num_samples: number of draws of each chain.
        num_warmup: number of warm-up steps of each chain.
        num_chains: number of chains, by NUTS, or slice sampling if there is no gradient.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(100, seed=0)
    >>> model = wb.zoo.gaussian.model(prior_scale=100.0)
    >>> result = wb.evidence(model, data, HarmonicMean(num_samples=500, num_warmup=300), seed=0)
    >>> result.log_evidence - wb.zoo.gaussian.log_evidence(data, prior_scale=100.0) > 2
    True
    >>> result.status.name, result.std_error
    ('INFINITE_VARIANCE', nan)
    """

    num_samples: int = 1000
    num_warmup: int = 1000
    num_chains: int = 4

    name: ClassVar[str] = "harmonic_mean"
    num_islands: ClassVar[int] = 1
    states_error: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._run()

    def report_to(self, reporter: Reporter, label: str, island_round: int) -> Report:
        """The progress by the steps of the chains."""
        return report_steps(reporter, label, island_round)

    @double_precision
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
        """The harmonic mean of a model on data that are in memory, with draws of its own.

        Args:
            model: with a log-likelihood of rows or of all data.
            values: the observations; None for a model that contains its data.
            weight: how often each row counts; None for a likelihood that does not factorise.
            seed: the same seed gives the same numbers.
            first_island: other numbers give other draws.
            report: called with the share done, the log evidence so far, and the number of steps.
        """
        check_seed(seed)
        began = time.perf_counter()
        drawn = sample_posterior(
            model,
            values,
            weight,
            self._run(),
            seed=seed,
            first_island=first_island,
            report=report,
        )
        stopped = interrupts.is_due()
        # If the sampling was stopped, the draws so far are used.
        with interrupts.stopped_by(threading.Event(), 0.0):
            density = JointDensity(model, values, weight)
            result = _average(density, read_draws(model, drawn), began, stopped)
        if report is not None:
            report(1.0, result.log_evidence, self.num_chains * (self.num_warmup + self.num_samples))
        return result

    @double_precision
    def from_draws(self, model: Model, data: Any, draws: Any) -> Evidence:
        """The harmonic mean of draws that exist already; its settings are not used.

        Args:
            model: the model of which they are draws.
            data: the observations, in any form that ``wb.evidence`` accepts.
            draws: a ``wb.Posterior``, an ``wb.Evidence``, or a mapping from parameter names to
                arrays: chains x draws x shape, or draws x shape.

        >>> import weighbridge as wb
        >>> data = wb.zoo.gaussian.simulate(100, seed=0)
        >>> draws = {"mu": np.random.default_rng(0).normal(data.sum() / 101, 101**-0.5, 1000)}
        >>> result = HarmonicMean().from_draws(wb.zoo.gaussian.model(), data, draws)
        >>> bool(result.log_evidence > wb.zoo.gaussian.log_evidence(data))
        True
        """
        began = time.perf_counter()
        require_model(model)
        held = take(model, data, "wb.HarmonicMean")
        read = read_draws(model, draws)
        require_origin(draws, model, held)
        result = _average(JointDensity(model, *held.contents()), read, began)
        return replace(result, fingerprint=held.fingerprint)

    def _run(self) -> PosteriorRun:
        return PosteriorRun(self.num_samples, self.num_warmup, self.num_chains)


def _average(
    density: JointDensity, draws: PosteriorDraws, began: float, interrupted: bool = False
) -> Evidence:
    """The harmonic mean over all draws, and what shows that it fails."""
    num_chains, num_draws = draws.log_weights.shape
    # Draw by draw, not chain by chain, so that the trace is that of all chains together.
    positions = np.swapaxes(draws.positions, 0, 1).reshape(num_chains * num_draws, -1)
    log_weights = draws.log_weights.T.reshape(-1)
    log_likelihood = density.log_likelihood(positions)
    used = np.isfinite(log_weights)
    if not np.isfinite(log_likelihood[used]).all():
        count = int(np.sum(~np.isfinite(log_likelihood[used])))
        raise DataError(
            f"The likelihood is zero, or not a number, at {count:,} of {int(used.sum()):,} draws. "
            "Draws of the posterior have a positive likelihood: are these draws of another model, "
            "or of other data?"
        )
    log_terms = np.where(used, log_weights - np.where(used, log_likelihood, 0.0), -np.inf)
    sums, masses = np.logaddexp.accumulate(log_terms), np.logaddexp.accumulate(log_weights)
    log_evidence = float(masses[-1] - sums[-1])
    ends = np.unique(np.geomspace(1, len(positions), NUM_POINTS).round().astype(int)) - 1
    ends = ends[np.isfinite(masses[ends])]
    of_chain = np.logaddexp.reduce(log_terms.reshape(num_draws, num_chains), axis=0)
    mass_of_chain = np.logaddexp.reduce(log_weights.reshape(num_draws, num_chains), axis=0)
    shares = np.exp(log_terms - sums[-1])
    named, normalised = posterior(density.model, *draws.flat())
    return Evidence(
        log_evidence,
        math.nan,
        density.num_observations,
        HarmonicMean.name,
        Trace(num_draws=ends + 1.0, log_evidence=masses[ends] - sums[ends]),
        named,
        normalised,
        {
            "island_log_evidence": np.array([log_evidence]),
            "chain_log_evidence": mass_of_chain - of_chain,
            "khat": pareto_khat(log_terms[used]),
            "largest_share": float(shares.max()),
            "effective_draws": float(1 / np.sum(shares**2)),
            "num_draws": len(positions),
            **({"num_chains": num_chains} if draws.ordered else {}),
        },
        (Status.INTERRUPTED,) * interrupted + (Status.INFINITE_VARIANCE,),
        time.perf_counter() - began,
    )
