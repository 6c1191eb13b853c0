"""``make bench-sgais``: the evidence of up to a million rows, its error, its time and its memory.

Every row of the tables is measured in a process of its own. Its first answer therefore includes
compilation, without a disk cache. ``--only`` takes names of rows or beginnings of names
(linear-1e6, mixture, stream, compare-softmax-smc); ``--merge`` keeps the results of earlier runs
and their references; ``--more`` keeps their seeds too, and runs only the missing seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import operator
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import weighbridge as wb
from benchmarks import report
from benchmarks.sgais import figures, references, tables
from benchmarks.sgais.problems import Problem
from benchmarks.sgais.rows import PROBLEMS, ROWS, SEEDS_OF_A_CURVE, Row, choose, smaller_rows
from weighbridge.data.values import num_rows
from weighbridge.models.exchangeable import log_num_labellings

NAME = "sgais"
CHUNK = 500
# The time of updates is averaged in two windows: around 10,000 rows, and at the end.
EARLY, WINDOW = 20, 20
# A row is ended after this many times its time limit, plus a minute.
PATIENCE = 1.2


def known(value: float) -> float | None:
    """A number for JSON, which has no NaN: None if it is not finite."""
    return float(value) if math.isfinite(value) else None


def describe(result: wb.Evidence, seconds: float) -> dict[str, Any]:
    """The record of a run."""
    found = result.diagnostics
    steps = len(result.trace.power) if "power" in result.trace else result.trace.annealing_steps
    return {
        "answer": result.log_evidence,
        "stated": known(result.claimed_error),
        "path": found.get("path_log_evidence", result.log_evidence),
        "path_stated": known(found.get("path_error", result.claimed_error)),
        "by": found.get("answer", "path"),
        "khat": known(found.get("bridge_khat", math.nan)),
        "noise_bias": known(found.get("noise_bias", math.nan)),
        "flags": [flag.name for flag in result.flags],
        "steps": float(np.sum(steps)),
        "seconds": seconds,
    }


def run_at_once(row: Row, model: wb.Model, data: Any, seed: int) -> dict[str, Any]:
    """All rows in one call."""
    began = time.perf_counter()
    result = wb.evidence(model, data, row.method, seed=seed, progress=False)
    return describe(result, time.perf_counter() - began)


def resident() -> float:
    """Memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def run_stream(row: Row, model: wb.Model, data: Any, seed: int) -> dict[str, Any]:
    """All rows through ``wb.Online``, a chunk at a time."""
    online = wb.Online(model, row.method, seed=seed)
    total = num_rows(data)
    marks = {total // 10, total // 2, total}
    seconds, memory = [], [(0, resident())]
    for start in range(0, total, CHUNK):
        stop = min(start + CHUNK, total)
        chunk = jax.tree_util.tree_map(operator.itemgetter(slice(start, stop)), data)
        seconds.append(online.update(chunk).elapsed)
        if any(start < mark <= stop for mark in marks):
            memory.append((stop, resident()))
    began = time.perf_counter()
    result = online.result()
    at_end = time.perf_counter() - began
    # In a trial with a stream that is too short for both windows, quarters are used.
    quarter = len(seconds) // 4
    width = max(min(WINDOW, quarter), 1)
    first = EARLY - width // 2 if quarter > EARLY else quarter
    return describe(result, sum(seconds) + at_end) | {
        "memory": memory,
        "early": float(np.mean(seconds[first : first + width])),
        "late": float(np.mean(seconds[-width:])),
        "early_median": float(np.median(seconds[first : first + width])),
        "late_median": float(np.median(seconds[-width:])),
        "result_seconds": at_end,
    }


def find_reference(row: Row, problem: Problem, data: Any) -> dict[str, Any]:
    """The reference log evidence, and that of Laplace; references by SMC are computed later."""
    found: dict[str, Any] = {}
    reference = None
    if row.reference == "exact":
        value = wb.zoo.linear.log_evidence(data)
        reference = references.Reference(value, 0.0, "exact")
    if row.has_mode and (row.kind == "answer" or row.reference == "importance"):
        posterior = references.Posterior(problem.model, data)
        mode = posterior.mode(problem.start)
        found["laplace"] = known(references.laplace(mode) + log_num_labellings(problem.model))
        if row.reference == "importance":
            reference = references.importance(posterior, mode)
        elif row.reference == "without scales":
            reference = references.without_scales(data)
            if found["laplace"] is not None:
                found["second"] = references.importance(posterior, mode)._asdict()
    return found | (reference._asdict() if reference is not None else {})


def earlier_reference(records: dict[str, Any], row: Row, rows: int) -> dict[str, Any] | None:
    """The reference of another row or an earlier run on the same data, if there is one."""
    for record in records.values():
        same = (record["problem"], record["rows"]) == (row.problem, rows)
        found = record.get("reference", {})
        complete = "laplace" in found or row.kind != "answer" or not row.has_mode
        if same and complete and "value" in found:
            return dict(found)
    return None


def ask_smc(
    row: Row, problem: Problem, record: dict[str, Any], options: argparse.Namespace, seconds: float
) -> None:
    """Run SMC on exact targets, as the reference or to check the reference on fewer rows."""
    found = record.setdefault("reference", {})
    if row.reference == "SMC" and "value" not in found:
        data = problem.simulate(record["rows"])
        for reference in references.smc(problem.model, data, options.smc_seeds, seconds):
            found |= reference._asdict()
            options.save(record)
    if row.check_rows and "check" not in found:
        rows = min(record["rows"], options.smc_rows or row.check_rows)
        data = problem.simulate(rows)
        own = found if rows == record["rows"] else find_reference(row, problem, data)
        for reference in references.smc(problem.model, data, options.smc_seeds, seconds):
            found["check"] = {
                "rows": rows,
                "difference": own["value"] - reference.value,
                "error": math.hypot(own["error"], reference.error),
                "how": reference.how,
            }
            options.save(record)


def measure(
    row: Row,
    options: argparse.Namespace,
    records: dict[str, Any],
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One row: the first seed, the reference, the other seeds, and last the runs of SMC.

    The runs and the reference of an earlier record on the same number of rows are kept.
    """
    startup = time.time() - options.began
    began = time.perf_counter()
    problem, rows = PROBLEMS[row.problem](), min(row.rows, options.rows or row.rows)
    data = problem.simulate(rows)
    if row.shuffled:
        order = np.random.default_rng(0).permutation(rows)
        data = jax.tree_util.tree_map(lambda leaf: leaf[order], data)
    needs_smc = options.smc_seeds > 0 and (row.reference == "SMC" or row.check_rows > 0)
    record: dict[str, Any] = {"problem": row.problem, "rows": rows, "startup": startup, "runs": []}
    if before is not None and before["rows"] == rows:
        record = {key: value for key, value in before.items() if key != "note"}
        record["runs"] = list(record["runs"])
    run = run_stream if row.kind == "stream" else run_at_once
    num_seeds = min(options.seeds, SEEDS_OF_A_CURVE) if row.kind == "compare" else options.seeds
    limit = options.time_limit / 2 if needs_smc else options.time_limit
    for seed in range(len(record["runs"]), num_seeds):
        spent = time.perf_counter() - began
        if seed and spent + record["runs"][-1]["seconds"] > limit:
            record["note"] = f"{seed} of {num_seeds} seeds within the time limit"
            break
        record["runs"].append(run(row, problem.model, data, seed))
        options.save(record)
        if seed == 0:
            if row.kind == "answer":
                record["pass"] = references.Posterior(problem.model, data).gradient_pass()
            earlier = None if options.new_references else earlier_reference(records, row, rows)
            record["reference"] = earlier or find_reference(row, problem, data)
            options.save(record)
    if needs_smc:
        remaining = options.time_limit - (time.perf_counter() - began)
        ask_smc(row, problem, record, options, remaining)
    return record


def work(name: str, options: argparse.Namespace) -> None:
    """Measure one row in this process, and save the record after every run."""
    records = report.load(NAME, options.output)
    earlier = dict(records)

    def save(record: dict[str, Any]) -> None:
        report.save(NAME, records | {name: record}, options.output)

    options.save = save
    save(measure(ROWS[name], options, earlier, earlier.get(name) if options.more else None))


def send(name: str, options: argparse.Namespace) -> str:
    """Have one row measured by a process of its own; what went wrong, if anything did."""
    command = [sys.executable, "-m", "benchmarks.sgais.headline", f"--work={name}"]
    command += [f"--{o}={getattr(options, o.replace('-', '_'))}" for o in PASSED_ON]
    command += ["--new-references"] * options.new_references + ["--more"] * options.more
    environment = os.environ | {"WEIGHBRIDGE_COMPILATION_CACHE": "0"}
    patience = PATIENCE * options.time_limit + 60
    try:
        ended = subprocess.run(
            [*command, f"--began={time.time()}"], env=environment, timeout=patience
        )
    except subprocess.TimeoutExpired:
        return f"ended after {patience:.0f} s"
    return f"failed with exit code {ended.returncode}" if ended.returncode else ""


def attempt(name: str, options: argparse.Namespace, hopeless: set[str]) -> None:
    """Measure one row, unless the same with fewer data rows already took too long."""
    row, records = ROWS[name], report.load(NAME, options.output)
    before = records.get(name)
    too_long = [other for other in smaller_rows(name) if other in hopeless]
    outcome = f"not tried: {too_long[0]} took too long" if too_long else send(name, options)
    if not outcome:
        return
    records = report.load(NAME, options.output)
    kept = options.more and before is not None
    if records.get(name) == before and not kept:  # this attempt left no record
        rows = min(row.rows, options.rows or row.rows)
        records[name] = {"problem": row.problem, "rows": rows, "runs": []}
        hopeless.add(name)
    records[name]["note"] = outcome
    report.save(NAME, records, options.output)


# Options that are passed on to the process of a row.
PASSED_ON = ("seeds", "rows", "time-limit", "smc-seeds", "smc-rows", "output")


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    found = argparse.ArgumentParser(
        prog="benchmarks.sgais.headline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="rows: " + ", ".join(ROWS),
    )
    add: Callable[..., Any] = found.add_argument
    add("--only", nargs="+", default=list(ROWS), metavar="ROW", help="rows, or how they begin")
    add("--seeds", type=int, default=8, help="runs of each row (of table 2 at most 2)")
    add("--rows", type=int, default=0, help="the most data rows, for a trial")
    add("--time-limit", type=float, default=3600.0, help="seconds for each row")
    add("--smc-seeds", type=int, default=20, help="runs of SMC as a reference; 0 for none")
    add("--smc-rows", type=int, default=0, help="data rows at which SMC checks a reference")
    add("--merge", action="store_true", help="keep earlier results, and their references")
    add("--more", action="store_true", help="with --merge: add seeds to those that are there")
    add("--new-references", action="store_true", help="find the references again")
    add("--tables", action="store_true", help="only write the tables of earlier results")
    add("--output", type=Path, default=report.RESULTS, help="folder of the results")
    add("--work", help=argparse.SUPPRESS)
    add("--began", type=float, default=time.time(), help=argparse.SUPPRESS)
    return found


def main(arguments: list[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    if options.work:
        work(options.work, options)
        return
    chosen = [] if options.tables else choose(options.only)
    if not (options.merge or options.tables):
        report.save(NAME, {}, options.output)
    hopeless: set[str] = set()
    for name in chosen:
        attempt(name, options, hopeless)
        # Write the tables so far, without printing them.
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            write(options.output)
        print(
            name, tables.in_short(ROWS[name], report.load(NAME, options.output)[name]), flush=True
        )
    write(options.output)


def write(folder: Path) -> None:
    """Write tables and figures of all measurements."""
    records = report.load(NAME, folder)
    figures.draw(records, folder)
    report.write(NAME, "SGAIS to a fraction of a nat", tables.body(records), folder)


if __name__ == "__main__":
    main()
