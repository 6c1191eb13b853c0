"""The problems of ``benchmarks.sgais.headline``: models, data, and where to look for the mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import special, stats

import weighbridge as wb

# The first two features of the logistic regression differ by noise of this size, so the data only
# inform about the sum of their slopes. Along the difference the posterior is a product of two
# Student t's with different centres: broad, flat on top, and with heavy tails.
COLLINEAR = 0.002
INTERCEPT = -0.5
SLOPES = np.array([2.5, 2.5, 0.3, -1.2])
# Slopes with the horseshoe prior; the posterior of their scales is nearly as wide and skewed as
# the prior.
SPARSE_SLOPES = np.array([0.6, -0.4, 0.1, -0.1, 0.1, 0.2, -1.0])
DEGREES = 3.0
INTERCEPT_SCALE = 2.0


class Problem(NamedTuple):
    """A model, how its rows are made, and a point from which Newton's method finds the mode.

    Attributes:
        model: the model of the rows.
        simulate: a function that makes a number of rows.
        start: named parameters near the mode; None for the centre of the unconstrained space.
    """

    model: wb.Model
    simulate: Callable[[int], Any]
    start: dict[str, np.ndarray] | None


def linear() -> Problem:
    """Linear regression, 6 parameters."""
    return Problem(wb.zoo.linear.model(), functools.partial(wb.zoo.linear.simulate, seed=1), None)


def softmax() -> Problem:
    """Softmax regression, 44 parameters."""
    simulate = functools.partial(wb.zoo.logistic.simulate, seed=1)
    return Problem(wb.zoo.logistic.model(), simulate, None)


def mixture() -> Problem:
    """A mixture of five on data with five clusters; the generating parameters are the start."""
    simulate = functools.partial(wb.zoo.mixture.simulate, seed=1)
    start = wb.zoo.mixture.simulate_parameters(seed=1)
    return Problem(wb.zoo.mixture.model(5), simulate, start)


def seven() -> Problem:
    """A mixture of seven on the same data: two components are too many."""
    return mixture()._replace(model=wb.zoo.mixture.model(7), start=None)


def shrinkage() -> Problem:
    """Logistic regression with Student-t and horseshoe priors, 20 parameters."""
    start = {
        "intercept": np.array(INTERCEPT),
        "slopes": SLOPES,
        "shrinkage": np.array(0.3),
        "scales": np.abs(SPARSE_SLOPES) / 0.3,
        "sparse": SPARSE_SLOPES,
    }
    return Problem(_shrinkage_model(), simulate_shrinkage, start)


@functools.cache
def _shrinkage_model() -> wb.Model:
    return wb.Model(
        prior={
            "intercept": dist.Normal(0.0, INTERCEPT_SCALE),
            "slopes": dist.StudentT(DEGREES, 0.0, 1.0).expand([len(SLOPES)]).to_event(1),
            "shrinkage": dist.HalfCauchy(1.0),
            "scales": dist.HalfCauchy(1.0).expand([len(SPARSE_SLOPES)]).to_event(1),
            "sparse": _prior_of_sparse,
        },
        log_likelihood=_logistic,
    )


def _prior_of_sparse(parameters: Any) -> Any:
    return dist.Normal(0.0, parameters["shrinkage"] * parameters["scales"]).to_event(1)


def _logistic(parameters: Any, row: Any) -> Any:
    slopes = jnp.concatenate([parameters["slopes"], parameters["sparse"]])
    score = parameters["intercept"] + row["x"] @ slopes
    return jax.nn.log_sigmoid(jnp.where(row["y"] > 0, score, -score))


def simulate_shrinkage(num_rows: int, seed: int = 1) -> dict[str, np.ndarray]:
    """Rows of the logistic regression; the first two features are nearly equal."""
    of_features, of_labels = np.random.default_rng(seed).spawn(2)
    features = of_features.standard_normal((num_rows, len(SLOPES) + len(SPARSE_SLOPES)))
    features[:, 1] = features[:, 0] + COLLINEAR * features[:, 1]
    score = INTERCEPT + features @ np.concatenate([SLOPES, SPARSE_SLOPES])
    return {"x": features, "y": (of_labels.logistic(size=num_rows) < score).astype(float)}


@functools.cache
def slopes_model() -> wb.Model:
    """The same regression with plain priors and no scales; its coordinates are its slopes."""
    return wb.Model(
        prior={
            "intercept": dist.Normal(0.0, INTERCEPT_SCALE),
            "slopes": dist.Normal(0.0, 2.0).expand([len(SLOPES)]).to_event(1),
            "sparse": dist.Normal(0.0, 1.0).expand([len(SPARSE_SLOPES)]).to_event(1),
        },
        log_likelihood=_logistic,
    )


def log_prior_of_slopes(position: np.ndarray) -> np.ndarray:
    r"""Log prior of intercept and slopes with all scales integrated out, one for each point.

    The local scales are integrated in closed form (Carvalho, Polson & Scott 2010, Biometrika
    97:465-480), the common scale tau by quadrature:

    .. math:: p(b | \tau) = \frac{e^u E_1(u)}{\tau \sqrt{2 \pi^3}}, \qquad u = b^2 / 2\tau^2
    """
    intercept, rest = position[:, 0], position[:, 1:]
    slopes, sparse = rest[:, : len(SLOPES)], rest[:, len(SLOPES) :]
    found = stats.norm.logpdf(intercept, scale=INTERCEPT_SCALE)
    found = found + np.sum(stats.t.logpdf(slopes, DEGREES), axis=1)
    log_tau = np.linspace(-18.0, 14.0, 321)
    tau = np.exp(log_tau)[:, None, None]
    half_cauchy = np.log(2 * tau[..., 0] / (np.pi * (1 + tau[..., 0] ** 2)))
    each = np.log(_scaled_exponential_integral(sparse**2 / (2 * tau**2)) / tau)
    height = np.sum(each - 0.5 * np.log(2 * np.pi**3), axis=-1) + half_cauchy
    # Trapezoidal rule; the integrand vanishes at both ends, so it is far better than its order.
    found += special.logsumexp(height, axis=0) + np.log(log_tau[1] - log_tau[0])
    return np.asarray(found)


def _scaled_exponential_integral(u: np.ndarray) -> np.ndarray:
    """e^u E_1(u), without overflow."""
    small = np.minimum(u, 100.0)
    large = np.maximum(u, 100.0)
    series = (1 - (1 - (2 - 6 / large) / large) / large) / large
    return np.asarray(np.where(u < 100.0, np.exp(small) * special.exp1(small), series))
