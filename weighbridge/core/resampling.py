"""Weighted particles: effective sample size and resampling.

The functions work on the last axis: of one population, or of many islands at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.types import Array

# Relative accuracy of sums of log-likelihoods over rows.
ROUNDING = 1e-13


def relative_weights(log_weights: Array | np.ndarray) -> tuple[Any, Any]:
    """Weights relative to the largest one, and its logarithm; all 0 if no weight is positive.

    Sums of relative weights do not overflow or vanish, and compile faster than logsumexp. NumPy
    arrays give NumPy arrays; JAX arrays give JAX arrays, also in compiled programs.

    >>> [value.tolist() for value in relative_weights(np.array([800.0, -np.inf]))]
    [[1.0, 0.0], [800.0]]
    """
    numbers = log_weights.__array_namespace__()
    top = numbers.max(log_weights, axis=-1, keepdims=True)
    highest = numbers.where(numbers.isfinite(top), top, 0.0)
    return numbers.exp(log_weights - highest), highest


def effective_sample_size(log_weights: Array | np.ndarray) -> Any:
    r"""Effective sample size of unnormalised log weights.

    .. math:: \mathrm{ESS} = (\sum_i w_i)^2 / \sum_i w_i^2

    Kong, Liu & Wong (1994), JASA 89:278-288.

    >>> float(effective_sample_size(np.array([0.0, 0.0, -np.inf])))
    2.0
    """
    numbers = log_weights.__array_namespace__()
    weight, _ = relative_weights(log_weights)
    squares = numbers.sum(weight**2, axis=-1)
    return numbers.sum(weight, axis=-1) ** 2 / numbers.maximum(squares, 1.0)


def log_mean_exp(log_weights: Array | np.ndarray) -> Any:
    """Log of the mean weight; -inf if no weight is positive."""
    numbers = log_weights.__array_namespace__()
    weight, highest = relative_weights(log_weights)
    with np.errstate(divide="ignore"):
        return numbers.log(numbers.mean(weight, axis=-1)) + highest[..., 0]


# Resampling schemes: functions of a random generator and log weights, islands x particles, that
# return the indices of the survivors.
Scheme = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def systematic(numbers: np.random.Generator, log_weights: np.ndarray) -> np.ndarray:
    """Resample with one uniform and evenly spaced points; the default."""
    return _invert(_strata(numbers.random((*log_weights.shape[:-1], 1)), log_weights), log_weights)


def stratified(numbers: np.random.Generator, log_weights: np.ndarray) -> np.ndarray:
    """Resample with one uniform per stratum."""
    return _invert(_strata(numbers.random(log_weights.shape), log_weights), log_weights)


def multinomial(numbers: np.random.Generator, log_weights: np.ndarray) -> np.ndarray:
    """Resample independently; this has the most noise and the simplest theory."""
    return _invert(np.sort(numbers.random(log_weights.shape), axis=-1), log_weights)


def residual(numbers: np.random.Generator, log_weights: np.ndarray) -> np.ndarray:
    """Keep floor(num * weight) copies of each, and draw the rest by systematic resampling."""
    num = log_weights.shape[-1]
    weight, _ = relative_weights(log_weights)
    expected = num * weight / np.maximum(weight.sum(axis=-1, keepdims=True), 1.0)
    # The small addition avoids that rounding reduces an expectation of exactly k to k - 1 copies.
    copies = np.floor(expected + 1e-9).astype(int)
    with np.errstate(divide="ignore"):
        rest = np.log(np.maximum(expected - copies, 0.0))
    rest = np.where(np.isfinite(rest).any(axis=-1, keepdims=True), rest, log_weights)
    # The remaining particles are a systematic draw of their own size, placed after the kept ones.
    place = np.arange(num)
    ends = np.cumsum(copies, axis=-1)
    num_kept = ends[..., -1:]
    kept = _passed(ends, np.broadcast_to(place, ends.shape))
    missing = np.maximum(num - num_kept, 1)
    points = (place - num_kept + numbers.random((*log_weights.shape[:-1], 1))) / missing
    return np.where(place < num_kept, kept, _invert(np.clip(points, 0.0, 1.0), rest))


def _strata(uniform: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
    num = log_weights.shape[-1]
    return np.asarray((np.arange(num) + uniform) / num)


def _invert(points: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
    """The particles at which the cumulated weights pass the points."""
    share, _ = relative_weights(log_weights)
    cumulative = np.cumsum(share, axis=-1)
    total = cumulative[..., -1:]
    # An island without any weight keeps its particles in their order.
    cumulative = np.where(total > 0, cumulative / np.where(total > 0, total, 1.0), points + 1.0)
    chosen = _passed(cumulative, points)
    # Rounding may put a point above the last weight: use the last particle with a positive weight.
    last = np.max(np.where(share > 0, np.arange(share.shape[-1]), 0), axis=-1, keepdims=True)
    return np.asarray(np.minimum(chosen, last))


def _passed(sums: np.ndarray, points: np.ndarray) -> np.ndarray:
    """For each point, how many of the growing sums of its island are not above it."""
    num = sums.shape[-1]
    found = np.empty((sums.size // num, num), int)
    for own, growing, at in zip(found, sums.reshape(-1, num), points.reshape(-1, num)):
        own[:] = growing.searchsorted(at, side="right")
    return found.reshape(sums.shape)


RESAMPLING: dict[str, Scheme] = {
    "systematic": systematic,
    "stratified": stratified,
    "multinomial": multinomial,
    "residual": residual,
}


def require_resampling(name: str) -> Scheme:
    """The resampling scheme with this name, or an error that lists all schemes."""
    if name not in RESAMPLING:
        raise MethodError(f"resampling is {name!r}; it must be one of {sorted(RESAMPLING)}.")
    return RESAMPLING[name]


def is_same(log_likelihoods: np.ndarray) -> bool:
    """Whether all log-likelihoods are equal, up to rounding.

    >>> is_same(np.array([-1e6, -1e6 + 1e-8])), is_same(np.array([0.0, 1e-9]))
    (True, False)
    """
    highest, lowest = float(np.max(log_likelihoods)), float(np.min(log_likelihoods))
    return highest - lowest <= ROUNDING * (1.0 + abs(highest))


def systematic_indices(
    point: float, log_weights: np.ndarray, count: int | None = None
) -> np.ndarray:
    """Systematic resampling on the host, with one uniform number.

    >>> systematic_indices(0.5, np.log([0.5, 0.25, 0.25]), 4)
    array([0, 0, 1, 2])
    """
    num = len(log_weights) if count is None else count
    cumulative = np.cumsum(np.exp(log_weights - np.max(log_weights)))
    points = (np.arange(num) + point) / num * cumulative[-1]
    # Rounding may put a point above the last weight: use the last particle with a positive weight.
    last = np.flatnonzero(np.isfinite(log_weights))[-1]
    return np.asarray(np.minimum(np.searchsorted(cumulative, points, side="right"), last))
