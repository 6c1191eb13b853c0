"""Weighted particles: effective sample size and resampling."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.types import Array

# Relative accuracy of sums of log-likelihoods over rows.
ROUNDING = 1e-13
# Up to this number of particles, a matrix of particles x particles is cheap.
FEW = 256


def relative_weights(log_weights: Array) -> tuple[Array, Array]:
    """Weights relative to the largest one, and its logarithm; all 0 if no weight is positive.

    Sums of relative weights do not overflow or vanish, and compile faster than logsumexp.

    >>> [value.tolist() for value in relative_weights(jnp.array([800.0, -jnp.inf]))]
    [[1.0, 0.0], 800.0]
    """
    top = jnp.max(log_weights)
    highest = jnp.where(jnp.isfinite(top), top, 0.0)
    return jnp.exp(log_weights - highest), highest


def effective_sample_size(log_weights: Array) -> Array:
    r"""Effective sample size of unnormalised log weights.

    .. math:: \mathrm{ESS} = (\sum_i w_i)^2 / \sum_i w_i^2

    Kong, Liu & Wong (1994), JASA 89:278-288.

    >>> float(effective_sample_size(jnp.log(jnp.array([1.0, 1.0, 0.0]))))
    2.0
    """
    weight, _ = relative_weights(log_weights)
    return jnp.sum(weight) ** 2 / jnp.maximum(jnp.sum(weight**2), 1.0)


def log_mean_exp(log_weights: Array) -> Array:
    """Log of the mean weight."""
    weight, highest = relative_weights(log_weights)
    return jnp.log(jnp.mean(weight)) + highest


# Resampling schemes: functions of a key and log weights that return the indices of survivors.


def systematic(key: Array, log_weights: Array) -> Array:
    """Resample with one uniform and evenly spaced points; the default."""
    num = log_weights.shape[0]
    return _invert((jnp.arange(num) + jax.random.uniform(key)) / num, log_weights)


def stratified(key: Array, log_weights: Array) -> Array:
    """Resample with one uniform per stratum."""
    num = log_weights.shape[0]
    return _invert((jnp.arange(num) + jax.random.uniform(key, (num,))) / num, log_weights)


def multinomial(key: Array, log_weights: Array) -> Array:
    """Resample independently; this has the most noise and the simplest theory."""
    return _invert(jnp.sort(jax.random.uniform(key, log_weights.shape)), log_weights)


def residual(key: Array, log_weights: Array) -> Array:
    """Keep floor(num * weight) copies of each, and draw the rest by systematic resampling."""
    num = log_weights.shape[0]
    expected = num * jax.nn.softmax(log_weights)
    # The small addition avoids that rounding reduces an expectation of exactly k to k - 1 copies.
    copies = jnp.floor(expected + 1e-9).astype(int)
    rest = jnp.log(jnp.maximum(expected - copies, 0.0))
    rest = jnp.where(jnp.any(jnp.isfinite(rest)), rest, log_weights)
    kept = jnp.repeat(jnp.arange(num), copies, total_repeat_length=num)
    # The remaining particles are a systematic draw of their own size, placed after the kept ones.
    missing = num - jnp.sum(copies)
    points = (jnp.arange(num) - (num - missing) + jax.random.uniform(key)) / jnp.maximum(missing, 1)
    drawn = _invert(jnp.clip(points, 0.0, 1.0), rest)
    return jnp.where(jnp.arange(num) < num - missing, kept, drawn)


def _invert(points: Array, log_weights: Array) -> Array:
    share, _ = relative_weights(log_weights)
    if len(share) <= FEW:
        # Computing all sums and all comparisons at once compiles faster.
        cumulative = jnp.tril(jnp.ones((len(share), len(share)))) @ share
        chosen = jnp.sum(points[:, None] >= cumulative / cumulative[-1], axis=1)
    else:
        cumulative = jnp.cumsum(share)
        chosen = jnp.searchsorted(cumulative / cumulative[-1], points, side="right")
    # Rounding may put a point above the last weight: use the last particle with a positive weight.
    weighted = jnp.where(jnp.isfinite(log_weights), jnp.arange(log_weights.shape[0]), 0)
    return jnp.minimum(chosen, jnp.max(weighted))


RESAMPLING: dict[str, Callable[[Array, Array], Array]] = {
    "systematic": systematic,
    "stratified": stratified,
    "multinomial": multinomial,
    "residual": residual,
}


def require_resampling(name: str) -> Callable[[Array, Array], Array]:
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
