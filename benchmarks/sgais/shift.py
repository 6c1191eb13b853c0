"""The distribution-shift study: 100,000 rows of a shifting mixture, in order and shuffled.

The evidence of all rows does not depend on their order, so a difference between orders is an error.
By default SGAIS takes rows in such an order at random. Here it must take them in their order, and
once more by default ("in order, default").
The first 1,000 rows have three clusters, the next 9,000 five, the rest seven (Cameron, Eggers &
Kroon 2019, Entropy 21:1109). ``python -m benchmarks.sgais.shift`` measures what results/
shift.json does not have yet, one run at a time, and writes results/shift.md; ``--only 3 5`` takes
models by their number of components.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

import weighbridge as wb
from benchmarks import report

NAME = "shift"
NUM_ROWS = 100_000
COMPONENTS = (3, 5, 7)
ORDERS = ("in order", "shuffled", "in order, default")
# The largest stated error that is allowed, in nats, by the number of components.
GOALS = {3: 1.0, 5: 1.0, 7: 3.0}
# Orders agree if their difference is at most this many of its stated errors.
AGREE = 3.0


def rows_in(order: str, num_rows: int) -> np.ndarray:
    """The stream in its order, or in one fixed random order."""
    stream = wb.zoo.mixture.simulate_shift(num_rows)
    return np.random.default_rng(0).permutation(stream) if order == "shuffled" else stream


def measure(num_components: int, order: str, seed: int, num_rows: int) -> dict[str, Any]:
    """One run of the default method, with the given order of the rows."""
    model = wb.zoo.mixture.model(num_components)
    method = wb.SGAIS(shuffle=None if order == "in order, default" else False)
    began = time.perf_counter()
    result = wb.evidence(model, rows_in(order, num_rows), method, seed=seed, progress=False)
    found = result.diagnostics
    return {
        "components": num_components,
        "order": order,
        "seed": seed,
        "rows": num_rows,
        "answer": result.log_evidence,
        "stated": result.claimed_error,
        "path": found["path_log_evidence"],
        "path_stated": found["path_error"],
        "by": found["answer"],
        "flags": [flag.name for flag in result.flags],
        "seconds": time.perf_counter() - began,
    }


def pooled(runs: list[dict[str, Any]]) -> tuple[float, float]:
    """The mean answer of some runs, and its error: the stated one, or the spread if larger."""
    answers = np.array([run["answer"] for run in runs])
    stated = math.sqrt(sum(run["stated"] ** 2 for run in runs)) / len(runs)
    spread = float(np.std(answers, ddof=1)) / math.sqrt(len(runs)) if len(runs) > 1 else 0.0
    return float(answers.mean()), max(stated, spread)


def agreement(
    some: list[dict[str, Any]], others: list[dict[str, Any]], count: int
) -> tuple[str, ...]:
    """The difference between runs in two orders, and whether it may be chance."""
    if not (some and others):
        return ("not measured", "", "", "")
    (first, its), (second, other) = pooled(some), pooled(others)
    apart, error = first - second, math.hypot(its, other)
    stated = max(run["stated"] for run in (*some, *others))
    verdict = "met" if stated <= GOALS[count] else "MISSED"
    return (
        f"{apart:+.3f}",
        f"{error:.3f}",
        "yes" if abs(apart) <= AGREE * error else "NO",
        f"{stated:.3f} (goal {GOALS[count]:g}, {verdict})",
    )


def write(records: dict[str, Any], folder: Path) -> None:
    """One row for each run, and whether the orders agree."""
    runs = sorted(
        records.values(), key=lambda r: (r["components"], ORDERS.index(r["order"]), r["seed"])
    )
    header = (
        "components",
        "order",
        "seed",
        "answer",
        "stated",
        "by",
        "path",
        "stated",
        "flags",
        "s",
    )
    rows = [
        (
            str(run["components"]),
            run["order"],
            str(run["seed"]),
            f"{run['answer']:,.2f}",
            f"{run['stated']:.3f}",
            run["by"],
            f"{run['path']:,.2f}",
            f"{run['path_stated']:.3f}",
            ", ".join(run["flags"]),
            f"{run['seconds']:.0f}",
        )
        for run in runs
    ]
    judged = []
    for count in COMPONENTS:
        found = {
            order: [run for run in runs if (run["components"], run["order"]) == (count, order)]
            for order in ORDERS
        }
        judged += [
            (str(count), f"{order} - shuffled", *agreement(found[order], found["shuffled"], count))
            for order in ORDERS
            if order != "shuffled"
        ]
    summary = ("components", "orders", "apart", "stated error", "agree", "largest stated")
    body = (
        f"{runs[0]['rows']:,} rows with changes after 1,000 and 10,000: three, five, seven "
        "clusters. `wb.SGAIS(shuffle=False)`, and by default `wb.SGAIS()`, which takes such rows "
        "in random order; errors in nats; the first run of a process compiles. Orders agree when "
        "their difference is within "
        f"{AGREE:g} of its stated errors.\n\n{report.table(summary, judged)}\n\n"
        f"{report.table(header, rows)}"
    )
    report.write(NAME, "A shifting distribution, in order and shuffled", body, folder)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", type=int, choices=COMPONENTS, default=list(COMPONENTS))
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=NUM_ROWS)
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args(arguments)
    records = report.load(NAME, options.output)
    for seed in range(options.seeds):
        for count in options.only:
            for order in options.orders:
                key = f"{count} {order} {seed} {options.rows}"
                if key not in records:
                    records[key] = measure(count, order, seed, options.rows)
                    report.save(NAME, records, options.output)
                write(records, options.output)


if __name__ == "__main__":
    main()
