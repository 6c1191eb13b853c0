"""A logistic regression of 320 features, weighed at once, against long importance sampling."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb

pytestmark = pytest.mark.long

FEATURES, ROWS, DRAWS = 320, 4000, 20_000


def _log_bernoulli(p, row):
    score = row["x"] @ p["w"]
    return row["y"] * score - jnp.logaddexp(0.0, score)


def _reference(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Laplace's approximation and importance sampling around it, in plain NumPy."""
    mode = np.zeros(FEATURES)
    for _ in range(30):
        chance = 1 / (1 + np.exp(-x @ mode))
        precision = np.eye(FEATURES) + (x * (chance * (1 - chance))[:, None]).T @ x
        mode = mode + np.linalg.solve(precision, x.T @ (y - chance) - mode)
    root = np.linalg.cholesky(precision)
    noise = np.random.default_rng(7).standard_normal((FEATURES, DRAWS))
    w = mode[:, None] + np.linalg.solve(root.T, noise)
    log_ratio = 0.5 * np.sum(noise**2 - w**2, axis=0) - np.sum(np.log(np.diag(root)))
    for part in np.array_split(np.arange(ROWS), 20):
        score = x[part] @ w
        log_ratio += y[part] @ score - np.sum(np.logaddexp(0.0, score), axis=0)
    ratio = np.exp(log_ratio - log_ratio.max())
    error = float(ratio.std() / ratio.mean() / math.sqrt(DRAWS))
    return float(log_ratio.max() + math.log(ratio.mean())), error


def test_the_error_covers_in_many_dimensions():
    numbers = np.random.default_rng(2)
    x = numbers.standard_normal((ROWS, FEATURES)) / math.sqrt(FEATURES)
    chance = 1 / (1 + np.exp(-x @ numbers.standard_normal(FEATURES)))
    y = (numbers.random(ROWS) < chance).astype(float)
    exact, unsure = _reference(x, y)
    model = wb.Model({"w": dist.Normal(0.0, 1.0).expand([FEATURES]).to_event(1)}, _log_bernoulli)
    for seed in range(6):
        result = wb.evidence(model, {"x": x, "y": y}, seed=seed, progress=False)
        assert result.diagnostics["answer"] == "mode"
        assert not result.flags
        assert result.std_error < 0.05
        error = math.hypot(result.std_error, unsure)
        assert abs(result.log_evidence - exact) < 4 * error
