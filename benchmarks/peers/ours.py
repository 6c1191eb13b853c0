"""weighbridge, as a user calls it."""

from __future__ import annotations

import weighbridge as wb
from benchmarks import problems
from benchmarks.peers.targets import Data
from benchmarks.peers.tools import Answer, Run


def prepare(name: str, data: Data) -> Run:
    """SMC with its defaults; islands are added until the stated error is 0.1 nats."""
    problem = problems.CATALOGUE[name].build()
    method = wb.SMC()

    def run(seed: int) -> Answer:
        result = wb.evidence(
            problem.model, problem.data, method, seed=seed, tolerance=0.1, progress=False
        )
        flags = tuple(flag.name for flag in result.flags)
        return Answer(result.log_evidence, result.std_error, flags)

    return run
