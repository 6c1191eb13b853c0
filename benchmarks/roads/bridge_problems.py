"""Skewed posteriors, and examples like those of R's bridgesampling, with their log evidences."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import integrate, special, stats

import weighbridge as wb
from benchmarks.problems import Problem

# --- small skewed posteriors ----------------------------------------------------------------


def exponential(size: int = 3, num_rows: int = 1) -> Problem:
    """Rates of exponential observations with Gamma(1, 1) priors: skewed log rates, exact."""
    y = np.random.default_rng(1).exponential(1.0, size=(num_rows, size))
    model = wb.Model(
        {"rate": dist.Gamma(jnp.ones(size), 1.0).to_event(1)},
        lambda p, row: jnp.sum(dist.Exponential(p["rate"]).log_prob(row["y"])),
    )
    shape, total = 1.0 + num_rows, 1.0 + y.sum(axis=0)
    exact = float(np.sum(special.gammaln(shape) - shape * np.log(total)))
    return Problem(model, {"y": y}, exact)


def logistic(num_rows: int = 15) -> Problem:
    """Logistic regression of few rows that can nearly be separated; by quadrature."""
    numbers = np.random.default_rng(2)
    x = numbers.normal(size=num_rows)
    y = (numbers.random(num_rows) < special.expit(1.0 + 3.0 * x)).astype(float)
    model = wb.Model(
        {"a": dist.Normal(0.0, 3.0), "b": dist.Normal(0.0, 3.0)},
        lambda p, row: dist.Bernoulli(logits=p["a"] + p["b"] * row["x"]).log_prob(row["y"]),
    )
    grid = np.linspace(-24.0, 24.0, 1201)
    a, b = grid[:, None], grid[None, :]
    log_joint = stats.norm(0, 3).logpdf(a) + stats.norm(0, 3).logpdf(b)
    for here, label in zip(x, y):
        log_joint = log_joint - np.logaddexp(0.0, (1.0 - 2.0 * label) * (a + b * here))
    exact = float(special.logsumexp(log_joint) + 2 * math.log(grid[1] - grid[0]))
    return Problem(model, {"x": x, "y": y}, exact)


def schools() -> Problem:
    """The eight schools (Rubin 1981), non-centred; all but tau is integrated exactly."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    s = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    model = wb.Model(
        {
            "mu": dist.Normal(0.0, 5.0),
            "tau": dist.HalfCauchy(5.0),
            "raw": dist.Normal(0.0, 1.0).expand([8]).to_event(1),
        },
        lambda p, row: dist.Normal(
            p["mu"] + p["tau"] * p["raw"][row["j"].astype(int)], row["s"]
        ).log_prob(row["y"]),
    )

    def given(tau: float) -> float:
        covariance = np.diag(s**2 + tau**2) + 25.0
        likelihood = stats.multivariate_normal(np.zeros(8), covariance).logpdf(y)
        return float(np.exp(likelihood + stats.halfcauchy(0, 5).logpdf(tau) + 35.0))

    pieces = [(0, 10), (10, 50), (50, 500), (500, np.inf)]
    area = sum(integrate.quad(given, *piece, epsabs=0, epsrel=1e-10)[0] for piece in pieces)
    return Problem(model, {"y": y, "s": s, "j": np.arange(8.0)}, math.log(area) - 35.0)


# --- examples in kind of R's bridgesampling (Gronau, Singmann & Wagenmakers 2020, JSS 92(10)) ----


def hierarchical_normal(*, free_mean: bool) -> Problem:
    """20 groups of one observation: theta_i ~ N(mu, tau2), with mu free or 0; exact but for tau2.

    The variance of the observations is 1, mu ~ N(0, 1), tau2 ~ InverseGamma(1, 1).
    """
    numbers = np.random.default_rng(12345)
    y = numbers.normal(numbers.normal(0.0, math.sqrt(0.5), 20), 1.0)
    prior: dict[str, Any] = {"tau2": dist.InverseGamma(1.0, 1.0)}
    if free_mean:
        prior["mu"] = dist.Normal(0.0, 1.0)
    prior["theta"] = lambda p: dist.Normal(
        p.get("mu", 0.0) * jnp.ones(20), jnp.sqrt(p["tau2"])
    ).to_event(1)
    model = wb.Model(
        prior, lambda p, row: dist.Normal(p["theta"][row["i"].astype(int)], 1.0).log_prob(row["y"])
    )

    def given(tau2: float) -> float:
        covariance = (1.0 + tau2) * np.eye(20) + (1.0 if free_mean else 0.0)
        likelihood = stats.multivariate_normal(np.zeros(20), covariance).logpdf(y)
        return float(np.exp(likelihood + stats.invgamma(1, scale=1).logpdf(tau2) + 30.0))

    pieces = [(0, 0.2), (0.2, 2), (2, 20), (20, np.inf)]
    area = sum(integrate.quad(given, *piece, epsabs=0, epsrel=1e-10)[0] for piece in pieces)
    return Problem(model, {"y": y, "i": np.arange(20.0)}, math.log(area) - 30.0)


CLUTCHES, TURTLES = 31, 244


