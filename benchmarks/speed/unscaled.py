"""The cost of unscaled columns: linear regression, features of scales 1 to 1,000 or standardised.

``python -m benchmarks.speed.unscaled`` measures 3,000 rows of 20 features and writes
results/unscaled.md; ``--rows 200000`` adds as many as a user met. Each measurement is a process of
its own that has nothing compiled; what tells is the ratio within a run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import numpyro.distributions as dist

from benchmarks import report

FEATURES = 20
ROWS = 3_000
WIDE = 1_000.0
# Prior width of all coefficients; a new user would choose the same for all.
PRIOR = 10.0
FORMS = ("scaled", "unscaled")
COLUMNS = ("seconds", "steps", "error", "off")


def problem(num_rows: int, form: str) -> dict[str, np.ndarray]:
    """Rows whose features have scales from 1 to 1,000, or the same ones standardised."""
    generator = np.random.default_rng(0)
    unit = generator.normal(size=(num_rows, FEATURES))
    weights = generator.normal(size=FEATURES)
    y = unit @ weights + generator.normal(size=num_rows)
    scales = np.geomspace(1.0, WIDE, FEATURES)
    return {"x": unit * scales if form == "unscaled" else unit, "y": y}


def exact(data: dict[str, np.ndarray]) -> float:
    """The log evidence: the Gaussian of y with covariance 1 + PRIOR^2 X X', X with the constant."""
    x = np.column_stack([data["x"], np.ones(len(data["x"]))])
    precision = x.T @ x + np.eye(x.shape[1]) / PRIOR**2
    root = np.linalg.cholesky(precision)
    half = np.linalg.solve(root, x.T @ data["y"])
    log_det = 2 * np.log(np.diag(root)).sum() + 2 * x.shape[1] * np.log(PRIOR)
    square = data["y"] @ data["y"] - half @ half
    return float(-0.5 * (len(x) * np.log(2 * np.pi) + log_det + square))


def log_likelihood(p: Any, row: Any) -> Any:
    return dist.Normal(row["x"] @ p["w"] + p["b"], 1.0).log_prob(row["y"])


def weigh(num_rows: int, form: str) -> dict[str, Any]:
    """One run of the default method, compilation included."""
    import weighbridge as wb

    data = problem(num_rows, form)
    prior = {"w": dist.Normal(0, PRIOR).expand([FEATURES]).to_event(1), "b": dist.Normal(0, PRIOR)}
    began = time.perf_counter()
    result = wb.evidence(wb.Model(prior, log_likelihood), data, seed=0, progress=False)
    return {
        "seconds": time.perf_counter() - began,
        "steps": float(result.trace["annealing_steps"].sum()),
        "error": result.std_error,
        "off": result.log_evidence - exact(data),
        "status": ", ".join(flag.label for flag in result.flags) or "ok",
        "remark": bool(result.diagnostics["scale_remark"]),
    }


def in_a_process(num_rows: int, form: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.unscaled",
        "--one",
        form,
        "--rows",
        str(num_rows),
    ]
    environment = os.environ | {"WEIGHBRIDGE_COMPILATION_CACHE": "0"}
    found = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(found.stdout.splitlines()[-1]))


def measured(num_rows: int, repeats: int) -> tuple[list[list[str]], float]:
    """Two lines of the table, and the ratio of times, unscaled to scaled."""
    tries: dict[str, list[dict[str, Any]]] = {form: [] for form in FORMS}
    for _ in range(repeats):  # in turns, so that other work on the machine slows both
        for form in FORMS:
            tries[form].append(in_a_process(num_rows, form))
            print(num_rows, form, tries[form][-1], flush=True)
    lines = []
    for form, found in tries.items():
        seconds, steps, error, off = (statistics.median(t[c] for t in found) for c in COLUMNS)
        remark = "yes" if found[0]["remark"] else "no"
        numbers = [f"{seconds:.1f}", f"{steps:.0f}", f"{off:+.1e}", f"{error:.1e}"]
        lines.append([f"{num_rows:,}", form, *numbers, found[0]["status"], remark])
    pairs = zip(*(tries[form] for form in reversed(FORMS)))
    return lines, statistics.median(slow["seconds"] / fast["seconds"] for slow, fast in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=FORMS, help="one measurement, as JSON")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(weigh(chosen.rows, chosen.one)))
        return
    before, table, told = os.getloadavg()[0], [], []
    for num_rows in dict.fromkeys((ROWS, chosen.rows)):
        repeats = chosen.repeats if num_rows <= ROWS else 1
        lines, ratio = measured(num_rows, repeats)
        table += lines
        told.append(f"{num_rows:,} rows: unscaled take {ratio:.2f} times as long ({repeats} pairs)")
    header = ("rows", "columns", "s", "annealing steps", "off by", "stated", "status", "remark")
    body = report.table(header, table) + "\n\n" + "; ".join(told) + ".\n\n"
    body += (
        f"`wb.evidence` by default (SGAIS), {FEATURES} features of scales 1 to {WIDE:,.0f}, prior "
        f"N(0, {PRIOR:g}) of every coefficient, compilation included. Load of the machine "
        f"{before:.1f} before, {os.getloadavg()[0]:.1f} after."
    )
    report.write("unscaled", "Unscaled columns", body)


if __name__ == "__main__":
    main()
