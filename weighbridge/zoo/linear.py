"""Linear regression with known noise, whose evidence is known exactly for any number of rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpyro.distributions as dist

from weighbridge.core.errors import DataError
from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.zoo.arguments import check_count, check_positive
from weighbridge.zoo.exact_posterior import ExactPosterior

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)

# Rows per factorisation: a block of this size stays in the cache of the processor.
BLOCK = 4096


def model(num_features: int = 5, noise: float = 1.0) -> Model:
    r"""Linear regression with standard normal priors and a known noise.

    .. math:: y = w^T x + b + \epsilon, \qquad \epsilon \sim N(0, \text{noise}^2)

    Args:
        num_features: length of x.
        noise: standard deviation of y around the line.

    Returns:
        A model of rows ``{"x": (num_features,), "y": ()}``. The same arguments give the same
        object.

    >>> model(num_features=3)
    Model(w[3], b; 4 dimensions)
    >>> model() is model(num_features=5, noise=1)
    True

    Reference: Cameron, Eggers and Kroon (2019), Entropy 21:1109, appendix B.1.
    """
    return _build(check_count("num_features", num_features), check_positive("noise", noise))


@functools.cache
def _build(num_features: int, noise: float) -> Model:
    return Model(
        prior={
            "w": dist.Normal(0.0, 1.0).expand([num_features]).to_event(1),
            "b": dist.Normal(0.0, 1.0),
        },
        log_likelihood=functools.partial(_log_likelihood, noise=noise),
        response="density",
    )


def _log_likelihood(parameters: Any, row: Any, *, noise: float) -> Array:
    residual = (row["y"] - row["x"] @ parameters["w"] - parameters["b"]) / noise
    log_density: Array = -0.5 * residual**2 - (HALF_LOG_TWO_PI + math.log(noise))
    return log_density


def simulate(
    num_rows: int, *, num_features: int = 5, noise: float = 1.0, seed: int = 0
) -> dict[str, np.ndarray]:
    """Rows from the model: parameters from the prior, x standard normal.

    The first rows of a longer simulation are those of a shorter one.

    >>> data = simulate(100, num_features=2)
    >>> data["x"].shape, data["y"].shape
    ((100, 2), (100,))
    """
    num_rows = check_count("num_rows", num_rows, least=0)
    num_features = check_count("num_features", num_features)
    noise = check_positive("noise", noise)
    of_parameters, of_features, of_noise = np.random.default_rng(seed).spawn(3)
    slopes = of_parameters.standard_normal(num_features)
    intercept = of_parameters.standard_normal()
    features = of_features.standard_normal((num_rows, num_features))
    target = features @ slopes + intercept + noise * of_noise.standard_normal(num_rows)
    return {"x": features, "y": target}


def log_evidence(data: Mapping[str, Any], *, noise: float = 1.0) -> float:
    """Exact log evidence of the model on the data.

    An optional column ``weight`` counts repeated rows.

    >>> round(log_evidence(simulate(1000)), 4)
    -1424.1227
    """
    return float(log_evidence_path(data, [len(data["y"])], noise)[0])


def log_evidence_path(
    data: Mapping[str, Any], rows: Sequence[int], noise: float = 1.0
) -> np.ndarray:
    r"""Exact log evidence of the first n rows, for every n in ``rows``, in one pass.

    With the rows :math:`\Phi = [x, 1]`, stack the prior (as additional rows) on the data. The
    triangular factor R of this matrix gives the evidence without differences of large sums:

    .. math::

        R^T R = \begin{pmatrix} I + \Phi^T\Phi/s^2 & \Phi^T y/s^2 \\
                                y^T\Phi/s^2 & y^T y/s^2 \end{pmatrix}, \qquad
        \log Z = -\frac{n}{2} \log 2\pi s^2 - \sum_{i \le D} \log |R_{ii}|
                 - \frac12 R_{D+1,D+1}^2

    Args:
        data: columns "x" and "y", and optionally "weight", which counts repeated rows.
        rows: numbers of rows, in any order; 0 gives 0.
        noise: standard deviation of y around the line.

    Returns:
        One log evidence for each entry of ``rows``.

    >>> log_evidence_path(simulate(1000), [0, 10, 1000]).round(4)
    array([    0.    ,   -18.1398, -1424.1227])

    Reference: Cameron, Eggers and Kroon (2019), Entropy 21:1109, appendix B.1.
    """
    noise = check_positive("noise", noise)
    wanted = np.asarray(rows, dtype=int).reshape(-1)
    results = np.zeros(len(wanted))
    for stop, factor, count in _factors(data, wanted, noise):
        results[wanted == stop] = _read_factor(factor, len(factor) - 1, count, noise)
    return results


def _factors(
    data: Mapping[str, Any], wanted: np.ndarray, noise: float
) -> Iterator[tuple[int, np.ndarray, float]]:
    """For each wanted number of rows: that number, the factor R, and the sum of the weights."""
    features, target, weight = _check_columns(data)
    if np.any((wanted < 0) | (wanted > len(target))):
        raise DataError(f"rows must lie between 0 and {len(target)}, the rows of the data.")
    num_parameters = features.shape[1] + 1
    factor = np.eye(num_parameters + 1)[:num_parameters]
    count, start = 0.0, 0
    for stop in np.unique(wanted[wanted > 0]):
        while start < stop:
            end = min(start + BLOCK, int(stop))
            root = np.sqrt(weight[start:end, None])
            ones = np.ones((end - start, 1))
            block = np.hstack([features[start:end], ones, target[start:end, None]])
            stacked = np.vstack([factor, root * block / noise])
            factor = np.asarray(np.linalg.qr(stacked, mode="r"))
            count += float(np.sum(weight[start:end]))
            start = end
        yield int(stop), factor, count


def posterior(data: Mapping[str, Any], *, noise: float = 1.0) -> ExactPosterior:
    r"""Exact posterior of the model on the data, from the factor R of ``log_evidence_path``.

    .. math:: (w, b) | y \sim N(R_{11}^{-1} R_{12}, \; R_{11}^{-1} R_{11}^{-T})

    An optional column ``weight`` counts repeated rows.

    >>> found = posterior(simulate(1000, num_features=2))
    >>> found.mean["w"].shape, bool(0.03 < found.std["b"] < 0.04)
    ((2,), True)
    """
    noise = check_positive("noise", noise)
    num_rows = len(data["y"])
    if not num_rows:
        raise DataError("There are no rows: the posterior is the prior.")
    ((_, factor, _),) = _factors(data, np.array([num_rows]), noise)
    size = factor.shape[1] - 1
    root = factor[:size, :size]
    centre = np.linalg.solve(root, factor[:size, size])
    return ExactPosterior({"w": centre[:-1], "b": np.array(centre[-1])}, root)


def _read_factor(factor: np.ndarray, num_parameters: int, count: float, noise: float) -> float:
    diagonal = np.abs(np.diag(factor))
    log_determinant = np.sum(np.log(diagonal[:num_parameters]))
    constant = count * (HALF_LOG_TWO_PI + math.log(noise))
    return float(-constant - log_determinant - 0.5 * diagonal[num_parameters] ** 2)


def _check_columns(data: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    features, target = np.asarray(data["x"], np.float64), np.asarray(data["y"], np.float64)
    weight = np.asarray(data["weight"] if "weight" in data else np.ones(len(target)), np.float64)
    if features.ndim != 2 or target.shape != (len(features),) or weight.shape != target.shape:
        raise DataError(
            f"The columns must have the shapes x [n, d], y [n] and weight [n]; they have x "
            f"{list(features.shape)}, y {list(target.shape)}, weight {list(weight.shape)}."
        )
    if not (np.isfinite(features).all() and np.isfinite(target).all()):
        raise DataError("The columns x and y must be finite: remove the rows that are not.")
    if not np.all(np.isfinite(weight) & (weight >= 0)):
        raise DataError("The column weight counts repeated rows: it must be finite and >= 0.")
    return features, target, weight
