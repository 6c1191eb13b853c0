"""weighbridge's nested sampling as a user asks for an error: rounds of runs that are merged."""

from __future__ import annotations

import weighbridge as wb
from benchmarks import problems
from benchmarks.peers.targets import Data
from benchmarks.peers.tools import Answer, Run

TOLERANCE = 0.1


def prepare(name: str, data: Data, effort: float = 1.0) -> Run:
    """Nested sampling with its defaults; an effort of e asks for an error of 0.1 / sqrt(e)."""
    problem = problems.CATALOGUE[name].build()
    method, tolerance = wb.NestedSampling(), TOLERANCE / effort**0.5

    def run(seed: int) -> Answer:
        result = wb.evidence(
            problem.model, problem.data, method, seed=seed, tolerance=tolerance, progress=False
        )
        flags = tuple(flag.name for flag in result.flags)
        calls = result.diagnostics["num_evaluations"]
        return Answer(result.log_evidence, result.std_error, flags, calls)

    return run
