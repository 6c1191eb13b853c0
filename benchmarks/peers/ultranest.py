"""UltraNest: the reactive nested sampler with its defaults, likelihood vectorised.

From 20 dimensions on it uses the slice step sampler with 2 d steps, as its tutorial on many
dimensions does: region sampling is not efficient there.
"""

from __future__ import annotations

import logging

import numpy as np
import ultranest
from ultranest import stepsampler

from benchmarks.peers.targets import Data, numpy_target
from benchmarks.peers.tools import Answer, Run

MANY_DIMENSIONS = 20
NUM_LIVE = 400


def prepare(name: str, data: Data, effort: float = 1.0) -> Run:
    """One sampler for each seed."""
    target = numpy_target(name, data)
    names = [f"x{index}" for index in range(target.dimension)]
    logging.getLogger("ultranest").setLevel(logging.WARNING)

    def run(seed: int) -> Answer:
        np.random.seed(seed)  # noqa: NPY002
        sampler = ultranest.ReactiveNestedSampler(
            names, target.log_likelihood, target.transform, vectorized=True
        )
        if target.dimension >= MANY_DIMENSIONS:
            sampler.stepsampler = stepsampler.SliceSampler(
                nsteps=2 * target.dimension,
                generate_direction=stepsampler.generate_mixture_random_direction,
            )
        result = sampler.run(
            min_num_live_points=round(NUM_LIVE * effort), show_status=False, viz_callback=False
        )
        return Answer(float(result["logz"]), float(result["logzerr"]), calls=int(result["ncall"]))

    return run
