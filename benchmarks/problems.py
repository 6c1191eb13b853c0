"""Problems with a known log evidence."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import weighbridge as wb

# Computed by ``python -m benchmarks.references``; the errors are below 0.01.
SOFTMAX = -669.413
MIXTURE = -625.361


class Problem(NamedTuple):
    """A model, its data, and the exact log evidence, or else a reference value."""

    model: wb.Model
    data: Any
    log_evidence: float


def gaussian(num_rows: int = 100) -> Problem:
    data = wb.zoo.gaussian.simulate(num_rows, seed=1)
    return Problem(wb.zoo.gaussian.model(), data, wb.zoo.gaussian.log_evidence(data))


def linear(num_rows: int = 1_000) -> Problem:
    data = wb.zoo.linear.simulate(num_rows, seed=1)
    return Problem(wb.zoo.linear.model(), data, wb.zoo.linear.log_evidence(data))


def _bernoulli(p: Any, y: Any) -> Any:
    return jnp.where(y > 0, jnp.log(p["p"]), jnp.log1p(-p["p"]))


def beta_bernoulli() -> Problem:
    """50 successes of 100 with a uniform prior: log B(51, 51)."""
    exact = 2 * math.lgamma(51) - math.lgamma(102)
    model = wb.Model({"p": dist.Beta(1.0, 1.0)}, _bernoulli)
    return Problem(model, np.repeat([0.0, 1.0], 50), exact)


def _normal(p: Any) -> Any:
    return jnp.sum(dist.Normal(0.0, 1.0).log_prob(p["x"]))


def normal_in_box() -> Problem:
    """A 3-D standard normal in a box of side 20: 3 log(1/20), up to tails of 1e-23."""
    prior = dist.Uniform(-10.0, 10.0).expand([3]).to_event(1)
    return Problem(wb.Model({"x": prior}, total_log_likelihood=_normal), None, -3 * math.log(20))


def _shells(p: Any) -> Any:
    centre = jnp.zeros(p["x"].shape).at[0].set(3.5)

    def shell(middle: Any) -> Any:
        radius = jnp.sqrt(jnp.sum((p["x"] - middle) ** 2))
        return dist.Normal(2.0, 0.1).log_prob(radius)

    return jnp.logaddexp(shell(centre), shell(-centre))


def shells(dimension: int = 2) -> Problem:
    """Two Gaussian shells of radius 2 and width 0.1, in the box [-6, 6]^d."""
    exact = {2: -1.745642, 5: -5.673601, 10: -14.590491, 20: -36.086548}
    prior = dist.Uniform(-6.0, 6.0).expand([dimension]).to_event(1)
    model = wb.Model({"x": prior}, total_log_likelihood=_shells)
    return Problem(model, None, exact[dimension])


def _eggbox(p: Any) -> Any:
    return (2 + jnp.prod(jnp.cos(p["x"] / 2))) ** 5


def eggbox() -> Problem:
    prior = dist.Uniform(0.0, 10 * math.pi).expand([2]).to_event(1)
    return Problem(wb.Model({"x": prior}, total_log_likelihood=_eggbox), None, 235.855940)


def _rosenbrock(p: Any) -> Any:
    x, y = p["x"]
    return -0.5 * (100 * (y - x**2) ** 2 + (1 - x) ** 2)


def rosenbrock() -> Problem:
    """A curved valley in the box [-10, 10]^2; the evidence by quadrature."""
    prior = dist.Uniform(-10.0, 10.0).expand([2]).to_event(1)
    return Problem(wb.Model({"x": prior}, total_log_likelihood=_rosenbrock), None, -6.471617)


def _log_gamma(p: Any) -> Any:
    x = p["x"]

    def gamma(x: Any, place: float) -> Any:
        scaled = 30 * (x - place)
        return scaled - jnp.exp(scaled) + math.log(30)

    def normal(x: Any, place: float) -> Any:
        return dist.Normal(place, 1 / 30).log_prob(x)

    half = math.log(2)
    first = jnp.logaddexp(gamma(x[0], 1 / 3), gamma(x[0], 2 / 3)) - half
    second = jnp.logaddexp(normal(x[1], 1 / 3), normal(x[1], 2 / 3)) - half
    return first + second + jnp.sum(gamma(x[2:6], 2 / 3)) + jnp.sum(normal(x[6:], 2 / 3))


def log_gamma() -> Problem:
    """The log-gamma problem of Beaujean & Caldwell (2013), arXiv:1304.7808, in [0, 1]^10.

    Four modes of skewed and normal densities, each normalised. The evidence is 1 minus the tails
    outside the cube.
    """
    prior = dist.Uniform(0.0, 1.0).expand([10]).to_event(1)
    return Problem(wb.Model({"x": prior}, total_log_likelihood=_log_gamma), None, -2.2709e-5)


def _funnel(p: Any) -> Any:
    v, x = p["x"][0], p["x"][1:]
    head = dist.Normal(0.0, 3.0).log_prob(v)
    return head + jnp.sum(dist.Normal(0.0, jnp.exp(v / 2)).log_prob(x))


def funnel() -> Problem:
    """Neal's funnel in ten dimensions as the likelihood, in the box [-30, 30]^10.

    v ~ N(0, 9), the others N(0, e^v) (Neal 2003, Annals of Statistics 31:705-767). The mass in
    the box was computed by quadrature over v.
    """
    prior = dist.Uniform(-30.0, 30.0).expand([10]).to_event(1)
    return Problem(wb.Model({"x": prior}, total_log_likelihood=_funnel), None, -40.975649)


def _spike_and_slab(p: Any) -> Any:
    spike = jnp.sum(dist.Normal(0.0, 0.01).log_prob(p["x"]))
    slab = jnp.sum(dist.Normal(0.0, 0.1).log_prob(p["x"]))
    return jnp.logaddexp(math.log(100) + spike, slab)


def spike_and_slab() -> Problem:
    """100 N(0, 0.01^2) + N(0, 0.1^2) in the box [-0.5, 0.5]^10, whose volume is 1: log 101.

    There is a phase transition along the tempered path: the spike has nearly all the mass at power
    1, and nearly none at smaller powers, where particles find it only by luck.
    """
    prior = dist.Uniform(-0.5, 0.5).expand([10]).to_event(1)
    return Problem(wb.Model({"x": prior}, total_log_likelihood=_spike_and_slab), None, 4.615120)


def softmax() -> Problem:
    """Softmax regression, 10 features, 4 classes, 1,000 rows: 44 parameters.

    The reference is importance sampling at the mode (``benchmarks.references``).
    """
    data = wb.zoo.logistic.simulate(1_000, seed=1)
    return Problem(wb.zoo.logistic.model(), data, SOFTMAX)


def mixture() -> Problem:
    """A mixture of three Gaussians in one dimension, 200 rows: 9 parameters.

    The reference is importance sampling from posterior draws (``benchmarks.references``).
    """
    data = wb.zoo.mixture.simulate(200, num_components=3, num_features=1, seed=1)
    return Problem(wb.zoo.mixture.model(3, 1), data, MIXTURE)


class Entry(NamedTuple):
    """A problem of the catalogue: its title in tables, and the function that makes it."""

    title: str
    build: Callable[[], Problem]


CATALOGUE: dict[str, Entry] = {
    "gaussian": Entry("Gaussian-Gaussian, 100 rows", gaussian),
    "linear-1000": Entry("linear regression, 1,000 rows", linear),
    "linear-10000": Entry("linear regression, 10,000 rows", partial(linear, 10_000)),
    "softmax": Entry("softmax regression, 44 parameters, 1,000 rows", softmax),
    "shells-2": Entry("shells, 2-D", shells),
    "shells-10": Entry("shells, 10-D", partial(shells, 10)),
    "eggbox": Entry("eggbox", eggbox),
    "rosenbrock": Entry("Rosenbrock, 2-D", rosenbrock),
    "log-gamma": Entry("LogGamma, 10-D", log_gamma),
    "shells-20": Entry("shells, 20-D", partial(shells, 20)),
    "funnel": Entry("funnel, 10-D", funnel),
    "spike-and-slab": Entry("spike and slab, 10-D", spike_and_slab),
    "mixture": Entry("mixture of 3, 1-D, 200 rows", mixture),
    "beta-bernoulli": Entry("Beta-Bernoulli, 50 of 100", beta_bernoulli),
    "normal-in-box": Entry("3-D normal in a box", normal_in_box),
}
