"""Two models on one stream, against exact Bayes factors.

``python -m benchmarks.online.bayes_factors`` writes results/online_factors.md.

Conjugate linear models, one with all features and one with fewer, are weighed chunk by chunk with
``wb.OnlineComparison``. After every chunk the log Bayes factor is compared with the exact one, in
units of its stated error. In every other stream the features that the smaller model lacks do not
matter.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import numpy as np
import numpyro.distributions as dist

import weighbridge as wb
from benchmarks import report

ALL, FEWER = 5, 3
CHUNK = 500
BEYOND = 3.0
HEADER = (
    "rows",
    "streams",
    "mean z",
    "sd of z",
    "largest z, either way",
    f"within {BEYOND:g}",
    "rms error (nats)",
    "rms stated",
)


def _log_likelihood(parameters: Any, row: Any, *, num_features: int) -> Any:
    line = row["x"][:num_features] @ parameters["w"] + parameters["b"]
    return dist.Normal(line, 1.0).log_prob(row["y"])


def build(num_features: int) -> wb.Model:
    """The linear model that uses the first features only."""
    prior = {
        "w": dist.Normal(0.0, 1.0).expand([num_features]).to_event(1),
        "b": dist.Normal(0.0, 1.0),
    }
    return wb.Model(prior, functools.partial(_log_likelihood, num_features=num_features))


MODELS = {"all": build(ALL), "fewer": build(FEWER)}


def simulate(seed: int, num_rows: int) -> dict[str, np.ndarray]:
    """A stream; for every other seed the last features have no effect."""
    matter = ALL if seed % 2 == 0 else FEWER
    data = wb.zoo.linear.simulate(num_rows, num_features=matter, seed=seed)
    more = np.random.default_rng([seed, 1]).standard_normal((num_rows, ALL - matter))
    return {"x": np.hstack([data["x"], more]), "y": data["y"]}


def exact_path(data: dict[str, np.ndarray], rows: list[int]) -> np.ndarray:
    """The exact log Bayes factor of all features against fewer, after so many rows."""
    fewer = {"x": data["x"][:, :FEWER], "y": data["y"]}
    path = wb.zoo.linear.log_evidence_path
    return np.asarray(path(data, rows) - path(fewer, rows))


def measure(seed: int, num_chunks: int, method: Any) -> dict[str, Any]:
    """One stream: errors and stated errors of the log Bayes factor, in nats."""
    data = simulate(seed, num_chunks * CHUNK)
    rows = [CHUNK * (k + 1) for k in range(num_chunks)]
    exact = exact_path(data, rows)
    began = time.perf_counter()
    online = wb.OnlineComparison(MODELS, method, seed=seed)
    error, stated = [], []
    for stop, truth in zip(rows, exact):
        update = online.update({name: c[stop - CHUNK : stop] for name, c in data.items()})
        factor = update.log_evidences["all"] - update.log_evidences["fewer"]
        error.append(factor - float(truth))
        stated.append(math.hypot(*update.std_errors.values()))
    seconds = time.perf_counter() - began
    result = online.result()
    final = result.log_evidences["all"] - result.log_evidences["fewer"]
    flags = {flag.name for update_flags in online.flags.values() for flag in update_flags}
    return {
        "rows": rows,
        "exact": exact.tolist(),
        "error": error,
        "stated": stated,
        "bridge_error": final - float(exact[-1]),
        "bridge_stated": math.hypot(*result.std_errors.values()),
        "flags": sorted(flags),
        "seconds": seconds,
    }


def line(label: str, error: np.ndarray, stated: np.ndarray) -> list[str]:
    """One row of the table."""
    z = error / stated
    return [
        label,
        str(len(z) if z.ndim == 1 else z.shape[0]),
        f"{z.mean():+.2f}",
        f"{z.std():.2f}",
        f"{np.abs(z).max():.2f}",
        f"{100 * np.mean(np.abs(z) < BEYOND):.1f} %",
        f"{np.sqrt(np.mean(error**2)):.3g}",
        f"{np.sqrt(np.mean(stated**2)):.3g}",
    ]


def describe(runs: dict[str, Any]) -> str:
    """The measurements, in words and a table."""
    error = np.array([run["error"] for run in runs.values()])
    stated = np.array([run["stated"] for run in runs.values()])
    rows = next(iter(runs.values()))["rows"]
    z = np.abs(error / stated)
    chosen = sorted({0, 1, 3, len(rows) // 2 - 1, len(rows) - 1})
    table = [line(f"{rows[k]:,}", error[:, k], stated[:, k]) for k in chosen if k >= 0]
    table.append(line("all chunks", error, stated))
    bridge = np.array([[run["bridge_error"], run["bridge_stated"]] for run in runs.values()])
    table.append(line("at the end, by the bridge", bridge[:, 0], bridge[:, 1]))
    beyond = [name for name, one in zip(runs, z) if np.any(one >= BEYOND)]
    flags = sorted({flag for run in runs.values() for flag in run["flags"]})
    seconds = float(np.median([run["seconds"] for run in runs.values()]))  # the first compiles
    total = sum(len(run["rows"]) for run in runs.values())
    return "\n\n".join(
        [
            f"Log Bayes factor of {ALL} features against {FEWER} after every chunk of {CHUNK} "
            f"rows, {len(runs)} streams of {rows[-1]:,} rows, default SGAIS for both models; z is "
            "its error over the stated one.",
            report.table(HEADER, table),
            f"|z| < {BEYOND:g} after {int(np.sum(z < BEYOND)):,} of {total:,} chunks "
            f"({100 * np.mean(z < BEYOND):.2f} %). Chunks of one stream share their path, so "
            f"that they are far from independent: {len(beyond)} of {len(runs)} streams are "
            f"beyond at some chunk. Flags: {', '.join(flags) or 'none'}. "
            f"{seconds / len(rows):.2f} s a chunk for both models.",
        ]
    )


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--chunks", type=int, default=40)
    parser.add_argument("--folder", type=Path, default=report.RESULTS)
    options = parser.parse_args()
    runs = {}
    for seed in range(options.streams):
        runs[f"{seed:02d}"] = measure(seed, options.chunks, wb.SGAIS())
        print(seed, f"{runs[f'{seed:02d}']['seconds']:.1f} s", flush=True)
    records = {"environment": report.environment(), "chunk": CHUNK, "streams": runs}
    report.save("online_factors", records, options.folder)
    report.write(
        "online_factors", "Online Bayes factors against exact ones", describe(runs), options.folder
    )


if __name__ == "__main__":
    main()
