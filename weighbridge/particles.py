"""Weighted particles: effective sample size, resampling, and islands combined to one answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import polygamma

from weighbridge.base import Array, MethodError

# What sums of log-likelihoods over rows are good to, as a share of them.
ROUNDING = 1e-13
# What the log evidence is good to at best, as a share of it: a sum of so many rounded numbers.
ROUNDED_SHARE = 1e-14
# Rounding (nats) from which on it matters; below, it is in the error and nothing else.
ROUNDING_MATTERS = 0.01
# Its square must be a number.
LARGEST_ROUNDING = 1e100
# Events from which on a rate is known by its spread, whatever the tails.
FEW_EVENTS = 8.0
# Particles up to which a square of their number is nothing.
FEW = 256


def relative_weights(log_weights: Array) -> tuple[Array, Array]:
    """Weights relative to the largest of them, and its logarithm; all 0 where there is none.

    Sums of them neither overflow nor vanish, and compile faster than sums of logarithms.

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


# --- resampling: from a key and log weights to the indices of the survivors ---------------


def systematic(key: Array, log_weights: Array) -> Array:
    """Resample with one uniform and evenly spaced points; the default."""
    num = log_weights.shape[0]
    return _invert((jnp.arange(num) + jax.random.uniform(key)) / num, log_weights)


def stratified(key: Array, log_weights: Array) -> Array:
    """Resample with one uniform per stratum."""
    num = log_weights.shape[0]
    return _invert((jnp.arange(num) + jax.random.uniform(key, (num,))) / num, log_weights)


def multinomial(key: Array, log_weights: Array) -> Array:
    """Resample independently; the noisiest, and the one whose theory is simplest."""
    return _invert(jnp.sort(jax.random.uniform(key, log_weights.shape)), log_weights)


def residual(key: Array, log_weights: Array) -> Array:
    """Keep floor(num * weight) copies of each, and draw the rest by systematic resampling."""
    num = log_weights.shape[0]
    expected = num * jax.nn.softmax(log_weights)
    # The small push keeps an expectation of exactly k from falling to k - 1 by rounding.
    copies = jnp.floor(expected + 1e-9).astype(int)
    rest = jnp.log(jnp.maximum(expected - copies, 0.0))
    rest = jnp.where(jnp.any(jnp.isfinite(rest)), rest, log_weights)
    kept = jnp.repeat(jnp.arange(num), copies, total_repeat_length=num)
    # The remainder is a systematic draw of its own size: points beyond the kept ones.
    missing = num - jnp.sum(copies)
    points = (jnp.arange(num) - (num - missing) + jax.random.uniform(key)) / jnp.maximum(missing, 1)
    drawn = _invert(jnp.clip(points, 0.0, 1.0), rest)
    return jnp.where(jnp.arange(num) < num - missing, kept, drawn)


def _invert(points: Array, log_weights: Array) -> Array:
    share, _ = relative_weights(log_weights)
    if len(share) <= FEW:
        # All sums and all comparisons at once are quicker to compile.
        cumulative = jnp.tril(jnp.ones((len(share), len(share)))) @ share
        chosen = jnp.sum(points[:, None] >= cumulative / cumulative[-1], axis=1)
    else:
        cumulative = jnp.cumsum(share)
        chosen = jnp.searchsorted(cumulative / cumulative[-1], points, side="right")
    # Rounding may push a point beyond the last weight: the last particle with any takes it.
    weighted = jnp.where(jnp.isfinite(log_weights), jnp.arange(log_weights.shape[0]), 0)
    return jnp.minimum(chosen, jnp.max(weighted))


RESAMPLING: dict[str, Callable[[Array, Array], Array]] = {
    "systematic": systematic,
    "stratified": stratified,
    "multinomial": multinomial,
    "residual": residual,
}


# --- what all particles have in common -------------------------------------------------------


def is_same(log_likelihoods: np.ndarray) -> bool:
    """Whether log-likelihoods are all the same, to rounding.

    >>> is_same(np.array([-1e6, -1e6 + 1e-8])), is_same(np.array([0.0, 1e-9]))
    (True, False)
    """
    highest, lowest = float(np.max(log_likelihoods)), float(np.min(log_likelihoods))
    return highest - lowest <= ROUNDING * (1.0 + abs(highest))


# --- islands: independent estimates of the same evidence -----------------------------------


class Combined(NamedTuple):
    """The log evidence of several islands together."""

    log_evidence: float
    std_error: float
    spread: float

    @property
    def is_rounded(self) -> bool:
        """Whether double precision holds the log evidence no better than is worth a flag."""
        return rounding_error(self.log_evidence) > ROUNDING_MATTERS


