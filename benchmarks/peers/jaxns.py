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


def prepare(name: str, data: Data) -> Run:
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

    sampler = NestedSampler(model=Model(prior_model=prior_model))

    def run(seed: int) -> Answer:
        result = sampler.run(key=jax.random.PRNGKey(seed)).to_result()
        return Answer(float(result.log_Z_mean), float(result.log_Z_uncert))

    return run