def turtles(*, random_effects: bool) -> Problem:
    """Survival of 244 turtles of 31 clutches by weight: a probit model, simulated.

    Fixed effects a, b ~ N(0, 10) (variance 10); clutches b_k ~ N(0, s2), s2 ~ InverseGamma(1, 1).
    Given the fixed effects and s2, each clutch is integrated by Gauss-Hermite quadrature; the rest
    by a grid around its mode.
    """
    numbers = np.random.default_rng(31)
    clutch = np.sort(numbers.integers(0, CLUTCHES, TURTLES))
    x = numbers.normal(size=TURTLES)
    effects = 0.6 * numbers.normal(size=CLUTCHES)
    y = (numbers.normal(size=TURTLES) < 0.3 + 0.4 * x + effects[clutch]).astype(float)
    fixed = {"a": dist.Normal(0.0, math.sqrt(10.0)), "b": dist.Normal(0.0, math.sqrt(10.0))}
    sign = 2.0 * y - 1.0
    data = {"x": x, "sign": sign, "k": clutch.astype(float)}
    if not random_effects:
        model = wb.Model(
            fixed,
            lambda p, row: jax.scipy.stats.norm.logcdf(row["sign"] * (p["a"] + p["b"] * row["x"])),
        )
        grid = np.linspace(-1.5, 2.0, 351)
        a, b = np.meshgrid(grid, grid, indexing="ij")
        height = stats.norm(0, math.sqrt(10)).logpdf(a) + stats.norm(0, math.sqrt(10)).logpdf(b)
        for here, one in zip(x, sign):
            height = height + special.log_ndtr(one * (a + b * here))
        exact = float(special.logsumexp(height) + 2 * math.log(grid[1] - grid[0]))
        return Problem(model, data, exact)
    model = wb.Model(
        fixed
        | {
            "s2": dist.InverseGamma(1.0, 1.0),
            "raw": dist.Normal(0.0, 1.0).expand([CLUTCHES]).to_event(1),
        },
        lambda p, row: jax.scipy.stats.norm.logcdf(
            row["sign"]
            * (p["a"] + p["b"] * row["x"] + jnp.sqrt(p["s2"]) * p["raw"][row["k"].astype(int)])
        ),
    )
    return Problem(model, data, _turtles_by_quadrature(x, sign, clutch))


def _turtles_by_quadrature(x: np.ndarray, sign: np.ndarray, clutch: np.ndarray) -> float:
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    log_weights = np.log(weights / weights.sum())
    members = [np.flatnonzero(clutch == k) for k in range(CLUTCHES)]

    def log_joint(a: np.ndarray, b: np.ndarray, log_s2: np.ndarray) -> np.ndarray:
        shift = np.exp(0.5 * log_s2)[:, None] * nodes
        total = stats.norm(0, math.sqrt(10)).logpdf(a) + stats.norm(0, math.sqrt(10)).logpdf(b)
        total = total + stats.invgamma(1, scale=1).logpdf(np.exp(log_s2)) + log_s2
        for rows in members:
            inside = np.zeros_like(shift)
            for row in rows:
                inside += special.log_ndtr(sign[row] * ((a + b * x[row])[:, None] + shift))
            total = total + special.logsumexp(inside + log_weights, axis=1)
        return total

    grids = [np.linspace(-0.6, 1.5, 31), np.linspace(-0.4, 1.4, 31), np.linspace(-5.0, 4.0, 46)]
    steps = [grid[1] - grid[0] for grid in grids]
    parts = []
    for log_s2 in grids[2]:
        a, b = (leaf.ravel() for leaf in np.meshgrid(grids[0], grids[1], indexing="ij"))
        parts.append(special.logsumexp(log_joint(a, b, np.full(a.shape, log_s2))))
    return float(special.logsumexp(parts) + np.sum(np.log(steps)))


VARIABLES, OBSERVATIONS = 9, 300


def factors(num_factors: int) -> wb.Model:
    """A factor model of nine variables; the factors are integrated exactly.

    Loadings below the diagonal ~ N(0, 1), on it half-normal; variances ~ InverseGamma(1.1, 0.055)
    (Lopes & West 2004, Statistica Sinica 14:41-67).
    """
    below = [(i, j) for i in range(VARIABLES) for j in range(num_factors) if i > j]
    rows, columns = (np.array(index) for index in zip(*below))
    diagonal = np.arange(num_factors)

    def total(p: Any, data: Any) -> Any:
        loadings = jnp.zeros((VARIABLES, num_factors))
        loadings = loadings.at[rows, columns].set(p["below"])
        loadings = loadings.at[diagonal, diagonal].set(p["diagonal"])
        covariance = loadings @ loadings.T + jnp.diag(p["variance"])
        spread = dist.MultivariateNormal(jnp.zeros(VARIABLES), covariance)
        return jnp.sum(spread.log_prob(data["y"]))

    prior = {
        "below": dist.Normal(0.0, 1.0).expand([len(below)]).to_event(1),
        "diagonal": dist.HalfNormal(1.0).expand([num_factors]).to_event(1),
        "variance": dist.InverseGamma(1.1, 0.055).expand([VARIABLES]).to_event(1),
    }
    return wb.Model(prior, total_log_likelihood=total)


def factor_data() -> dict[str, np.ndarray]:
    """Observations of three factors."""
    numbers = np.random.default_rng(143)
    loadings = 0.2 * numbers.normal(size=(VARIABLES, 3))
    loadings[np.arange(VARIABLES), np.arange(VARIABLES) % 3] += 0.9
    loadings[np.triu_indices(3, 1)] = 0.0
    noise = math.sqrt(0.2) * numbers.normal(size=(OBSERVATIONS, VARIABLES))
    return {"y": numbers.normal(size=(OBSERVATIONS, 3)) @ loadings.T + noise}
