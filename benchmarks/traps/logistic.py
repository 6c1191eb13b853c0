"""Logistic regression with heavy-tailed features, as rows in memory and as a stream."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from benchmarks.traps import sites
from benchmarks.traps.trap import Trap

# Prior standard deviation of the weights.
WIDTH = 2.0


def log_rows(theta: Any, row: Any, xp: Any) -> Any:
    """The probability of the label, 0 or 1; the first feature is constant."""
    score = (2 * row["label"] - 1) * xp.sum(theta * row["x"], axis=-1)
    return -xp.logaddexp(0.0, -score)


def posterior(x: np.ndarray, label: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Log of prior times likelihood at some weights."""
    sign = 2 * label - 1
    found = [-np.logaddexp(0.0, -(x @ v) * sign).sum() for v in w]
    return np.array(found) + stats.norm(0, WIDTH).logpdf(w).sum(axis=1)


def mode(x: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The posterior mode, and a root of the inverse of the Hessian there."""
    sign = 2 * label - 1

    def gradient(w: np.ndarray) -> np.ndarray:
        return -(x * sign[:, None]).T @ special.expit(-(x @ w) * sign) + w / WIDTH**2

    start = np.zeros(x.shape[1])
    found = optimize.minimize(
        lambda w: -float(posterior(x, label, w[None])[0]), start, jac=gradient, method="BFGS"
    ).x
    p = special.expit(x @ found)
    hessian = (x * (p * (1 - p))[:, None]).T @ x + np.eye(x.shape[1]) / WIDTH**2
    return found, np.linalg.cholesky(np.linalg.inv(hessian))


def exact(x: np.ndarray, label: np.ndarray, num_points: int = 13) -> float:
    """Gauss-Hermite quadrature around the mode; the posterior is nearly Gaussian."""
    middle, root = mode(x, label)
    size = len(middle)
    nodes, weights = np.polynomial.hermite_e.hermegauss(num_points)
    z = np.array(list(itertools.product(nodes, repeat=size)))
    log_weights = np.log(np.array(list(itertools.product(weights, repeat=size)))).sum(axis=1)
    values = posterior(x, label, middle + z @ root.T)
    values = values + 0.5 * np.sum(z**2, axis=1) + log_weights
    return float(special.logsumexp(values) + np.log(np.diag(root)).sum())


def build(generator: np.random.Generator) -> Trap:
    """Two to three features with the tails of a Student-t of 1.2 to 3 degrees."""
    num_rows = int(10 ** generator.uniform(2.5, 4.2))
    size = int(generator.integers(2, 4))
    features = generator.standard_t(generator.uniform(1.2, 3.0), (num_rows, size - 1))
    x = np.concatenate([np.ones((num_rows, 1)), features], axis=1)
    truth = generator.normal(0, generator.choice([0.5, 2.0]), size)
    label = (generator.random(num_rows) < special.expit(x @ truth)).astype(float)
    chunk = 1_000 if generator.random() < 0.5 else 0
    return Trap(
        "logistic",
        f"{size} weights, {num_rows} rows" + (", a stream" if chunk else ""),
        (sites.normal("w", 0.0, WIDTH, size),),
        log_rows,
        {"x": x, "label": label},
        lambda: exact(x, label),
        rows=True,
        chunk=chunk,
    )
