"""JAXNS 3: the defaults of its quick start, and its classic expectation of log Z."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it enables double precision, with a warning
    from jaxns.core import NestedSampler
    from jaxns.model import Model
    from jaxns.priors import Prior

import jax
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

from benchmarks.peers.targets import Data, jax_target
from benchmarks.peers.tools import Answer, Run


def prepare(name: str, data: Data, effort: float = 1.0) -> Run:
    """One sampler for all seeds, so that it is compiled once."""
    target = jax_target(name, data)
    size = target.dimension

    def prior_model() -> jax.Array:
        if target.prior == "normal":
            law = tfp.distributions.Normal(jnp.zeros(size), jnp.ones(size))
            theta = Prior(law, name="theta").realise()
        else:
            law = tfp.distributions.Uniform(jnp.zeros(size), jnp.ones(size))
            theta = target.transform(Prior(law, name="cube").realise())
        return target.log_likelihood(theta)

    # Without this number it has 30 independent chains for each dimension.
    sampler = NestedSampler(
        model=Model(prior_model=prior_model),
        root_allocation_degree=None if effort == 1 else round(30 * size * effort),
        unlimited_samples=effort > 1,
    )

    def run(seed: int) -> Answer:
        result = sampler.run(key=jax.random.PRNGKey(seed)).to_result()
        calls = int(result.total_num_likelihood_evaluations)
        return Answer(float(result.log_Z_mean), float(result.log_Z_uncert), calls=calls)

    return run
