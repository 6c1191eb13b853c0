"""Probabilities of models from their log evidences and prior odds, with errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weighbridge.core.errors import MethodError

NUM_DRAWS = 4000


def model_probabilities(
    log_evidences: Mapping[str, float],
    std_errors: Mapping[str, float],
    prior_odds: Mapping[str, float] | None = None,
    seed: int = 0,
    covariance: np.ndarray | None = None,
) -> tuple[dict[str, float], dict[str, float]]:
    """Posterior probabilities of models, and their standard deviations.

    The standard deviations are those of draws with normal errors of the log evidences. They are
    NaN if one of these errors is unknown. A ``covariance`` of the errors, models x models, takes
    the place of the standard errors.

    >>> model_probabilities({"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 3.0})
    ({'a': 0.25, 'b': 0.75}, {'a': 0.0, 'b': 0.0})
    """
    names = list(log_evidences)
    log_weights = np.array([log_evidences[name] for name in names])
    log_weights = log_weights + np.log(check_prior_odds(names, prior_odds))
    noise = np.random.default_rng(seed).normal(size=(NUM_DRAWS, len(names)))
    if covariance is None:
        noise = np.array([std_errors[name] for name in names]) * noise
    else:
        noise = noise @ _root(covariance).T
    spread = np.std(_normalise(log_weights + noise), axis=0)
    probabilities = _normalise(log_weights).tolist()
    return dict(zip(names, probabilities)), dict(zip(names, spread.tolist()))


def check_prior_odds(names: Sequence[str], prior_odds: Mapping[str, float] | None) -> np.ndarray:
    """The prior weight of each model, equal by default; invalid weights are refused."""
    if prior_odds is None:
        return np.ones(len(names))
    if set(prior_odds) != set(names):
        raise MethodError(f"prior_odds must name each of {list(names)}, and no other model.")
    odds = np.array([float(prior_odds[name]) for name in names])
    if not np.all(np.isfinite(odds)) or np.any(odds <= 0):
        raise MethodError(f"prior_odds must be positive, not {dict(prior_odds)}.")
    return odds


def _root(covariance: np.ndarray) -> np.ndarray:
    """A square root of a covariance matrix that may be singular; NaN if it is not known."""
    if not np.isfinite(covariance).all():
        return np.full_like(covariance, np.nan)
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _normalise(log_weights: np.ndarray) -> np.ndarray:
    shifted = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))
