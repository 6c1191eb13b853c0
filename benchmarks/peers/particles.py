"""particles: adaptive tempering, waste-free, with the sizes of its documentation.

The module documentation of ``particles.smc_samplers`` runs 200 chains of length 100 with random
walk Metropolis. The error is its single-run variance estimate (``Var_logLt``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import particles
from particles import distributions, smc_samplers

from benchmarks.peers.targets import Data, numpy_target
from benchmarks.peers.tools import Answer, Run

NUM_CHAINS = 200
LENGTH = 100


def prepare(name: str, data: Data) -> Run:
    """One sampler for each seed; the likelihood is vectorised over particles."""
    target = numpy_target(name, data)

    class Prior(distributions.ProbDist):  # type: ignore[misc]
        dim = target.dimension

        def rvs(self, size: int | None = None) -> np.ndarray:
            cube = np.random.random((1 if size is None else size, target.dimension))  # noqa: NPY002
            return np.asarray(target.transform(cube))

        def logpdf(self, x: np.ndarray) -> np.ndarray:
            return np.asarray(target.log_prior(x))

    class Model(smc_samplers.StaticModel):  # type: ignore[misc]
        def loglik(self, theta: np.ndarray, t: Any = None) -> np.ndarray:
            return np.asarray(target.log_likelihood(theta))

    def run(seed: int) -> Answer:
        np.random.seed(seed)  # noqa: NPY002
        tempering = smc_samplers.AdaptiveTempering(
            model=Model(data=np.zeros(1), prior=Prior()), len_chain=LENGTH
        )
        sampler = particles.SMC(
            fk=tempering, N=NUM_CHAINS, collect=[smc_samplers.Var_logLt()], verbose=False
        )
        sampler.run()
        variance = sampler.summaries.var_logLt[-1] / (NUM_CHAINS * LENGTH)
        return Answer(float(sampler.logLt), math.sqrt(float(variance)))

    return run
