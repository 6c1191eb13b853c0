"""A linear autoregression of any order, with unknown noise and an exact evidence."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import gammaln

from weighbridge.core.errors import DataError, ModelError
from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.zoo.arguments import check_count, check_finite, check_positive
from weighbridge.zoo.exact_posterior import ExactPosterior

LOG_TWO_PI = math.log(2.0 * math.pi)

# Rows per factorisation: a block of this size stays in the cache of the processor.
BLOCK = 4096

# Discarded steps before the first row of a simulation, which starts from zero.
WARM_UP = 1000


def model(
    order: int = 1, prior_scale: float = 1.0, concentration: float = 1.0, rate: float = 1.0
) -> Model:
    r"""A series whose mean is linear in its previous values, with a conjugate prior.

    .. math::

        y_t = b + \sum_{j \le k} w_j y_{t-j} + \epsilon_t, \quad \epsilon_t \sim N(0, s^2), \qquad
        s^2 \sim \text{InverseGamma}(\text{concentration}, \text{rate}), \quad
        w_j, b \sim N(0, \text{prior_scale}^2 s^2)

    The coefficients are not restricted: the series need not be stationary.

    Args:
        order: k, the number of previous values on which the mean depends.
        prior_scale: standard deviation of the coefficients, in units of s.
        concentration: of the prior of the variance.
        rate: of the prior of the variance; it has the units of a variance.

    Returns:
        A model of the rows of ``wb.lagged(series, order)``. The order of the rows may be larger:
        models of several orders are compared on the rows of the largest order. The same arguments
        give the same object.

    >>> model(order=3)
    Model(s2, w[3], b; 5 dimensions)
    >>> model(2) is model(order=2, prior_scale=1)
    True

    Reference: Cameron (2020), MSc thesis, Stellenbosch University, equation 1.11.
    """
    return _build(
        check_count("order", order),
        check_positive("prior_scale", prior_scale),
        check_positive("concentration", concentration),
        check_positive("rate", rate),
    )


@functools.cache
def _build(order: int, prior_scale: float, concentration: float, rate: float) -> Model:
    return Model(
        prior={
            "s2": dist.InverseGamma(concentration, rate),
            **_priors_given_variance(order, prior_scale),
        },
        log_likelihood=_log_likelihood,
        response="density",
    )


@functools.cache
def _priors_given_variance(order: int, prior_scale: float) -> dict[str, Any]:
    # The same functions for all priors of the variance, so that other numbers compile nothing.
    return {
        "w": functools.partial(_prior_of_slopes, order=order, prior_scale=prior_scale),
        "b": functools.partial(_prior_of_intercept, prior_scale=prior_scale),
    }


def _prior_of_slopes(parameters: Any, *, order: int, prior_scale: float) -> Any:
    return _prior_of_intercept(parameters, prior_scale=prior_scale).expand([order]).to_event(1)


def _prior_of_intercept(parameters: Any, *, prior_scale: float) -> Any:
    return dist.Normal(0.0, prior_scale * jnp.sqrt(parameters["s2"]))


def _log_likelihood(parameters: Any, row: Any) -> Array:
    slopes, variance = parameters["w"], parameters["s2"]
    order = len(slopes)
    if not (isinstance(row, Mapping) and {"value", "past"} <= set(row)):
        raise ModelError(
            "The autoregression needs rows with their previous values: give "
            f"wb.lagged(series, {order}), where the series is one array [n]."
        )
    if np.ndim(row["past"]) != 1 or len(row["past"]) < order:
        raise ModelError(
            f"The autoregression needs {order} previous values, each a number; 'past' of a row has "
            f"the shape {list(np.shape(row['past']))}. Give wb.lagged(series, {order}), where the "
            "series is one array [n]."
        )
    residual = row["value"] - row["past"][:order] @ slopes - parameters["b"]
    log_density: Array = -0.5 * (LOG_TWO_PI + jnp.log(variance) + residual**2 / variance)
    return log_density


def simulate(
    num_rows: int,
    *,
    coefficients: Sequence[float] = (0.5, -0.4),
    intercept: float = 0.0,
    noise: float = 1.0,
    seed: int = 0,
) -> np.ndarray:
    """A stationary series; the first rows of a longer simulation are those of a shorter one.

    Args:
        num_rows: length of the series.
        coefficients: w, with the coefficient of the most recent value first.
        intercept: b.
        noise: standard deviation s.
        seed: the same seed gives the same numbers.

    >>> simulate(3).shape
    (3,)
    """
    num_rows = check_count("num_rows", num_rows, least=0)
    slopes = [check_finite("coefficients", slope) for slope in coefficients]
    if np.any(np.abs(np.roots([1.0, *np.negative(slopes)])) >= 1.0):
        raise ModelError(
            f"A series with the coefficients {slopes} grows without bound: shrink them."
        )
    deviations = np.random.default_rng(seed).standard_normal(WARM_UP + num_rows)
    series = check_finite("intercept", intercept) + check_positive("noise", noise) * deviations
    from scipy.signal import lfilter  # slow to import, and used only here

    filtered: np.ndarray = lfilter([1.0], [1.0, *np.negative(slopes)], series)
    return filtered[WARM_UP:]


def log_evidence(
    data: Mapping[str, Any],
    *,
    order: int = 1,
    prior_scale: float = 1.0,
    concentration: float = 1.0,
    rate: float = 1.0,
) -> float:
    """Exact log evidence of the model on lagged rows, conditional on the values before them.

    >>> from weighbridge.data.lags import lagged
    >>> rows = lagged(simulate(200), order=2)
    >>> round(log_evidence(rows, order=1), 4), round(log_evidence(rows, order=2), 4)
    (-287.8431, -284.8526)
    """
    _, target, _ = _check_columns(data, check_count("order", order))
    path = log_evidence_path(data, [len(target)], order, prior_scale, concentration, rate)
    return float(path[0])


def log_evidence_path(
    data: Mapping[str, Any],
    rows: Sequence[int],
    order: int = 1,
    prior_scale: float = 1.0,
    concentration: float = 1.0,
    rate: float = 1.0,
) -> np.ndarray:
    r"""Exact log evidence of the first n lagged rows, for every n in ``rows``, in one pass.

    With the rows :math:`\Phi = [\text{past}, 1]` of D entries, v = prior_scale, a = concentration
    and r = rate, a triangular factor R gives the evidence without differences of large sums:

    .. math::

        R^T R = \begin{pmatrix} I/v^2 + \Phi^T\Phi & \Phi^T y \\ y^T\Phi & y^T y \end{pmatrix},
        \qquad
        \log Z = -\frac{n}{2} \log 2\pi - D \log v - \sum_{i \le D} \log |R_{ii}|
                 + \log \frac{\Gamma(a + n/2)}{\Gamma(a)} + a \log r
                 - (a + \tfrac n2) \log (r + \tfrac12 R_{D+1,D+1}^2)

    Args:
        data: columns "value" and "past" of ``wb.lagged``, and optionally "weight".
        rows: numbers of rows, in any order; 0 gives 0.
        order: the number of previous values on which the mean depends, the most recent ones.
        prior_scale: standard deviation of the coefficients, in units of s.
        concentration: of the prior of the variance.
        rate: of the prior of the variance.

    Returns:
        One log evidence for each entry of ``rows``.

    >>> from weighbridge.data.lags import lagged
    >>> log_evidence_path(lagged(simulate(200), order=2), [0, 10, 198], order=2).round(4)
    array([   0.    ,  -12.4707, -284.8526])

    Reference: Murphy (2012), Machine learning: a probabilistic perspective, section 7.6.3.
    """
    order, prior_scale = check_count("order", order), check_positive("prior_scale", prior_scale)
    concentration = check_positive("concentration", concentration)
    rate = check_positive("rate", rate)
    wanted = np.asarray(rows, dtype=int).reshape(-1)
    results = np.zeros(len(wanted))
    for stop, factor, count in _factors(data, wanted, order, prior_scale):
        diagonal = np.abs(np.diag(factor))
        shape = concentration + 0.5 * count
        misfit = 0.5 * diagonal[order + 1] ** 2
        results[wanted == stop] = (
            gammaln(shape)
            - gammaln(concentration)
            # a log r - (a + n/2) log(r + misfit), written so that it is exactly 0 without rows.
            - concentration * math.log1p(misfit / rate)
            - 0.5 * count * (LOG_TWO_PI + math.log(rate + misfit))
            - np.sum(np.log(prior_scale * diagonal[: order + 1]))
        )
    return results


def _factors(
    data: Mapping[str, Any], wanted: np.ndarray, order: int, prior_scale: float
) -> Iterator[tuple[int, np.ndarray, float]]:
    """For each wanted number of rows: that number, the factor R, and the sum of the weights."""
    past, target, weight = _check_columns(data, order)
    if np.any((wanted < 0) | (wanted > len(target))):
        raise DataError(f"rows must lie between 0 and {len(target)}, the rows of the data.")
    factor = np.eye(order + 1, order + 2) / prior_scale
    count, start = 0.0, 0
    for stop in np.unique(wanted[wanted > 0]):
        while start < stop:
            end = min(start + BLOCK, int(stop))
            ones = np.ones((end - start, 1))
            block = np.hstack([past[start:end], ones, target[start:end, None]])
            block *= np.sqrt(weight[start:end, None])
            factor = np.asarray(np.linalg.qr(np.vstack([factor, block]), mode="r"))
            count += float(np.sum(weight[start:end]))
            start = end
        yield int(stop), factor, count


def posterior(
    data: Mapping[str, Any],
    *,
    order: int = 1,
    prior_scale: float = 1.0,
    concentration: float = 1.0,
    rate: float = 1.0,
) -> ExactPosterior:
    r"""Exact posterior of the model on lagged rows, from the factor R of ``log_evidence_path``.

    .. math::

        s^2 | y \sim \text{InverseGamma}(a + \tfrac n2, r + \tfrac12 R_{D+1,D+1}^2), \qquad
        (w, b) | s^2, y \sim N(R_{11}^{-1} R_{12}, \; s^2 R_{11}^{-1} R_{11}^{-T})

    >>> from weighbridge.data.lags import lagged
    >>> found = posterior(lagged(simulate(2000), order=2), order=2)
    >>> found.mean["w"].round(1).tolist(), round(float(found.mean["s2"]), 1)
    ([0.5, -0.4], 1.0)
    """
    order, prior_scale = check_count("order", order), check_positive("prior_scale", prior_scale)
    concentration = check_positive("concentration", concentration)
    rate = check_positive("rate", rate)
    _, target, _ = _check_columns(data, order)
    if not len(target):
        raise DataError("There are no rows: the posterior is the prior.")
    ((_, factor, count),) = _factors(data, np.array([len(target)]), order, prior_scale)
    root = factor[: order + 1, : order + 1]
    centre = np.linalg.solve(root, factor[: order + 1, order + 1])
    # With as few rows as coefficients nothing is left over.
    misfit = 0.5 * float(factor[order + 1, order + 1]) ** 2 if len(factor) > order + 1 else 0.0
    return ExactPosterior(
        {"w": centre[:-1], "b": np.array(centre[-1])},
        root,
        "s2",
        concentration + 0.5 * count,
        rate + misfit,
    )


def _check_columns(data: Any, order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not (isinstance(data, Mapping) and {"value", "past"} <= set(data)):
        raise DataError(
            f"The rows need their previous values: give wb.lagged(series, {order}), where the "
            "series is one array [n]."
        )
    past, target = np.asarray(data["past"], np.float64), np.asarray(data["value"], np.float64)
    weight = np.asarray(data["weight"] if "weight" in data else np.ones(len(target)), np.float64)
    shapes_fit = past.ndim == 2 and past.shape[1] >= order and target.shape == (len(past),)
    if not shapes_fit or weight.shape != target.shape:
        raise DataError(
            f"The columns must have the shapes past [n, {order} or more], value [n] and weight "
            f"[n]; they have past {list(past.shape)}, value {list(target.shape)}, weight "
            f"{list(weight.shape)}."
        )
    past = past[:, :order]
    if not (np.isfinite(past).all() and np.isfinite(target).all()):
        raise DataError("The columns past and value must be finite: remove the rows that are not.")
    if not np.all(np.isfinite(weight) & (weight >= 0)):
        raise DataError("The column weight must be finite and >= 0.")
    return past, target, weight
