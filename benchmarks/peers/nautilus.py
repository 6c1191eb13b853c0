"""nautilus: the defaults (2,000 live points, 10,000 effective samples), likelihood vectorised.

Its documentation gives the error of log Z as 1 / sqrt(effective sample size). It refuses problems
of one dimension.
"""

from __future__ import annotations

import math

import nautilus

from benchmarks.peers.targets import Data, numpy_target
from benchmarks.peers.tools import Answer, Run

NUM_LIVE = 2_000


def prepare(name: str, data: Data, effort: float = 1.0) -> Run:
    """One sampler for each seed."""
    target = numpy_target(name, data)

    def run(seed: int) -> Answer:
        sampler = nautilus.Sampler(
            target.transform,
            target.log_likelihood,
            n_dim=target.dimension,
            n_live=round(NUM_LIVE * effort),
            vectorized=True,
            seed=seed,
        )
        sampler.run(verbose=False)
        return Answer(float(sampler.log_z), 1 / math.sqrt(sampler.n_eff), calls=sampler.n_like)

    return run
