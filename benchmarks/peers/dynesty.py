"""dynesty: the static nested sampler with its defaults (500 live points).

It takes one point at a time, so its likelihood is NumPy on one vector of parameters.
"""

from __future__ import annotations

import dynesty
import numpy as np

from benchmarks.peers.targets import Data, numpy_target
from benchmarks.peers.tools import Answer, Run


def prepare(name: str, data: Data) -> Run:
    """One sampler for each seed."""
    target = numpy_target(name, data)

    def log_likelihood(theta: np.ndarray) -> float:
        return float(target.log_likelihood(theta))

    def run(seed: int) -> Answer:
        sampler = dynesty.NestedSampler(
            log_likelihood, target.transform, target.dimension, rstate=np.random.default_rng(seed)
        )
        sampler.run_nested(print_progress=False)
        return Answer(float(sampler.results.logz[-1]), float(sampler.results.logzerr[-1]))

    return run
