"""Problems on which nested sampling is measured, each with its log evidence."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import special, stats

import weighbridge as wb
from benchmarks import problems
from benchmarks.problems import Problem

LOG_TWO_PI = math.log(2 * math.pi)


def _box(half: float, dimension: int) -> dict[str, dist.Distribution]:
    return {"x": dist.Uniform(-half, half).expand([dimension]).to_event(1)}


def _plateau(p: Any) -> Any:
    return jnp.where(p["x"][0] < 0, 0.0, jnp.where(p["x"][1] < 0, 2.0, 5.0))


def plateau() -> Problem:
    """Three flat steps, of a half, a quarter and a quarter of the prior."""
    exact = math.log(0.5 + 0.25 * math.exp(2.0) + 0.25 * math.exp(5.0))
    return Problem(wb.Model(_box(1.0, 2), total_log_likelihood=_plateau), None, exact)


def _edge(p: Any) -> Any:
    squares = jnp.sum(p["x"] ** 2)
    return jnp.where(squares < 9.0, -0.5 * squares - 2.5 * LOG_TWO_PI, -jnp.inf)


def hard_edge() -> Problem:
    """A standard normal within radius 3 and zero beyond it, in the box [-5, 5]^5.

    Nearly nine tenths of the prior have no likelihood.
    """
    exact = float(stats.chi2(5).logcdf(9.0)) - 5 * math.log(10.0)
    return Problem(wb.Model(_box(5.0, 5), total_log_likelihood=_edge), None, exact)


# Share of the evidence in the wide Gaussian, and the scale of the narrow one.
WIDE, NARROW = 0.05, 0.1


def _phase_transition(p: Any) -> Any:
    wide = jnp.sum(dist.Normal(0.0, 1.0).log_prob(p["x"]))
    narrow = jnp.sum(dist.Normal(0.0, NARROW).log_prob(p["x"]))
    return jnp.logaddexp(math.log(WIDE) + wide, math.log(1 - WIDE) + narrow)


def phase_transition() -> Problem:
    """A flat box [-5, 5]^10 and two Gaussians at its centre, of scales 1 and 0.1.

    The narrow one has 95 % of the evidence. At power b of the likelihood it weighs about
    b (23.0 + 2.9) - 23.0 nats more than the wide one, so it leads only beyond b = 0.89; below, of
    1e5 draws about one is inside it. A path that misses it is low by 3.0 nats.
    """
    wide, narrow = (10 * math.log(special.erf(5 / scale / math.sqrt(2))) for scale in (1.0, NARROW))
    mass = np.logaddexp(math.log(WIDE) + wide, math.log(1 - WIDE) + narrow)
    exact = float(mass) - 10 * math.log(10.0)
    return Problem(wb.Model(_box(5.0, 10), total_log_likelihood=_phase_transition), None, exact)


# Of the correlated Gaussians: correlation of neighbours, scale, and centre.
CORRELATION, SCALE, CENTRE = 0.95, 0.3, 0.5


def _correlated(p: Any) -> Any:
    residual = (p["x"] - CENTRE) / SCALE
    rest = math.sqrt(1 - CORRELATION**2)
    steps = (residual[1:] - CORRELATION * residual[:-1]) / rest
    size = residual.shape[0]
    constant = 0.5 * size * LOG_TWO_PI + size * math.log(SCALE) + (size - 1) * math.log(rest)
    return -0.5 * (residual[0] ** 2 + jnp.sum(steps**2)) - constant


def correlated(dimension: int) -> Problem:
    """A normal likelihood with correlations 0.95^|i - j|, and a standard normal prior.

    Exact: N(m | 0, C + 1) for centre m and covariance C. In 100 dimensions the standard deviations
    of C along its axes differ by a factor of 39.
    """
    prior = {"x": dist.Normal(0.0, 1.0).expand([dimension]).to_event(1)}
    place = np.arange(dimension)
    covariance = SCALE**2 * CORRELATION ** np.abs(place[:, None] - place)
    law = stats.multivariate_normal(np.zeros(dimension), covariance + np.eye(dimension))
    exact = float(law.logpdf(np.full(dimension, CENTRE)))
    return Problem(wb.Model(prior, total_log_likelihood=_correlated), None, exact)


def _in_box(p: Any) -> Any:
    return jnp.sum(jax.scipy.stats.norm.logpdf(p["x"]))


def normal_in_box(dimension: int) -> Problem:
    """A standard normal likelihood in the box [-10, 10]^d."""
    model = wb.Model(_box(10.0, dimension), total_log_likelihood=_in_box)
    return Problem(model, None, -dimension * math.log(20.0))


# In the order of the tables. The five of ``make calibrate`` come first.
BUILDERS: dict[str, Callable[[], Problem]] = {
    "Gaussian-Gaussian, 100 rows": problems.gaussian,
    "Beta-Bernoulli, 50 of 100": problems.beta_bernoulli,
    "3-D normal in a box": problems.normal_in_box,
    "shells, 2-D": partial(problems.shells, 2),
    "linear regression, 1,000 rows": problems.linear,
    "shells, 5-D": partial(problems.shells, 5),
    "shells, 10-D": partial(problems.shells, 10),
    "shells, 20-D": partial(problems.shells, 20),
    "eggbox": problems.eggbox,
    "Rosenbrock, 2-D": problems.rosenbrock,
    "LogGamma, 10-D": problems.log_gamma,
    "spike and slab, 10-D": problems.spike_and_slab,
    "phase transition, 10-D": phase_transition,
    "funnel, 10-D": problems.funnel,
    "plateau, 2-D": plateau,
    "hard edge, 5-D": hard_edge,
    "10-D normal in a box": partial(normal_in_box, 10),
    "correlated Gaussian, 2-D": partial(correlated, 2),
    "correlated Gaussian, 10-D": partial(correlated, 10),
    "correlated Gaussian, 30-D": partial(correlated, 30),
    "correlated Gaussian, 100-D": partial(correlated, 100),
    "mixture of 3, 1-D, 200 rows": problems.mixture,
    "softmax regression, 44 parameters": problems.softmax,
}
CALIBRATED = tuple(BUILDERS)[:5]


@functools.cache
def build(name: str) -> Problem:
    """A problem, built once in a process, so that its programs are compiled once."""
    return BUILDERS[name]()
