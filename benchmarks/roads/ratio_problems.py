"""Ratios of evidences with a known value: exact, or by quadrature of two dimensions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from scipy import special, stats

import weighbridge as wb

# Points of the Gauss-Legendre rule in each dimension.
POINTS = 400


class Nested(NamedTuple):
    """A model, data and a point, and the exact log Bayes factor of the point."""

    model: wb.Model
    data: Any
    point: dict[str, Any]
    exact: float


class Pair(NamedTuple):
    """Models of the same data, and their exact log evidences."""

    models: dict[str, wb.Model]
    data: Any
    exact: list[float]


def _regression(p: Any, row: Any) -> Any:
    return dist.Normal(row["x"] @ p["w"], 1.0).log_prob(row["y"])


@functools.cache
def linear(deviations: float) -> Nested:
    """Five coefficients; the last one is held at so many posterior deviations from its mean."""
    x, y = _rows()
    covariance = np.linalg.inv(x.T @ x + np.eye(5))
    mean, scale = (covariance @ x.T @ y)[4], math.sqrt(covariance[4, 4])
    point = mean - deviations * scale
    exact = stats.norm.logpdf(point, mean, scale) - stats.norm.logpdf(point)
    model = wb.Model({"w": dist.Normal(0, 1).expand([5]).to_event(1)}, _regression)
    return Nested(model, {"x": x, "y": y}, {"w": {4: point}}, float(exact))


def _rows() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    x = generator.normal(size=(80, 5))
    x[:, 4] += 0.8 * x[:, 0]
    return x, x @ np.array([0.5, -0.5, 0.2, 0.0, 0.3]) + generator.normal(size=80)


def _logit(p: Any, row: Any) -> Any:
    return dist.Bernoulli(logits=p["a"] + p["b"] * row["x"]).log_prob(row["y"])


def _probit(p: Any, row: Any) -> Any:
    # The two links are about equal at these scales.
    import jax.scipy.stats as jax_stats

    away = (p["a"] + p["b"] * row["x"]) / 1.7
    return jax_stats.norm.logcdf((2.0 * row["y"] - 1.0) * away)


@functools.cache
def _binary() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    x = generator.normal(size=20)
    y = generator.random(20) < special.expit(0.5 + 1.5 * x)
    return {"x": x, "y": y.astype(float)}


def _binary_grid(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes, weights, and the log of likelihood and prior on a grid of a and b."""
    data = _binary()
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    nodes, weights = 20.0 * nodes, 20.0 * weights
    away = nodes[:, None, None] + nodes[None, :, None] * data["x"]
    sign = 2.0 * data["y"] - 1.0
    log_cdf = special.log_expit if name == "logit" else lambda z: special.log_ndtr(z / 1.7)
    height = log_cdf(sign * away).sum(axis=2)
    height += stats.norm.logpdf(nodes, 0, 2.5)[:, None] + stats.norm.logpdf(nodes, 0, 2.5)
    return nodes, weights, height


def _binary_model(log_likelihood: Callable[..., Any]) -> wb.Model:
    prior = {"a": dist.Normal(0, 2.5), "b": dist.Normal(0, 2.5)}
    return wb.Model(prior, log_likelihood, response="probability")


def _log_area(height: np.ndarray, weights: np.ndarray) -> float:
    return float(special.logsumexp(height, b=weights[:, None] * weights))


@functools.cache
def logistic(deviations: float) -> Nested:
    """A skewed posterior: the slope of a logistic regression on 20 rows, towards its long tail."""
    nodes, weights, height = _binary_grid("logit")
    area = _log_area(height, weights)
    density = np.exp(special.logsumexp(height, b=weights[:, None], axis=0) - area) * weights
    mean = density @ nodes
    point = mean + deviations * math.sqrt(density @ (nodes - mean) ** 2)
    data, (line, at) = _binary(), np.polynomial.legendre.leggauss(POINTS)
    line, at = 20.0 * line, 20.0 * at
    logits = line[:, None] + point * data["x"]
    section = special.log_expit((2 * data["y"] - 1) * logits).sum(axis=1)
    exact = special.logsumexp(section + stats.norm.logpdf(line, 0, 2.5), b=at) - area
    return Nested(_binary_model(_logit), data, {"b": float(point)}, float(exact))


EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def _schools(p: Any, row: Any) -> Any:
    import jax.numpy as jnp

    mean = p["mu"] + p["tau"] * jnp.take(p["z"], row["school"])
    return dist.Normal(mean, row["error"]).log_prob(row["effect"])


@functools.cache
def schools(name: str, deviations: float) -> Nested:
    """Eight schools, hierarchical: the mean, or the scale at the edge of its support."""
    data = {"school": np.arange(8), "error": ERRORS, "effect": EFFECTS}
    prior = {
        "mu": dist.Normal(0, 10),
        "tau": dist.HalfNormal(10),
        "z": dist.Normal(0, 1).expand([8]).to_event(1),
    }
    model = wb.Model(prior, _schools)
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    mu, mu_weight = 80.0 * nodes, 80.0 * weights
    tau, tau_weight = 40.0 * (nodes + 1.0), 40.0 * weights

    def height(mu: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Log likelihood with the effects integrated out."""
        spread = np.sqrt(ERRORS**2 + tau[None, :, None] ** 2)
        return stats.norm.logpdf(EFFECTS, mu[:, None, None], spread).sum(axis=2)

    joint = height(mu, tau) + stats.norm.logpdf(mu, 0, 10)[:, None]
    joint += stats.halfnorm.logpdf(tau, scale=10)
    area = special.logsumexp(joint, b=mu_weight[:, None] * tau_weight)
    if name == "tau":
        section = height(mu, np.zeros(1))[:, 0] + stats.norm.logpdf(mu, 0, 10)
        exact = special.logsumexp(section, b=mu_weight) - area
        return Nested(model, data, {"tau": 0.0}, float(exact))
    density = np.exp(special.logsumexp(joint, b=tau_weight, axis=1) - area) * mu_weight
    mean = density @ mu
    point = mean + deviations * math.sqrt(density @ (mu - mean) ** 2)
    section = height(np.array([point]), tau)[0] + stats.halfnorm.logpdf(tau, scale=10)
    exact = special.logsumexp(section, b=tau_weight) - area
    return Nested(model, data, {"mu": float(point)}, float(exact))


@functools.cache
def links() -> Pair:
    """A logit and a probit link with the same parameters and priors."""
    exact = [_log_area(h, w) for _, w, h in map(_binary_grid, ("logit", "probit"))]
    models = {"logit": _binary_model(_logit), "probit": _binary_model(_probit)}
    return Pair(models, _binary(), exact)


@functools.cache
def noises() -> Pair:
    """A Gaussian mean with two noises."""
    data = wb.zoo.gaussian.simulate(100, mean=0.5, seed=1)
    models = {str(noise): wb.zoo.gaussian.model(noise=noise) for noise in (1.0, 1.15)}
    exact = [wb.zoo.gaussian.log_evidence(data, noise=noise) for noise in (1.0, 1.15)]
    return Pair(models, data, exact)


@functools.cache
def subsets() -> Pair:
    """Linear regressions with five, two and one of the columns."""
    x, y = _rows()
    models, exact = {}, []
    for count in (5, 2, 1):
        prior = {f"w{count}": dist.Normal(0, 1).expand([count]).to_event(1)}
        models[f"{count} columns"] = wb.Model(prior, functools.partial(_some, count=count))
        used = x[:, :count]
        exact.append(
            float(stats.multivariate_normal.logpdf(y, np.zeros(80), np.eye(80) + used @ used.T))
        )
    return Pair(models, {"x": x, "y": y}, exact)


def _some(p: Any, row: Any, *, count: int) -> Any:
    return dist.Normal(row["x"][:count] @ p[f"w{count}"], 1.0).log_prob(row["y"])
