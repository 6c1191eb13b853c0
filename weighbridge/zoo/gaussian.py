"""A Gaussian with unknown mean and known noise: a minimal model with an exact evidence."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpyro.distributions as dist

from weighbridge.core.errors import DataError
from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.zoo.arguments import check_count, check_finite, check_positive
from weighbridge.zoo.exact_posterior import ExactPosterior

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def model(prior_mean: float = 0.0, prior_scale: float = 1.0, noise: float = 1.0) -> Model:
    r"""Gaussian observations around an unknown mean with a Gaussian prior.

    .. math:: \mu \sim N(\text{prior_mean}, \text{prior_scale}^2), \qquad
              y \sim N(\mu, \text{noise}^2)

    Args:
        prior_mean: mean of the prior of mu.
        prior_scale: standard deviation of the prior of mu.
        noise: standard deviation of y around mu.

    Returns:
        A model of rows that are single numbers (the data is one array ``[n]``). The same
        arguments give the same object.

    >>> model()
    Model(mu; 1 dimensions)
    >>> model(noise=2) is model(0.0, 1.0, 2.0)
    True

    Reference: Cameron, Eggers and Kroon (2019), Entropy 21:1109; this is their linear regression
    without features.
    """
    return _build(
        check_finite("prior_mean", prior_mean),
        check_positive("prior_scale", prior_scale),
        check_positive("noise", noise),
    )


@functools.cache
def _build(prior_mean: float, prior_scale: float, noise: float) -> Model:
    return Model(
        prior={"mu": dist.Normal(prior_mean, prior_scale)},
        log_likelihood=_log_likelihood_of(noise),
        response="density",
    )


@functools.cache
def _log_likelihood_of(noise: float) -> functools.partial[Array]:
    # The same function for all priors, so that other prior numbers compile nothing.
    return functools.partial(_log_likelihood, noise=noise)


def _log_likelihood(parameters: Any, row: Any, *, noise: float) -> Array:
    residual = (row - parameters["mu"]) / noise
    log_density: Array = -0.5 * residual**2 - (HALF_LOG_TWO_PI + math.log(noise))
    return log_density


def simulate(num_rows: int, *, mean: float = 2.0, noise: float = 1.0, seed: int = 0) -> np.ndarray:
    """Normal numbers around a mean; the first rows do not depend on ``num_rows``.

    >>> simulate(3).shape
    (3,)
    """
    num_rows = check_count("num_rows", num_rows, least=0)
    generator = np.random.default_rng(seed)
    deviations = generator.standard_normal(num_rows)
    return check_finite("mean", mean) + check_positive("noise", noise) * deviations


def log_evidence(
    data: Any, *, prior_mean: float = 0.0, prior_scale: float = 1.0, noise: float = 1.0
) -> float:
    """Exact log evidence of the model on the data.

    >>> round(log_evidence(simulate(100)), 4)
    -142.6302
    """
    return float(log_evidence_path(data, [len(data)], prior_mean, prior_scale, noise)[0])


def log_evidence_path(
    data: Any,
    rows: Sequence[int],
    prior_mean: float = 0.0,
    prior_scale: float = 1.0,
    noise: float = 1.0,
) -> np.ndarray:
    r"""Exact log evidence of the first n rows, for every n in ``rows``, in one pass.

    With z = (y - prior_mean) / noise, its mean over n rows, and r = (prior_scale / noise)^2:

    .. math:: \log Z = -\frac{n}{2} \log 2\pi\,\text{noise}^2 - \frac12 \log(1 + n r)
              - \frac12 \sum_i (z_i - \bar z)^2 - \frac{n \bar z^2}{2 (1 + n r)}

    >>> log_evidence_path(simulate(100), [0, 1, 100]).round(4)
    array([   0.    ,   -2.3952, -142.6302])
    """
    prior_mean = check_finite("prior_mean", prior_mean)
    ratio = (check_positive("prior_scale", prior_scale) / check_positive("noise", noise)) ** 2
    values = _check_values(data)
    count = np.asarray(rows, dtype=int).reshape(-1)
    if np.any((count < 0) | (count > len(values))):
        raise DataError(f"rows must lie between 0 and {len(values)}, the rows of the data.")
    deviation = (values - prior_mean) / noise
    # Sums around the mean of all rows, so that no large squares are subtracted.
    centre = float(np.mean(deviation)) if len(values) else 0.0
    first = np.concatenate([[0.0], np.cumsum(deviation - centre)])[count]
    second = np.concatenate([[0.0], np.cumsum((deviation - centre) ** 2)])[count]
    shift = first / np.maximum(count, 1)
    spread = second - count * shift**2
    constant = count * (HALF_LOG_TWO_PI + math.log(noise))
    pull = count * (centre + shift) ** 2 / (1.0 + count * ratio)
    log_z: np.ndarray = -constant - 0.5 * (np.log1p(count * ratio) + spread + pull)
    return log_z + 0.0  # without rows the result is 0, not -0


def posterior(
    data: Any, *, prior_mean: float = 0.0, prior_scale: float = 1.0, noise: float = 1.0
) -> ExactPosterior:
    r"""Exact posterior of the model on the data.

    .. math:: \mu | y \sim N\left(\frac{m / t^2 + \sum_i y_i / s^2}{1 / t^2 + n / s^2},
              \frac{1}{1 / t^2 + n / s^2}\right)

    Here m and t are the mean and the standard deviation of the prior, and s is the noise.

    >>> found = posterior([1.0, 2.0, 3.0])
    >>> float(found.mean["mu"]), float(found.std["mu"])
    (1.5, 0.5)
    """
    prior_mean = check_finite("prior_mean", prior_mean)
    prior_scale = check_positive("prior_scale", prior_scale)
    noise = check_positive("noise", noise)
    values = _check_values(data)
    precision = prior_scale**-2 + len(values) * noise**-2
    shift = float(np.sum(values - prior_mean)) * noise**-2 / precision
    return ExactPosterior({"mu": np.array(prior_mean + shift)}, np.array([[math.sqrt(precision)]]))


def _check_values(data: Any) -> np.ndarray:
    values = np.asarray(data, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise DataError("The data must be one array of finite numbers with one axis.")
    return values
