"""``python -m benchmarks.nested.peers``: seconds to a stated error of 0.1 nats, beside other tools.

Every nested sampler runs with its recommended settings, alone on one core. If the error that it
states is larger than 0.1 nats, it runs again with as many more live points as 1/error^2 asks for. A
run that would be longer than the limit is extrapolated by the same rule, and marked. Results are
saved after every pair of problem and tool, and the command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import problems, report
from benchmarks.peers.measure import (
    Limits,
    OverrunError,
    ToolError,
    events,
    versions,
    warm_up,
)
from benchmarks.peers.targets import numpy_target
from benchmarks.peers.tools import TOOLS

NAME = "nested_peers"
PROBLEMS = ("shells-2", "shells-10", "eggbox", "linear-1000", "funnel", "mixture", "softmax")
OURS = ("ours_nested", "ours_nested_rounds")
NESTED = (*OURS, "dynesty", "ultranest", "nautilus", "jaxns", "blackjax_nested")
ERROR = 0.1
# A stated error may be larger than 0.1 by this share, because it differs from seed to seed.
SLACK = 0.05
# Some stated errors do not fall as 1/sqrt(live points): live points are raised so often at most.
ATTEMPTS = 3
# If the recommended settings exceed the limit, fewer live points are tried.
SMALLER = (0.25, 0.0625)
# From this dimension on a tool makes Markov steps; below, it draws from regions.
STEPS_FROM = {"jaxns": 0, "blackjax_nested": 0, "dynesty": 10, "ultranest": 20}
HEADER = (
    "problem (log evidence)",
    "tool",
    "seeds",
    "live points, relative",
    "stated error",
    "mean error",
    "worst |z|",
    "flagged",
    "cold s",
    "cached s",
    "warm s",
    "s to 0.1 nats",
    "calls to 0.1 nats",
)
GOALS = (
    "problem",
    "s to 0.1 nats",
    "fastest peer",
    "times faster",
    "calls",
    "fewest calls of a step sampler",
    "cold s (goal 5)",
)


def columns(name: str) -> dict[str, np.ndarray]:
    """The data of a problem as the columns of a file."""
    data = problems.CATALOGUE[name].build().data
    if data is None:
        return {}
    return data if isinstance(data, dict) else {"y": np.asarray(data).reshape(-1)}


def run_tool(
    name: str, problem: str, file: Path, seeds: int, limits: Limits, effort: float
) -> dict[str, Any]:
    """All seeds of a tool with an effort, in a process of its own."""
    record: dict[str, Any] = {"effort": effort, "runs": [], "over": None, "failure": None}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        try:
            with closing(events(name, problem, file, seeds, cache, limits, effort)) as stream:
                record["runs"] += [event for _, event in stream if "seed" in event]
            if TOOLS[name].keeps_compiled and record["runs"]:
                with closing(events(name, problem, file, 1, cache, limits, effort)) as stream:
                    again = [event for _, event in stream if "seed" in event]
                    record["cached"] = again[0]["cpu_seconds"]
        except OverrunError:
            record["over"] = limits.run
        except ToolError as failure:
            record["failure"] = str(failure)
    return record


def stated(record: dict[str, Any]) -> float:
    """The median stated error."""
    return float(np.median([run["std_error"] or math.nan for run in record["runs"]]))


def warm(record: dict[str, Any]) -> float:
    """Median CPU seconds of the later runs; those of the first one if it is alone."""
    runs = record["runs"][1:] or record["runs"]
    return float(np.median([run["cpu_seconds"] for run in runs]))


def measure(name: str, problem: str, file: Path, seeds: int, limits: Limits) -> dict[str, Any]:
    """A tool with as many live points as it needs for its stated error, or for the limit."""
    found = run_tool(name, problem, file, seeds, limits, 1.0)
    for effort in SMALLER:
        if found["runs"] or found["failure"]:
            break
        found = run_tool(name, problem, file, seeds, limits, effort)
    for _ in range(ATTEMPTS):
        if not found["runs"] or not stated(found) > ERROR * (1 + SLACK):
            break
        more = (stated(found) / ERROR) ** 2
        if warm(found) * more > limits.run:
            break  # extrapolated in the table
        larger = run_tool(name, problem, file, seeds, limits, round(found["effort"] * more, 3))
        if not larger["runs"]:
            break
        found = larger
    return found


def factor(record: dict[str, Any]) -> float:
    """By how much time and calls must grow until the stated error is 0.1: as 1/error^2."""
    ratio = stated(record) / ERROR
    return ratio**2 if ratio > 1 + SLACK else 1.0


def seconds(record: dict[str, Any]) -> float:
    return warm(record) * factor(record)


def calls(record: dict[str, Any]) -> float:
    counted = [run["calls"] for run in record["runs"] if run.get("calls") is not None]
    return float(np.median(counted)) * factor(record) if counted else math.nan


def row(record: dict[str, Any], exact: float) -> list[str]:
    """The cells of a tool on a problem."""
    runs = record["runs"]
    if not runs:
        why = f"over {record['over']:.0f} s" if record["over"] else str(record["failure"])
        return ["0", "", "", "", "", "", why, "", "", "", ""]
    errors = np.array([run["log_evidence"] for run in runs]) - exact
    errors_stated = np.array([run["std_error"] or math.nan for run in runs])
    flags = [run["flags"] for run in runs if run["flags"] is not None]
    mark = " *" if factor(record) > 1 else ""
    ended = ", then over the limit" if record["over"] else ""
    ended += f", then {record['failure']}" if record["failure"] else ""
    return [
        f"{len(runs)}{ended}",
        f"{record['effort']:.2f}",
        f"{stated(record):.3f}",
        f"{errors.mean():+.3f}",
        f"{np.max(np.abs(errors / errors_stated)):.1f}",
        f"{sum(map(bool, flags))} of {len(flags)}" if flags else "",
        f"{runs[0]['cpu_seconds']:.1f}",
        f"{record['cached']:.1f}" if "cached" in record else "",
        f"{warm(record):.2f}",
        f"{seconds(record):.2f}{mark}",
        f"{calls(record):,.0f}{mark}" if math.isfinite(calls(record)) else "",
    ]


def goals(problem: str, found: dict[str, dict[str, Any]]) -> tuple[list[str], float]:
    """Our best row beside the fastest peer; and how many times faster it is."""
    done = {name: record for name, record in found.items() if record["runs"]}
    ours = [name for name in OURS if name in done]
    peers = [name for name in done if name not in OURS]
    title = problems.CATALOGUE[problem].title
    if not ours or not peers:
        return [title, "", "", "", "", "", ""], math.nan
    best = done[min(ours, key=lambda name: seconds(done[name]))]
    fastest = min(peers, key=lambda name: seconds(done[name]))
    dimension = numpy_target(problem, {}).dimension
    steppers = [name for name in peers if dimension >= STEPS_FROM.get(name, math.inf)]
    fewest = min(steppers, key=lambda name: calls(done[name]), default=None)
    ratio = seconds(done[fastest]) / seconds(best)
    few = "" if fewest is None else f"{calls(done[fewest]):,.0f} ({TOOLS[fewest].title})"
    cells = [
        title,
        f"{seconds(best):.2f}",
        f"{seconds(done[fastest]):.2f} ({TOOLS[fastest].title})",
        f"{ratio:.2f}",
        f"{calls(best):,.0f}",
        few,
        f"{best['runs'][0]['cpu_seconds']:.1f}",
    ]
    return cells, ratio


def body(records: dict[str, Any]) -> str:
    """The table, the goals, and how to read them."""
    rows, aims, ratios = [], [], []
    for problem in PROBLEMS:
        entry = problems.CATALOGUE[problem]
        exact = entry.build().log_evidence
        found = {n: records[f"{problem}/{n}"] for n in NESTED if f"{problem}/{n}" in records}
        for place, (name, record) in enumerate(found.items()):
            first = f"{entry.title} ({exact:.4f})" if place == 0 else ""
            rows.append([first, TOOLS[name].title, *row(record, exact)])
        if found:
            cells, ratio = goals(problem, found)
            aims.append(cells)
            ratios.append(ratio)
    known = [ratio for ratio in ratios if math.isfinite(ratio)]
    packages = {}
    for key, record in records.items():
        packages[key.split("/")[1]] = " with ".join(f"{n} {v}" for n, v in record["made"].items())
    parts = [report.table(HEADER, rows), NOTES, "; ".join(packages.values()) + "."]
    if known:
        middle = float(np.median(known))
        parts += [
            "## Goals",
            report.table(GOALS, aims),
            f"In the median {middle:.2f} times as fast as the fastest peer (goal: 3); faster on "
            f"{sum(ratio > 1 for ratio in known)} of {len(known)} (goal: all).",
        ]
    return "\n\n".join(parts)


NOTES = (
    "Seconds are CPU seconds of one process on one core; cold is from its start to its first "
    "answer, imports and compilation included; cached is the same again, for tools that keep "
    "compiled programs on disk. Warm is a later run with another seed (median). Live points are "
    "relative to the recommended settings. *: extrapolated as 1/error^2 from the stated error "
    "beside it, because the whole run would exceed the limit, or because its error was still "
    "larger. A tool whose recommended settings state a smaller error than 0.1 is not made smaller. "
    "nautilus states 1/sqrt(effective samples). The goals compare the faster of our two rows."
)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.nested.peers", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=PROBLEMS, metavar="PROBLEM")
    parser.add_argument("--tools", nargs="+", choices=NESTED, default=NESTED, metavar="TOOL")
    parser.add_argument("--seeds", type=int, default=3, help="runs of a tool on a problem")
    parser.add_argument("--limit", type=float, default=20.0, help="minutes for one run")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--again", action="store_true", help="also what was measured before")
    parser.add_argument("--report", action="store_true", help="only write the tables anew")
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    limits = Limits(60 * options.limit, math.inf, options.core)
    records = report.load(NAME, options.output)
    missing = {} if options.report else {name: warm_up(name, limits) for name in options.tools}
    for name, reason in missing.items():
        if reason:
            print(f"{name} is left out: {reason}")
    usable = [name for name, reason in missing.items() if reason is None]
    with tempfile.TemporaryDirectory() as folder:
        for problem in options.only:
            file = Path(folder) / f"{problem}.npz"
            np.savez(file, **columns(problem))
            for name in usable:
                key = f"{problem}/{name}"
                if key in records and not options.again:
                    continue
                load = os.getloadavg()[0]
                record = measure(name, problem, file, options.seeds, limits)
                record["date"] = datetime.date.today().isoformat()
                record["load"], record["made"] = load, versions(name)
                records[key] = record
                report.save(NAME, records, options.output)
                exact = problems.CATALOGUE[problem].build().log_evidence
                print(key, *row(record, exact), sep=" | ", flush=True)
    report.write(
        NAME, "Time to 0.1 nats, beside other nested samplers", body(records), options.output
    )


if __name__ == "__main__":
    main()
