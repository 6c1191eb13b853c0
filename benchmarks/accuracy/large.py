"""``python -m benchmarks.accuracy.large``: models of 100 to 5,000 parameters.

Gaussian likelihoods whose log evidence is exact, with precisions from 0.1 to 100 along the
coordinates. A run is right if its error is at most three stated errors. ``--regression 500`` adds
linear regressions of so many parameters with rows, for SGAIS. With ``--logistic`` a logistic
regression is weighed by Laplace's approximation and importance sampling around it, and then by the
methods of ``--methods`` beside this reference.
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

HEADER = (
    "method",
    "parameters",
    "seed",
    "error",
    "stated",
    "answer",
    "flags",
    "steps",
    "MiB",
    "s",
    "CPU s",
)
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
    return weighed(model, None, "smc", seed, exact)


def regression(dimension: int, seed: int) -> dict[str, Any]:
    """One run of SGAIS with its defaults on a linear regression with four rows a parameter."""
    features = dimension - 1  # and an intercept
    data = wb.zoo.linear.simulate(4 * dimension, num_features=features, seed=seed)
    model = wb.zoo.linear.model(features)
    return weighed(model, data, "sgais", seed, wb.zoo.linear.log_evidence(data))


def weighed(
    model: wb.Model,
    data: Any,
    method: str,
    seed: int,
    reference: float,
    reference_error: float = 0.0,
) -> dict[str, Any]:
    """One run of a method, held against the exact or the reference log evidence."""
    began = time.process_time()
    result = wb.evidence(model, data, method, seed=seed, progress=False)
    # A method that takes chunks has the steps of each chunk in its trace.
    of_chunks = round(float(np.sum(result.trace["annealing_steps"])))
    steps = result.diagnostics.get("annealing_steps", of_chunks)
    return {
        "method": method,
        "dimension": model.dimension,
        "seed": seed,
        "error": result.log_evidence - reference,
        "stated": result.claimed_error,
        "reference_error": reference_error,
        "answer": result.diagnostics["answer"],
        "flags": [flag.name for flag in result.flags],
        "steps": steps,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "seconds": result.elapsed,
        "cpu_seconds": time.process_time() - began,
    }


def log_bernoulli(p: Any, row: Any) -> Any:
    score = row["x"] @ p["w"]
    return row["y"] * score - jnp.logaddexp(0.0, score)


def logistic(num_features: int, num_rows: int, seed: int) -> tuple[wb.Model, dict[str, np.ndarray]]:
    """A logistic regression with a standard normal prior, and its rows."""
    numbers = np.random.default_rng(seed)
    x = numbers.standard_normal((num_rows, num_features)) / math.sqrt(num_features)
    y = numbers.random(num_rows) < 1 / (1 + np.exp(-x @ numbers.standard_normal(num_features)))
    prior = {"w": dist.Normal(0.0, 1.0).expand([num_features]).to_event(1)}
    return wb.Model(prior, log_bernoulli), {"x": x, "y": y.astype(float)}


def laplace(data: dict[str, np.ndarray], num_draws: int, seed: int) -> dict[str, Any]:
    """Laplace's approximation of a logistic regression, and importance sampling around it."""
    began = time.perf_counter()
    x, y, numbers = data["x"], data["y"], np.random.default_rng([seed, 1])
    num_rows, num_features = x.shape
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


def table(runs: list[dict[str, Any]]) -> str:
    """The runs, and how many of them are wrong without a flag."""
    rows = [
        [
            r["method"],
            f"{r['dimension']:,}",
            str(r["seed"]),
            f"{r['error']:+.3f}",
            f"{r['stated']:.3f}",
            r["answer"],
            ", ".join(r["flags"]),
            str(r["steps"]),
            f"{r['memory']:.0f}",
            f"{r['seconds']:.0f}",
            f"{r['cpu_seconds']:.0f}" if "cpu_seconds" in r else "",
        ]
        for r in runs
    ]
    stated = [math.hypot(r["stated"], r["reference_error"]) for r in runs]
    wrong = sum(not abs(r["error"]) <= 3 * e and not r["flags"] for r, e in zip(runs, stated))
    beyond = f"Beyond three stated errors without a flag: {wrong} of {len(runs)} runs."
    return f"{report.table(HEADER, rows)}\n\n{beyond}"


def body(found: dict[str, list[dict[str, Any]]]) -> str:
    """All tables that have rows."""
    parts = []
    if found["gaussian"]:
        parts.append(
            "`wb.evidence` with default settings on a Gaussian likelihood with an exact log "
            "evidence. MiB: the largest memory of the process so far. CPU s: seconds of the "
            "process on all cores; other work on the machine makes only the seconds longer.\n\n"
            + table(found["gaussian"])
        )
    if found["regression"]:
        parts.append(
            "Linear regression with four rows for each parameter; the log evidence is exact.\n\n"
            + table(found["regression"])
        )
    if found["laplace"]:
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
            for r in found["laplace"]
        ]
        parts.append(
            "Logistic regression: Laplace's approximation, and importance sampling around it.\n\n"
            + report.table(LOGISTIC_HEADER, rows)
        )
    if found["logistic"]:
        parts.append(
            "The same logistic regression by `wb.evidence` with default settings; the error is the "
            "difference from importance sampling.\n\n" + table(found["logistic"])
        )
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.accuracy.large", description=__doc__)
    parser.add_argument("--only", nargs="*", type=int, default=[100, 500, 1000, 5000])
    parser.add_argument("--seeds", type=int, default=2, help="runs of each dimension")
    parser.add_argument("--regression", nargs="*", type=int, default=[], help="parameters")
    parser.add_argument("--logistic", action="store_true", help="also the logistic regression")
    parser.add_argument("--methods", nargs="*", default=["sgais"], help="for the logistic one")
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--draws", type=int, default=1000, help="of importance sampling")
    parser.add_argument("--merge", action="store_true", help="keep what was measured before")
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    found: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("gaussian", "regression", "laplace", "logistic")
    }
    if options.merge:
        found |= report.load("large", options.output)

    def note(name: str, run: dict[str, Any]) -> None:
        same = [name for name in ("method", "dimension", "features", "rows", "seed") if name in run]
        others = [old for old in found[name] if any(old.get(key) != run[key] for key in same)]
        found[name] = [*others, run]
        report.save("large", found, options.output)
        print(run, flush=True)
        # What was measured is not lost if a later run takes too long.
        report.write("large", "Models of many parameters", body(found), options.output)

    for dimension in options.only:
        for seed in seeds:
            note("gaussian", measure(dimension, seed))
    for dimension in options.regression:
        for seed in seeds:
            note("regression", regression(dimension, seed))
    if options.logistic:
        model, data = logistic(options.features, options.rows, FIRST_SEED)
        reference = laplace(data, options.draws, FIRST_SEED)
        note("laplace", reference)
        for method in options.methods:
            known = reference["importance"], reference["stated"]
            note("logistic", weighed(model, data, method, FIRST_SEED, *known))


if __name__ == "__main__":
    main()
