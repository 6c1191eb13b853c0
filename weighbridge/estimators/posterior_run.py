"""Draws of a posterior for methods that begin with them: NUTS, or slices without gradients."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from weighbridge.core.checks import check_count
from weighbridge.core.compilation import double_precision
from weighbridge.core.progress.reporters import Reporter
from weighbridge.core.random import Stream, random_key, random_numbers
from weighbridge.core.types import Kernel, PyTree, Report
from weighbridge.models.model import Model, draw_positions
from weighbridge.models.targets.host import PROBES, host_likelihood
from weighbridge.results.posterior import Posterior
from weighbridge.sampling.chain_targets import prepare
from weighbridge.sampling.kernels.nuts import NUTS
from weighbridge.sampling.kernels.slice import Slice
from weighbridge.sampling.memory import check_memory
from weighbridge.sampling.sampler import Sampler
from weighbridge.sampling.warmup.settings import Warmup

# Rows of a mini-batch; the kernels here use none.
NO_BATCHES = 1
# The draws are the largest part of the work of a method that begins with them. Its last report,
# with share 1, is its own.
LARGEST_SHARE = 0.99


@dataclass(frozen=True)
class PosteriorRun:
    """How the posterior is sampled.

    Args:
        num_samples: number of draws of each chain.
        num_warmup: number of warm-up steps of each chain, which are not kept.
        num_chains: number of chains.
        kernel: the kernel; by default NUTS, or slice sampling if the likelihood has no gradient.
    """

    num_samples: int = 1000
    num_warmup: int = 1000
    num_chains: int = 4
    kernel: Kernel | None = None

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples)
        check_count("num_chains", self.num_chains)
        check_count("num_warmup", self.num_warmup, 0)


@double_precision
def sample_posterior(
    model: Model,
    values: PyTree | None,
    weight: np.ndarray | None,
    run: PosteriorRun,
    *,
    seed: int = 0,
    first_island: int = 0,
    report: Report | None = None,
) -> Posterior:
    """Draws of the posterior, for a method that begins with them.

    With the same seed they are the draws of ``wb.sample``.

    Args:
        model: with a log-likelihood of rows or of all data.
        values: the observations; None for a model that contains its data.
        weight: how often each row counts; None for a likelihood that does not factorise.
        run: how many draws and chains.
        seed: the same seed gives the same numbers.
        first_island: another number gives other draws.
        report: called with the share done, NaN (there is no log evidence yet) and the number of
            steps of all chains.

    >>> import numpyro.distributions as dist
    >>> model = Model({"mu": dist.Normal(0, 1)}, lambda p, y: dist.Normal(p["mu"], 1).log_prob(y))
    >>> run = PosteriorRun(num_samples=50, num_warmup=100, num_chains=2)
    >>> sample_posterior(model, np.array([0.0, 1.0]), np.ones(2), run).samples["mu"].shape
    (2, 50)
    """
    kernel = run.kernel
    if kernel is None:
        probes = np.asarray(draw_positions(model, random_key(0), PROBES))
        on_host = host_likelihood(model, values, probes[None]) is not None
        kernel = Slice() if on_host else NUTS()
    check_memory(model.dimension, run.num_chains, run.num_samples, dense=False)
    prepared = prepare(model, (values, weight), kernel, NO_BATCHES)
    if first_island:
        numbers = random_numbers(seed, Stream.POSTERIOR_RUNS, first_island)
        seed = int(numbers.integers(2**63))
    total = run.num_chains * (run.num_warmup + run.num_samples)
    watcher = ShareReporter(report, total, run.num_warmup)
    sampler = Sampler(prepared, seed, run.num_chains, Warmup(), 1, watcher)
    return sampler.run(run.num_samples, run.num_warmup, None)


class ShareReporter:
    """A reporter of chains that passes on the share of all steps that is done.

    Args:
        report: called with the share, NaN and the number of steps; None for silence.
        total: number of steps of all chains.
        num_warmup: number of warm-up steps of each chain.

    >>> told = []
    >>> reporter = ShareReporter(lambda share, _, steps: told.append((share, steps)), 200, 50)
    >>> reporter.update(0, 10, 50, True, 0)
    >>> reporter.update(0, 50, 50, False, 0)
    >>> told
    [(0.0495, 10), (0.495, 100)]
    """

    def __init__(self, report: Report | None, total: int, num_warmup: int) -> None:
        self._report, self._total, self._num_warmup = report, total, num_warmup
        self._done: dict[int, int] = {}
        self._lock = threading.Lock()

    def update(self, chain: int, done: int, total: int, warming: bool, divergent: int) -> None:
        """Report the share of all chains together."""
        with self._lock:
            self._done[chain] = done + (0 if warming else self._num_warmup)
            steps = sum(self._done.values())
            if self._report is not None and steps:
                self._report(LARGEST_SHARE * steps / self._total, math.nan, steps)

    def say(self, text: str) -> None:
        """Say nothing: the reporter of the method does."""

    def close(self) -> None:
        """The method closes its own reporter."""


def report_steps(reporter: Reporter, label: str, island_round: int) -> Report:
    """The function for ``BatchMethod.report_to``: progress by the steps of the chains.

    Args:
        reporter: shows the progress.
        label: name of the model; empty if it is the only one.
        island_round: number of the round of islands from 1; 0 if there is only one.
    """
    return partial(_advance, reporter, label, island_round)


def _advance(
    reporter: Reporter, label: str, island_round: int, share: Any, log_evidence: float, steps: int
) -> None:
    done = f"{steps:,} steps of chains"
    reporter.advance(float(share), done, log_evidence, steps, label, island_round)
