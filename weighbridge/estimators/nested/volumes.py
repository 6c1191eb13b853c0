r"""Prior mass above the points of a run, and the sums that give the evidence.

The i-th lowest of n_i live points leaves the fraction t_i of the prior mass above it, with
t_i ~ Beta(n_i, 1), so that E log t_i = -1/n_i and E t_i = n_i / (n_i + 1).
Skilling (2006), Bayesian Analysis 1:833-859.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.core.random import Stream, random_numbers

# Simulated sets of volumes; the error has a relative error of 1 / sqrt(2 x this number).
SIMULATIONS = 100
# Most simulated volumes in memory at a time.
AT_ONCE = 2_000_000


class ShellSums(NamedTuple):
    r"""The evidence by three sums over shells, with X_0 = 1; the top has the likelihood L_K.

    .. math:: \sum_i L_{i-1} (X_{i-1} - X_i) \le Z - L_K X_K \le \sum_i L_i (X_{i-1} - X_i)

    The lower sum has L_0 = 0. The trapezium is the mean of both, with L_0 = L_1.

    Attributes:
        lower, upper: logs of the two sums.
        trapezium: log of their mean, the answer.
        log_weights: normalised log weights of the points in the trapezium.
        log_volumes: log of the prior mass above each point.
    """

    lower: float
    upper: float
    trapezium: float
    log_weights: np.ndarray
    log_volumes: np.ndarray


def log_shrinkage(nlive: np.ndarray, rule: str = "exponential") -> np.ndarray:
    """Mean of log t ("exponential") or log of the mean of t ("mean") for each point.

    >>> np.exp(log_shrinkage(np.array([2.0]), "mean")).round(6).tolist()
    [0.666667]
    """
    return np.asarray(-1.0 / nlive if rule == "exponential" else -np.log1p(1.0 / nlive))


def log_sums(log_likelihood: np.ndarray, log_shrink: np.ndarray) -> ShellSums:
    """The sums over shells, from the lowest point to the highest.

    Above the highest point its own likelihood is used: the last live points die one by one.

    >>> found = log_sums(np.zeros(50), np.full(50, -0.2))
    >>> round(found.trapezium, 12), round(found.upper, 12)
    (0.0, 0.0)
    """
    shells, log_volumes = _shells(log_shrink)
    top = log_volumes[-1] + log_likelihood[-1]
    upper = np.logaddexp(_log_sum(log_likelihood + shells), top)
    lower = np.logaddexp(_log_sum(log_likelihood[:-1] + shells[1:]), top)
    weights = log_likelihood + _trapezia(shells, log_volumes)
    trapezium = _log_sum(weights)
    log_weights = weights - trapezium
    return ShellSums(float(lower), float(upper), float(trapezium), log_weights, log_volumes)


def _shells(log_shrink: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logs of the mass of each shell below a point, and of the mass above it."""
    log_volumes = np.cumsum(log_shrink, axis=-1)
    return log_volumes - log_shrink + np.log(-np.expm1(log_shrink)), log_volumes


def _trapezia(shells: np.ndarray, log_volumes: np.ndarray) -> np.ndarray:
    """Half of the shell below and half of the shell above each point; all of it at the ends."""
    half = math.log(2.0)
    below = np.concatenate([shells[..., :1], shells[..., 1:] - half], axis=-1)
    above = np.concatenate([shells[..., 1:] - half, log_volumes[..., -1:]], axis=-1)
    return np.asarray(np.logaddexp(below, above))


def simulated_error(
    log_likelihood: np.ndarray, nlive: np.ndarray, seed: int, first_island: int
) -> float:
    """Standard deviation of log Z over simulated volumes."""
    generator = random_numbers(seed, Stream.NESTED_VOLUMES, first_island)
    count = len(nlive)
    at_once = max(1, min(SIMULATIONS, AT_ONCE // count))
    found: list[np.ndarray] = []
    while sum(map(len, found)) < SIMULATIONS:
        # The log of a uniform number is minus an exponential one.
        shrink = generator.standard_exponential((at_once, count)) / -nlive
        terms = log_likelihood + _trapezia(*_shells(shrink))
        found.append(_log_sum(terms))
    return float(np.std(np.concatenate(found), ddof=1))


def linear_error(sums: ShellSums, log_likelihood: np.ndarray, nlive: np.ndarray) -> float:
    r"""The error of log Z to first order, from the derivatives by the shrinkages t_i.

    .. math:: \mathrm{Var} \log Z \approx \sum_i \frac{1}{n_i^2}
              \Bigl( \frac{Z_{>i} - L_i X_i}{Z} \Bigr)^2

    Z_{>i} is the evidence above point i. With constant n this is about sqrt(H / n) for a narrow
    posterior: Skilling (2006).

    >>> constant = np.zeros(50)
    >>> linear_error(log_sums(constant, np.full(50, -0.1)), constant, np.full(50, 10.0)) < 0.02
    True
    """
    share = np.exp(sums.log_weights)
    above = np.cumsum(share[::-1])[::-1] - share
    flat = np.exp(sums.log_volumes + log_likelihood - sums.trapezium)
    return float(np.sqrt(np.sum(((above - flat) / nlive) ** 2)))


def information(log_weights: np.ndarray, log_likelihood: np.ndarray, log_z: float) -> float:
    """The information H = E[log L] - log Z, the relative entropy of the posterior (nats)."""
    share = np.exp(log_weights)
    return float(np.sum(share[share > 0] * log_likelihood[share > 0]) - log_z)


def dimensionality(log_weights: np.ndarray, log_likelihood: np.ndarray) -> float:
    """Bayesian model dimensionality 2 Var[log L]: Handley & Lemos (2019), PRD 100:023512."""
    share = np.exp(log_weights)
    share, level = share[share > 0], log_likelihood[share > 0]
    mean = np.sum(share * level)
    return float(2.0 * np.sum(share * (level - mean) ** 2))


def _log_sum(terms: np.ndarray) -> np.ndarray:
    """Log of the sum of exponentials along the last axis."""
    highest = np.max(terms, axis=-1, keepdims=True)
    highest = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.sum(np.exp(terms - highest), axis=-1, keepdims=True))
    return np.asarray((total + highest)[..., 0])
