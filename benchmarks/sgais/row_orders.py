"""The cost of the order of rows: rows sorted by a label, and a stream in which a mode takes over.

``python -m benchmarks.sgais.row_orders`` measures both in some ten minutes and writes
results/row_orders.md. Seconds are warm; the ratio within the run is what tells.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist

import weighbridge as wb
from benchmarks import report
from benchmarks.sgais.shift import rows_in

NAME = "row_orders"
SORTED_ROWS = 50_000
CHUNK = 500


def logistic(p: Any, row: Any) -> Any:
    return dist.Bernoulli(logits=row["x"] @ p["w"] + p["b"]).log_prob(row["y"])


def sorted_by_label(num_rows: int) -> tuple[wb.Model, dict[str, np.ndarray]]:
    """Logistic regression with five features and rows sorted by the label."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(num_rows, 5))
    chance = 1 / (1 + np.exp(0.5 - x @ np.array([1.0, -1.0, 0.5, 0.0, 2.0])))
    y = (generator.uniform(size=num_rows) < chance).astype(float)
    order = np.argsort(y, kind="stable")
    prior = {"w": dist.Normal(0, 2).expand([5]).to_event(1), "b": dist.Normal(0, 2)}
    return wb.Model(prior, logistic), {"x": x[order], "y": y[order]}


def at_once(num_rows: int, num_seeds: int) -> list[tuple[str, ...]]:
    """One row for each order and seed; orders in turns, after a first run that compiles."""
    model, data = sorted_by_label(num_rows)
    orders = {"as given": wb.SGAIS(shuffle=False), "by default": wb.SGAIS()}
    wb.evidence(model, data, wb.SGAIS(shuffle=True), seed=99, progress=False)
    found = []
    for seed in range(num_seeds):
        for name, method in orders.items():
            began = time.perf_counter()
            result = wb.evidence(model, data, method, seed=seed, progress=False)
            seconds = time.perf_counter() - began
            told = result.diagnostics
            found.append(
                (
                    name,
                    str(seed),
                    f"{result.log_evidence:,.3f}",
                    f"{result.std_error:.4f}",
                    f"{told['path_log_evidence']:,.2f}",
                    f"{told['path_error']:.2f}",
                    str(int(np.sum(result.trace.annealing_steps))),
                    ", ".join(flag.name for flag in result.flags),
                    f"{seconds:.1f}",
                )
            )
            print(*found[-1], flush=True)
    return found


def streamed(num_rows: int, seed: int) -> list[tuple[str, ...]]:
    """Updates of a mixture of seven components, beside the results at the same rows."""
    rows = rows_in("shuffled", 100_000)[:num_rows]
    online = wb.Online(wb.zoo.mixture.model(7), wb.SGAIS(), seed=seed)
    marks = {num_rows * k // 8 // CHUNK * CHUNK for k in range(1, 9)}
    found = []
    for start in range(0, num_rows, CHUNK):
        update = online.update(rows[start : start + CHUNK])
        if update.num_observations in marks:
            result = online.result()
            repaired = result.diagnostics["path_repaired"]
            found.append(
                (
                    f"{update.num_observations:,}",
                    f"{update.log_evidence:,.2f}",
                    f"{update.std_error:.2f}",
                    f"{repaired:.2f}",
                    f"{result.log_evidence:,.2f}",
                    f"{result.std_error:.3f}",
                    result.diagnostics["answer"],
                    ", ".join(flag.name for flag in update.flags),
                )
            )
            print(*found[-1], flush=True)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=SORTED_ROWS)
    parser.add_argument("--stream-rows", type=int, default=16_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args(arguments)
    sorted_rows = at_once(options.rows, options.seeds)
    stream = streamed(options.stream_rows, seed=0)
    header = ("order", "seed", "answer", "stated", "path", "stated", "steps", "flags", "warm s")
    of_stream = (
        "rows",
        "update",
        "stated",
        "of it put right",
        "result",
        "stated",
        "by",
        "flags of the update",
    )
    body = (
        f"Logistic regression with {options.rows:,} rows sorted by their label, all at once. As "
        "given is `wb.SGAIS(shuffle=False)`; by default such rows are taken in random order.\n\n"
        f"{report.table(header, sorted_rows)}\n\n"
        f"A mixture of seven on {options.stream_rows:,} rows of seven clusters (those of the shift "
        f"study, shuffled), a stream in chunks of {CHUNK}: what an update tells by its path, and "
        "what the result, by its bridge where that holds. Where a mode takes over in which no "
        "particle was, the path loses what it gains; when rows have doubled a bridge is asked, and "
        "what it finds is put right. Without that updates would be low by as much from then on.\n\n"
        f"{report.table(of_stream, stream)}"
    )
    report.write(NAME, "What the order of rows costs", body, options.output)


if __name__ == "__main__":
    main()