def rounding_error(log_evidence: float, additions: int = 0) -> float:
    r"""What double precision may have lost of a log evidence that was added up, in nats.

    Log-likelihoods are summed over rows, powers and chunks, each time rounded to a share of
    2.2e-16 of the sum. Where what is added is large beside that, the errors are of both signs and
    grow with the root of their number: 1e-14 of the sum is enough for some thousand of them. Where
    the share itself matters, what a chunk adds is lost always in the same way, and the errors of
    all of them add up.

    Args:
        log_evidence: the sum.
        additions: how many chunks were added one after the other.

    >>> rounding_error(-1e6) < 1e-7, rounding_error(-5e35) > 1e20
    (True, True)
    """
    if not math.isfinite(log_evidence):
        return 0.0
    last_digit = float(np.spacing(abs(log_evidence)))
    lost = additions * last_digit if last_digit > ROUNDING_MATTERS else 0.0
    return min(ROUNDED_SHARE * abs(log_evidence) + lost, LARGEST_ROUNDING)


def combine_islands(log_evidences: np.ndarray) -> Combined:
    r"""Combine independent estimates of Z: their mean is the answer, their spread its error.

    With J islands of log evidence l_j and sample variance s^2,

    .. math:: \mathrm{se}^2 = \frac{J-1}{J-3} \Bigl( \frac{s^2}{J}
              + \min\bigl( \frac{s^4}{2 (J-1)}, s^2 \bigr) \Bigr)

    The first term is the delta method. The second is the error of the correction s^2 / 2 by
    which the log of a mean exceeds the mean of the logs: it is nothing while islands agree, and
    grows just where the mean becomes a maximum, up to the spread itself. The factor widens for
    the heavy tails of a Student-t with J - 1 degrees. Under four islands the error is unknown
    (NaN). What double precision loses of a sum as large as log Z is added in quadrature (see
    ``rounding_error``).

    Where a few islands have nearly all of the mean, because they hit what others did not, their
    spread says too little. The mean is then known as well as a rate from n events, and where n is
    below 8 the variance in brackets is not less than that of the log of such a rate,

    .. math:: \psi'(n), \qquad \frac1n = \frac{\sum_j Z_j^2}{(\sum_j Z_j)^2} - \frac1J

    which for islands that agree is the delta method again: psi'(n) is about 1/n.

    >>> combine_islands(np.array([-10.1, -9.9, -10.0, -10.0, -10.0])).log_evidence
    -9.998...
    >>> combine_islands(np.array([-10.0])).std_error
    nan
    """
    log_evidences = np.asarray(log_evidences, float)
    num_islands = log_evidences.size
    top = log_evidences.max()
    if not math.isfinite(top):
        return Combined(float(top), math.nan, math.nan)
    log_evidence = float(top + np.log(np.mean(np.exp(log_evidences - top))))
    finite = np.isfinite(log_evidences)
    spread = float(np.std(log_evidences[finite], ddof=1)) if finite.sum() > 1 else math.nan
    if num_islands < 4 or not finite.all():
        return Combined(log_evidence, math.nan, spread)
    # A product of floats overflows to infinity; a power would raise.
    square = spread * spread
    variance = square / num_islands + square * min(square / (2 * (num_islands - 1)), 1.0)
    part = np.exp(log_evidences - top)
    uneven = float(np.sum(part**2) / np.sum(part) ** 2) - 1.0 / num_islands
    if uneven > 1.0 / FEW_EVENTS:
        variance = max(variance, float(polygamma(1, 1.0 / uneven)))
    widened = math.sqrt(variance * (num_islands - 1) / (num_islands - 3))
    return Combined(log_evidence, math.hypot(widened, rounding_error(log_evidence)), spread)


def combine_logs(log_evidences: np.ndarray) -> Combined:
    """Combine independent estimates of log Z itself: their mean, and its standard error.

    >>> combine_logs(np.array([-10.1, -9.9, -10.0, -10.0])).log_evidence
    -10.0
    """
    log_evidences = np.asarray(log_evidences, float)
    num_islands = log_evidences.size
    mean = float(np.mean(log_evidences))
    spread = float(np.std(log_evidences, ddof=1)) if num_islands > 1 else math.nan
    if num_islands < 4 or not math.isfinite(mean):
        return Combined(mean, math.nan, spread)
    chance = spread / math.sqrt(num_islands) * math.sqrt((num_islands - 1) / (num_islands - 3))
    return Combined(mean, math.hypot(chance, rounding_error(mean)), spread)


def require_resampling(name: str) -> Callable[[Array, Array], Array]:
    """The resampling scheme of this name, or an error that lists them."""
    if name not in RESAMPLING:
        raise MethodError(f"resampling is {name!r}; it must be one of {sorted(RESAMPLING)}.")
    return RESAMPLING[name]
