"""Mixtures of two or three regressions with few rows: the sum over all assignments is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from benchmarks.traps import sites
from benchmarks.traps.labels import assignments, log_prior_of_counts
from benchmarks.traps.trap import LOG_TWO_PI, Modes, Trap

# Prior standard deviation of coefficients.
WIDTH = 3.0


def log_rows(theta: Any, row: Any, xp: Any) -> Any:
    """theta = weights, slopes, intercepts; one feature."""
    count = theta.shape[-1] // 3
    weight, slope = theta[..., :count], theta[..., count : 2 * count]
    mean = slope * row["x"][..., None] + theta[..., 2 * count :]
    z = (row["y"][..., None] - mean) / row["noise"][..., None]
    each = xp.log(xp.maximum(weight, 1e-300)) - 0.5 * z**2 - 0.5 * LOG_TWO_PI
    largest = xp.max(each, axis=-1)
    total = xp.log(xp.sum(xp.exp(each - largest[..., None]), axis=-1))
    return largest + total - xp.log(row["noise"])


def subset_evidences(x: np.ndarray, y: np.ndarray, noise: float) -> np.ndarray:
    """Log evidence of one line for every subset of the rows; bit i of the index is row i."""
    found = []
    for number in range(2 ** len(x)):
        kept = (number >> np.arange(len(x))) % 2 == 1
        design = np.stack([x[kept], np.ones(kept.sum())], axis=1)
        covariance = WIDTH**2 * design @ design.T + noise**2 * np.eye(kept.sum())
        _, log_det = np.linalg.slogdet(covariance)
        squares = y[kept] @ np.linalg.solve(covariance, y[kept])
        found.append(-0.5 * (squares + log_det + kept.sum() * LOG_TWO_PI))
    return np.array(found)


def exact(x: np.ndarray, y: np.ndarray, noise: float, count: int, concentration: float) -> float:
    """The sum over all assignments of rows to lines."""
    by_subset, bits, found = subset_evidences(x, y, noise), 2 ** np.arange(len(x)), []
    for chosen in assignments(len(x), count):
        counts = np.stack([(chosen == k).sum(axis=1) for k in range(count)], axis=1)
        values = log_prior_of_counts(counts, concentration)
        values = values + sum(by_subset[(chosen == k) @ bits] for k in range(count))
        found.append(special.logsumexp(values))
    return float(special.logsumexp(found))


def build(generator: np.random.Generator) -> Trap:
    """Two or three lines."""
    count = int(generator.choice([2, 3]))
    num_rows = int(generator.integers(7, 14 if count == 2 else 10))
    noise = float(10 ** generator.uniform(-1.0, -0.2))
    concentration = float(generator.choice([1.0, 3.0]))
    x = generator.uniform(-1, 1, num_rows)
    line = generator.integers(count, size=num_rows)
    slope, intercept = WIDTH * generator.standard_normal((2, count))
    y = slope[line] * x + intercept[line] + noise * generator.standard_normal(num_rows)
    declared = bool(generator.random() < 0.4)
    orders = 2 if count == 2 else 6
    return Trap(
        "regressions",
        f"{count} lines, {num_rows} rows" + (", exchangeable" if declared else ""),
        (
            sites.dirichlet("weight", count, concentration),
            sites.normal("slope", 0.0, WIDTH, count),
            sites.normal("intercept", 0.0, WIDTH, count),
        ),
        log_rows,
        {"x": x, "y": y, "noise": np.full(num_rows, noise)},
        lambda: exact(x, y, noise, count, concentration),
        lambda: Modes(np.full(orders, 1 / orders), np.full(orders, 1 / orders)),
        rows=True,
        exchangeable={"weight": 0, "slope": 0, "intercept": 0} if declared else None,
    )
