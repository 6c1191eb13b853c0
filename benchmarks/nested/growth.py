"""``python -m benchmarks.nested.growth``: time and memory by live points, dimension and points.

Every row is measured in a process of its own: CPU seconds of a warm run, and by how much the memory
of the process rose at its height. The rows of stored points make no likelihood calls: their
points are those of exact nested sampling of a Gaussian (each thread of a run shrinks the prior mass
by independent uniform factors), which are then weighed, or merged from two results.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

import weighbridge as wb
from benchmarks import report
from benchmarks.nested.problems import correlated
from benchmarks.weather import memory
from weighbridge.estimators.nested.merging import COUNTS, weigh_points
from weighbridge.estimators.nested.points import PRIOR_CONTOUR, Points
from weighbridge.estimators.nested.result import AVERAGED, LARGEST, NestedEvidence

NAME = "nested_growth"
LIVE = (125, 500, 2_000, 8_000)
DIMENSIONS = (2, 5, 10, 20, 50, 100)
STORED = (10_000, 100_000, 1_000_000)
# Live points where the dimension varies, and dimension where the live points vary.
FEW_LIVE, FEW_DIMENSIONS = 200, 5
# Of the points that are made: threads (live points), dimension and radius of the Gaussian's ball.
THREADS, SYNTHETIC_DIMENSION, RADIUS = 1_000, 40, 15.0
KEYS = (
    *(f"live {count}" for count in LIVE),
    *(f"dimension {count}" for count in DIMENSIONS),
    *(f"weigh {count}" for count in STORED),
    *(f"merge {count}" for count in STORED),
)
RUN_HEADER = (
    "live points",
    "dimension",
    "z",
    "points",
    "calls",
    "moves a walk",
    "CPU s",
    "microseconds a call",
    "MB",
)
POINT_HEADER = ("what", "points", "z", "CPU s", "microseconds a point", "MB", "bytes a point")


def run(num_live: int, dimension: int) -> dict[str, Any]:
    """A warm run on correlated Gaussians."""
    problem, method = correlated(dimension), wb.NestedSampling(num_live=num_live)
    memory.restart()
    wb.evidence(problem.model, None, method, seed=0, progress=False)
    began = time.process_time()
    result = wb.evidence(problem.model, None, method, seed=1, progress=False)
    return {
        "live": num_live,
        "dimension": dimension,
        "z": (result.log_evidence - problem.log_evidence) / result.std_error,
        "points": len(result.log_weights),
        "calls": result.diagnostics["num_evaluations"],
        "moves": result.diagnostics["moves_per_walk"],
        "seconds": time.process_time() - began,
        "memory": memory.rise(),
    }


def made_points(count: int, seed: int) -> tuple[Points, float]:
    """Points of exact nested sampling, and the exact log evidence.

    L = exp(-r^2 / 2) within a ball of the given radius has log Z = log of the regularised gamma
    function P(d/2, R^2/2), times Gamma(d/2 + 1) (2/R^2)^(d/2). A thread is a run with one live
    point: X_k = X_{k-1} U. All threads together are a run with as many live points.
    """
    generator = np.random.default_rng(seed)
    num_threads = min(THREADS, count // 100)
    half = SYNTHETIC_DIMENSION / 2
    # The posterior lies at a log X of about -half log(R^2 / d) = -35; a thread goes on to -100.
    shape = (num_threads, count // num_threads)
    log_volume = np.cumsum(-generator.exponential(size=shape), axis=1)
    squares = RADIUS**2 * np.exp(log_volume / half)
    level, tie = -0.5 * squares, generator.random(shape)
    first = [np.full((num_threads, 1), value) for value in PRIOR_CONTOUR]
    birth = np.concatenate([first[0], level[:, :-1]], axis=1)
    birth_tie = np.concatenate([first[1], tie[:, :-1]], axis=1)
    insertion = generator.integers(0, num_threads, shape)
    insertion[:, 0] = -1
    among = np.full(shape, num_threads - 1)
    island = np.broadcast_to((np.arange(num_threads) % 4)[:, None], shape)
    nothing = np.zeros(shape)
    leaves = (nothing, nothing, level, tie, birth, birth_tie, insertion, among, island)
    exact = math.log(special.gammainc(half, RADIUS**2 / 2)) + special.gammaln(half + 1)
    exact -= half * math.log(RADIUS**2 / 2)
    return Points(*(leaf.ravel() for leaf in leaves)), exact


def as_result(points: Points, seed: int) -> NestedEvidence:
    """Points as the result of a run with one parameter."""
    weighed = weigh_points(points, "exponential", seed)
    counts = dict.fromkeys(COUNTS, 0)
    return NestedEvidence(
        log_evidence=weighed.log_evidence,
        std_error=weighed.std_error,
        num_observations=0,
        method="nested",
        trace=weighed.trace,
        samples={"x": points.log_likelihood[weighed.order]},
        log_weights=weighed.log_weights,
        diagnostics={
            **weighed.diagnostics,
            **counts,
            **dict.fromkeys((*LARGEST, *AVERAGED), 0.0),
        },
        flags=tuple(weighed.flags),
        elapsed=0.0,
    )


def weigh(count: int) -> dict[str, Any]:
    """One set of points is weighed."""
    points, exact = made_points(count, seed=1)
    memory.restart()
    began = time.process_time()
    weighed = weigh_points(points, "exponential", 1)
    z = (weighed.log_evidence - exact) / weighed.std_error
    return _stored("weigh", count, z, time.process_time() - began, memory.rise())


def merge(count: int) -> dict[str, Any]:
    """Two results of half the points each are merged."""
    made = [made_points(count // 2, seed) for seed in (1, 2)]
    results = [as_result(points, seed) for seed, (points, _) in enumerate(made)]
    memory.restart()
    began = time.process_time()
    both = wb.merge(results)
    z = (both.log_evidence - made[0][1]) / both.std_error
    return _stored("merge", count, z, time.process_time() - began, memory.rise())


def _stored(what: str, count: int, z: float, seconds: float, used: float) -> dict[str, Any]:
    return {"what": what, "points": count, "z": z, "seconds": seconds, "memory": used}


def measure(key: str) -> dict[str, Any]:
    """One row, in this process."""
    what, _, number = key.partition(" ")
    size = int(number)
    if what == "live":
        return run(size, FEW_DIMENSIONS)
    if what == "dimension":
        return run(FEW_LIVE, size)
    return weigh(size) if what == "weigh" else merge(size)


def body(records: dict[str, Any]) -> str:
    """Two tables."""
    found = [records[key] for key in KEYS if key in records]
    runs = [
        [
            f"{r['live']:,}",
            str(r["dimension"]),
            f"{r['z']:+.1f}",
            f"{r['points']:,}",
            f"{r['calls']:,}",
            str(r["moves"]),
            f"{r['seconds']:.2f}",
            f"{1e6 * r['seconds'] / r['calls']:.2f}",
            f"{r['memory']:.0f}",
        ]
        for r in found
        if "calls" in r
    ]
    stored = [
        [
            r["what"],
            f"{r['points']:,}",
            f"{r['z']:+.1f}",
            f"{r['seconds']:.2f}",
            f"{1e6 * r['seconds'] / r['points']:.2f}",
            f"{r['memory']:.0f}",
            f"{r['memory'] * 2**20 / r['points']:.0f}",
        ]
        for r in found
        if "what" in r
    ]
    parts = []
    if runs:
        parts += [
            "## Runs on correlated Gaussians",
            report.table(RUN_HEADER, runs),
            "CPU seconds of a warm run; z = (estimate - exact) / stated error. MB: by "
            "how much the memory of the process rose at its height, compilation included.",
        ]
    if stored:
        parts += [
            "## Points alone",
            report.table(POINT_HEADER, stored),
            "Weigh: volumes, sums, error and tests of points that are there. Merge: two results of "
            "half the points each (`wb.merge`). MB: above what the points themselves take.",
        ]
    return "\n\n".join(parts)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.nested.growth", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=KEYS, default=KEYS, metavar="ROW")
    parser.add_argument("--one", choices=KEYS, help="measure one row in this process, and print it")
    parser.add_argument("--again", action="store_true", help="also what was measured before")
    parser.add_argument("--minutes", type=float, default=30.0, help="limit of a row")
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    records = report.load(NAME, options.output)
    for key in options.only:
        if key in records and not options.again:
            continue
        command = [sys.executable, "-m", "benchmarks.nested.growth", "--one", key]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=60 * options.minutes, check=True
            )
        except subprocess.TimeoutExpired:
            print(f"{key}: over {options.minutes:g} minutes", flush=True)
            continue
        records[key] = json.loads(done.stdout.splitlines()[-1])
        print(key, records[key], flush=True)
        report.save(NAME, records, options.output)
    report.write(NAME, "Growth of nested sampling", body(records), options.output)


if __name__ == "__main__":
    main()
