"""Is nested sampling on a stream right, is its error true, and what does a chunk cost?"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import jax
import numpy as np

import weighbridge as wb
from benchmarks import problems, report

HEADER = (
    "stream",
    "live points",
    "seeds",
    "mean error",
    "median stated",
    "mean z",
    "sd of z",
    "within 3",
    "flagged",
    "calls a chunk",
    "CPU s, first and last chunk",
)


def _part(data: Any, start: int, stop: int) -> Any:
    return jax.tree_util.tree_map(lambda column: column[start:stop], data)


def _shuffled() -> problems.Problem:
    found = problems.beta_bernoulli()
    return found._replace(data=np.random.default_rng(0).permutation(found.data))


STREAMS = {
    "Gaussian-Gaussian, 400 rows": lambda: problems.gaussian(400),
    "Beta-Bernoulli, 100 rows": _shuffled,
    "linear regression, 400 rows": lambda: problems.linear(400),
    "linear regression, 4,000 rows": lambda: problems.linear(4000),
}


def measure(problem: problems.Problem, seeds: int, num_live: int, num_chunks: int) -> list[str]:
    """One row of the table: every stream comes in chunks of equal size."""
    rows = len(jax.tree_util.tree_leaves(problem.data)[0])
    cuts = np.linspace(0, rows, num_chunks + 1).astype(int)
    results, ends = [], []
    for seed in range(seeds + 1):  # the first run compiles
        method = wb.OnlineNestedSampling(num_live=num_live)
        online = wb.Online(problem.model, method, seed=seed, progress=False)
        seconds = []
        for start, stop in itertools.pairwise(cuts):
            began = time.process_time()
            online.update(_part(problem.data, start, stop))
            seconds.append(time.process_time() - began)
        results.append(online.result())
        ends.append((seconds[0], seconds[-1]))
    first, last = np.median(ends[1:], axis=0)
    errors = np.array([r.log_evidence - problem.log_evidence for r in results[1:]])
    stated = np.array([r.std_error for r in results[1:]])
    calls = np.mean([r.diagnostics["num_evaluations"] for r in results[1:]]) / num_chunks
    z = errors / stated
    return [
        str(num_live),
        str(seeds),
        f"{errors.mean():.3f}",
        f"{np.median(stated):.3f}",
        f"{z.mean():.2f}",
        f"{z.std():.2f}",
        f"{100 * np.mean(np.abs(z) <= 3):.0f} %",
        f"{100 * np.mean([bool(r.flags) for r in results[1:]]):.0f} %",
        f"{calls:,.0f}",
        f"{first:.2f}, {last:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--live", type=int, default=200)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS))
    options = parser.parse_args()
    known = report.load("online_nested")
    for name in options.streams:
        known[name] = measure(STREAMS[name](), options.seeds, options.live, options.chunks)
        report.save("online_nested", known)  # results survive an interruption
        rows = [[stream, *known[stream]] for stream in STREAMS if stream in known]
        body = (
            report.table(HEADER, rows)
            + "\n\nEvery stream comes in 8 chunks of equal size unless --chunks says otherwise. "
            "z = (estimate - exact) / stated error, after the last chunk. With n seeds its mean "
            "has a standard error of 1/sqrt(n) and its standard deviation one of 1/sqrt(2n). An "
            "evaluation takes all rows so far: the last chunk takes longer than the first. Rows "
            "may be of different runs of this command."
        )
        report.write("online_nested", "Nested sampling on a stream against exact evidences", body)


if __name__ == "__main__":
    main()
