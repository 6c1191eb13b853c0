"""``make bench-peers``: weighbridge and its peers on problems with a known evidence.

Each tool runs on each problem in its own processes, on one core, one after the other. Results are
saved after every pair of problem and tool: an interrupted run continues with ``--merge``.
"""

from __future__ import annotations

import argparse
import datetime
import os
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import problems, report
from benchmarks.peers.measure import Limits, measure, versions, warm_up
from benchmarks.peers.table import body
from benchmarks.peers.targets import NAMES
from benchmarks.peers.tools import TOOLS

TITLE = "Accuracy per second, beside other tools"


def columns(name: str) -> dict[str, np.ndarray]:
    """The data of a problem as the columns of a file."""
    data = problems.CATALOGUE[name].build().data
    if data is None:
        return {}
    return data if isinstance(data, dict) else {"y": np.asarray(data).reshape(-1)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="PROBLEM")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), metavar="TOOL")
    parser.add_argument("--seeds", type=int, default=8, help="runs of weighbridge on a problem")
    parser.add_argument("--peer-seeds", type=int, default=3, help="runs of each other tool")
    parser.add_argument("--limit", type=float, default=130.0, help="seconds for one run")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for all seeds of one")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--merge", action="store_true", help="keep earlier results, do the rest")
    parser.add_argument("--again", action="store_true", help="with --merge: also what is there")
    parser.add_argument("--report", action="store_true", help="only write the table anew")
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    return parser.parse_args()


def main() -> None:
    options = parse()
    limits = Limits(options.limit, options.budget, options.core)
    records = report.load("peers", options.output) if options.merge or options.report else {}
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
                seeds = options.seeds if TOOLS[name].ours else options.peer_seeds
                load = os.getloadavg()[0]
                record = measure(name, problem, file, seeds, limits)
                record["date"] = datetime.date.today().isoformat()
                record["machine"] = report.processor()
                record["load"] = load
                record["versions"] = versions(name)
                records[key] = record
                report.save("peers", records, options.output)
                print(key, {k: record.get(k) for k in ("cold", "cached", "over", "failure")})
    report.write("peers", TITLE, body(records), options.output)


if __name__ == "__main__":
    main()
