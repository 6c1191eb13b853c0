"""dynesty: the static nested sampler with its defaults (500 live points).

It takes one point at a time, so its likelihood is NumPy on one vector of parameters.
"""

from __future__ import annotations

import dynesty
import numpy as np

from benchmarks.peers.targets import Data, numpy_target
from benchmarks.peers.tools import Answer, Run

NUM_LIVE = 500


def prepare(name: str, data: Data, effort: float = 1.0) -> Run:
    """One sampler for each seed."""
    target = numpy_target(name, data)

    def log_likelihood(theta: np.ndarray) -> float:
        return float(target.log_likelihood(theta))

    def run(seed: int) -> Answer:
        sampler = dynesty.NestedSampler(
            log_likelihood,
            target.transform,
            target.dimension,
            nlive=round(NUM_LIVE * effort),
            rstate=np.random.default_rng(seed),
        )
        sampler.run_nested(print_progress=False)
        found = sampler.results
        calls = int(np.sum(found.ncall))
        return Answer(float(found.logz[-1]), float(found.logzerr[-1]), calls=calls)

    return run
