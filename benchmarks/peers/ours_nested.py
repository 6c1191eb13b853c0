"""weighbridge's nested sampling, with more live points for more effort."""

from __future__ import annotations

import weighbridge as wb
from benchmarks import problems
from benchmarks.peers.targets import Data
from benchmarks.peers.tools import Answer, Run

NUM_LIVE = 500


def prepare(name: str, data: Data, effort: float = 1.0) -> Run:
    """Nested sampling with its defaults but for the number of live points."""
    problem = problems.CATALOGUE[name].build()
    method = wb.NestedSampling(num_live=round(NUM_LIVE * effort))

    def run(seed: int) -> Answer:
        result = wb.evidence(problem.model, problem.data, method, seed=seed, progress=False)
        flags = tuple(flag.name for flag in result.flags)
        calls = result.diagnostics["num_evaluations"]
        return Answer(result.log_evidence, result.std_error, flags, calls)

    return run
