"""``python -m benchmarks.accuracy.large``: models of 100 to 5,000 parameters.

Gaussian likelihoods whose log evidence is exact, with precisions from 0.1 to 100 along the
coordinates. A run is right if its error is at most three stated errors. With ``--logistic`` a
logistic regression is weighed by Laplace's approximation and importance sampling around it, which
is the reference for any other method on it.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import weighbridge as wb
from benchmarks import report

HEADER = ("parameters", "seed", "error", "stated", "answer", "flags", "steps", "MiB", "s")
LOGISTIC_HEADER = ("features", "rows", "Laplace", "importance sampling", "stated", "ESS", "s")
BLOCK = 10_000
# No threshold was chosen with these seeds.
FIRST_SEED = 5000


def gaussian(dimension: int) -> tuple[wb.Model, float]:
    """A model with a standard normal prior and a Gaussian likelihood, and its log evidence."""
    precision = np.geomspace(0.1, 100.0, dimension)
    centre = np.random.default_rng(dimension).standard_normal(dimension)
    model = wb.Model(
        {"x": dist.Normal(0.0, 1.0).expand([dimension]).to_event(1)},
        total_log_likelihood=lambda p: -0.5 * jnp.sum(precision * (p["x"] - centre) ** 2),
    )
    exact = -0.5 * np.sum(np.log1p(precision) + precision * centre**2 / (1 + precision))
    return model, float(exact)


def measure(dimension: int, seed: int) -> dict[str, Any]:
    """One run of SMC with its defaults."""
    model, exact = gaussian(dimension)
    result = wb.evidence(model, None, wb.SMC(), seed=seed, progress=False)
    return {
        "dimension": dimension,
        "seed": seed,
        "error": result.log_evidence - exact,
        "stated": result.std_error,
        "answer": result.diagnostics["answer"],
        "flags": [flag.name for flag in result.flags],
        "steps": result.diagnostics["annealing_steps"],
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "seconds": result.elapsed,
    }


def laplace(num_features: int, num_rows: int, num_draws: int, seed: int) -> dict[str, Any]:
    """Laplace's approximation of a logistic regression, and importance sampling around it."""
    began = time.perf_counter()
    numbers = np.random.default_rng(seed)
    x = numbers.standard_normal((num_rows, num_features)) / math.sqrt(num_features)
    y = numbers.random(num_rows) < 1 / (1 + np.exp(-x @ numbers.standard_normal(num_features)))
    blocks = [slice(start, start + BLOCK) for start in range(0, num_rows, BLOCK)]

    def log_joint(w: np.ndarray) -> np.ndarray:
        total = -0.5 * np.sum(w**2, axis=0) - 0.5 * num_features * math.log(2 * math.pi)
        for block in blocks:
            score = x[block] @ w
            total = total + y[block] @ score - np.sum(np.logaddexp(0.0, score), axis=0)
        return total

    mode = np.zeros(num_features)
    for _ in range(50):
        slope, precision = -mode, np.eye(num_features)
        for block in blocks:
            chance = 1 / (1 + np.exp(-x[block] @ mode))
            slope = slope + x[block].T @ (y[block] - chance)
            precision += (x[block] * (chance * (1 - chance))[:, None]).T @ x[block]
        step = np.linalg.solve(precision, slope)
        mode = mode + step
        if slope @ step < 1e-12:
            break
    root = np.linalg.cholesky(precision)
    noise = numbers.standard_normal((num_features, num_draws))
    log_proposal = np.sum(np.log(np.diag(root))) - 0.5 * np.sum(noise**2, axis=0)
    log_proposal -= 0.5 * num_features * math.log(2 * math.pi)
    log_weight = log_joint(mode[:, None] + np.linalg.solve(root.T, noise)) - log_proposal
    weight = np.exp(log_weight - log_weight.max())
    constant = 0.5 * num_features * math.log(2 * math.pi) - np.sum(np.log(np.diag(root)))
    return {
        "features": num_features,
        "rows": num_rows,
        "laplace": float(log_joint(mode[:, None])[0] + constant),
        "importance": float(log_weight.max() + math.log(weight.mean())),
        "stated": float(weight.std() / weight.mean() / math.sqrt(num_draws)),
        "ess": float(weight.sum() ** 2 / np.sum(weight**2)),
        "seconds": time.perf_counter() - began,
    }


def body(runs: list[dict[str, Any]], regressions: list[dict[str, Any]]) -> str:
    """Both tables."""
    parts = []
    if runs:
        rows = [
            [
                f"{r['dimension']:,}",
                str(r["seed"]),
                f"{r['error']:+.3f}",
                f"{r['stated']:.3f}",
                r["answer"],
                ", ".join(r["flags"]),
                str(r["steps"]),
                f"{r['memory']:.0f}",
                f"{r['seconds']:.0f}",
            ]
            for r in runs
        ]
        wrong = sum(not abs(r["error"]) <= 3 * r["stated"] and not r["flags"] for r in runs)
        parts.append(
            "`wb.evidence(model, None, wb.SMC())` on a Gaussian likelihood with an exact log "
            "evidence. MiB: the largest memory of the process so far.\n\n"
            + report.table(HEADER, rows)
            + f"\n\nBeyond three stated errors without a flag: {wrong} of {len(runs)} runs."
        )
    if regressions:
        rows = [
            [
                f"{r['features']:,}",
                f"{r['rows']:,}",
                f"{r['laplace']:.3f}",
                f"{r['importance']:.3f}",
                f"{r['stated']:.3f}",
                f"{r['ess']:.0f}",
                f"{r['seconds']:.0f}",
            ]
            for r in regressions
        ]
        parts.append(
            "Logistic regression: Laplace's approximation, and importance sampling around it.\n\n"
            + report.table(LOGISTIC_HEADER, rows)
        )
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.accuracy.large", description=__doc__)
    parser.add_argument("--only", nargs="*", type=int, default=[100, 500, 1000, 5000])
    parser.add_argument("--seeds", type=int, default=2, help="runs of each dimension")
    parser.add_argument("--logistic", action="store_true", help="also the logistic regression")
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--draws", type=int, default=1000, help="of importance sampling")
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args()
    regressions = []
    if options.logistic:
        regressions = [laplace(options.features, options.rows, options.draws, FIRST_SEED)]
        print(regressions[0], flush=True)
    runs: list[dict[str, Any]] = []
    for dimension in options.only:
        for number in range(options.seeds):
            runs.append(measure(dimension, FIRST_SEED + number))
            print(runs[-1], flush=True)
            report.write(
                "large", "Models of many parameters", body(runs, regressions), options.output
            )
    report.write("large", "Models of many parameters", body(runs, regressions), options.output)


if __name__ == "__main__":
    main()
