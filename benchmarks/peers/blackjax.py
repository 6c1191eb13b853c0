"""BlackJAX: adaptive tempered SMC, with a random walk that is tuned from the particles.

In BlackJAX the user chooses the inner kernel. Here it is that of its guide to tuning (a normal
proposal with the particles' covariance, ``inner_kernel_tuning``): a random walk with the usual
scale 2.38 / sqrt(d), the default ten moves and a target ESS of one half. HMC with the particles'
covariance as its metric was tried too (ten leapfrog steps). It was 1.3 to 30 times slower, exceeded
the time limit on softmax regression, and was more accurate only on the funnel. BlackJAX states no
error.
"""

from __future__ import annotations

import blackjax
import jax
import jax.numpy as jnp
from blackjax.smc import extend_params, resampling
from blackjax.smc.tuning.from_particles import particles_covariance_matrix

from benchmarks.peers.targets import Data, jax_target
from benchmarks.peers.tools import Answer, Run

NUM_PARTICLES = 2_000
TARGET_ESS = 0.5
# Double precision like the others: in single precision the log-likelihood of 10,000 rows has no
# correct third decimal.
jax.config.update("jax_enable_x64", True)


def prepare(name: str, data: Data) -> Run:
    """One compiled loop for all seeds."""
    target = jax_target(name, data)
    size = target.dimension
    walk = blackjax.additive_step_random_walk.build_kernel()

    def step(key: jax.Array, state, log_density, factor: jax.Array):
        def propose(key: jax.Array, position: jax.Array) -> jax.Array:
            return factor @ jax.random.normal(key, position.shape)

        return walk(key, state, log_density, propose)

    def tune(positions: jax.Array):
        covariance = jnp.atleast_2d(particles_covariance_matrix(positions))
        return extend_params({"factor": 2.38 / size**0.5 * jnp.linalg.cholesky(covariance)})

    @jax.jit
    def log_evidence(key: jax.Array) -> jax.Array:
        key, of_prior = jax.random.split(key)
        shape, smallest = (NUM_PARTICLES, size), jnp.finfo(float).tiny
        positions = target.transform(jax.random.uniform(of_prior, shape, minval=smallest))
        algorithm = blackjax.inner_kernel_tuning(
            smc_algorithm=blackjax.adaptive_tempered_smc,
            logprior_fn=target.log_prior,
            loglikelihood_fn=target.log_likelihood,
            mcmc_step_fn=step,
            mcmc_init_fn=blackjax.additive_step_random_walk.init,
            resampling_fn=resampling.systematic,
            mcmc_parameter_update_fn=lambda key, state, info: tune(state.particles),
            initial_parameter_value=tune(positions),
            target_ess=TARGET_ESS,
        )

        def unfinished(carry):
            return carry[1].sampler_state.tempering_param < 1

        def advance(carry):
            key, state, total = carry
            key, now = jax.random.split(key)
            state, info = algorithm.step(now, state)
            return key, state, total + info.log_likelihood_increment

        start = (key, algorithm.init(positions), jnp.zeros(()))
        return jax.lax.while_loop(unfinished, advance, start)[2]

    return lambda seed: Answer(float(log_evidence(jax.random.key(seed))))
