"""Runs of nested sampling on a list of problems, kept one by one in a file of results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import weighbridge as wb
from benchmarks import report
from benchmarks.nested.problems import build

# What is kept of one run.
Record = dict[str, Any]
# A problem has at least so many runs before its time is up.
LEAST_RUNS = 4


def run_once(problem_name: str, method: wb.NestedSampling, seed: int) -> Record:
    """One run: its error in nats, the stated one, its flags and its costs."""
    problem = build(problem_name)
    began = time.process_time()
    result = wb.evidence(problem.model, problem.data, method, seed=seed, progress=False)
    found = result.diagnostics
    return {
        "seed": seed,
        "error": result.log_evidence - problem.log_evidence,
        "stated": result.claimed_error,
        "flags": [flag.name for flag in result.flags],
        "insertion": found["insertion_p_value"],
        "rolling": found["rolling_p_value"],
        "spread": found["spread_p_value"],
        "information": found["information"],
        "remembered": found["remembered"],
        "calls": found["num_evaluations"],
        "moves": found["moves_per_walk"],
        "seconds": time.process_time() - began,
    }


def merge_files(name: str, others: Iterable[Path], folder: Path) -> dict[str, list[Record]]:
    """The runs of a results file and of others like it; of two runs with one seed the first stays.

    Args:
        name: of the file, without its ending.
        others: folders with files of the same name.
        folder: where the file is.
    """
    merged = report.load(name, folder)
    for other in others:
        for key, runs in report.load(name, other).items():
            known = {run["seed"] for run in merged.get(key, [])}
            fresh = [run for run in runs if run["seed"] not in known]
            merged[key] = sorted([*merged.get(key, []), *fresh], key=lambda run: run["seed"])
    return merged


def in_turn(
    keys: Iterable[str],
    known: dict[str, list[Record]],
    *,
    num_seeds: int,
    minutes: float,
    share: float,
    run: Callable[[str, int], Record],
) -> Iterator[tuple[str, Record]]:
    """Run the problems in turn, seed by seed, until all have enough runs or the time is up.

    Args:
        keys: of the problems.
        known: runs so far, by key; new runs are added.
        num_seeds: most runs of a problem.
        minutes: CPU time of all runs together; no run begins after it.
        share: CPU minutes of one problem, after which it gets no further run beyond its first few.
        run: makes one run from a key and a seed.
    """
    keys, began = list(keys), time.process_time()
    for seed in range(1, num_seeds + 1):
        for key in keys:
            runs = known.setdefault(key, [])
            spent = sum(run["seconds"] for run in runs) / 60
            enough = spent > share and len(runs) >= LEAST_RUNS
            if enough or any(run["seed"] == seed for run in runs):
                continue
            if time.process_time() - began > 60 * minutes:
                return
            runs.append(run(key, seed))
            yield key, runs[-1]


def column(runs: list[Record], name: str) -> np.ndarray:
    """One entry of all runs; a missing number is NaN."""
    return np.array([np.nan if run[name] is None else run[name] for run in runs], float)
