"""Problems with a known log evidence."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import weighbridge as wb


class Problem(NamedTuple):
    """A model, its data, and the exact log evidence."""

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
    """50 of 100 with a uniform prior: log B(51, 51)."""
    exact = 2 * math.lgamma(51) - math.lgamma(102)
    model = wb.Model({"p": dist.Beta(1.0, 1.0)}, _bernoulli)
    return Problem(model, np.repeat([0.0, 1.0], 50), exact)


def _normal(p: Any) -> Any:
    return jnp.sum(dist.Normal(0.0, 1.0).log_prob(p["x"]))


def normal_in_box() -> Problem:
    """A 3-D standard normal in a box of side 20: 3 log(1/20), but for tails of 1e-23."""
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
