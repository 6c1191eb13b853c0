"""BlackJAX: nested slice sampling, with the number of slice steps from its documentation.

500 live points, a tenth of them replaced at once. It stops when the live points hold less than a
fraction exp(-3), a twentieth, of the evidence. The error is the spread over simulated shrinkages.
"""

from __future__ import annotations

import blackjax
import jax
import jax.numpy as jnp
from blackjax.ns.utils import finalise, log_weights

from benchmarks.peers.targets import Data, jax_target
from benchmarks.peers.tools import Answer, Run

NUM_LIVE = 500
NUM_DELETE = 50
REMAINING = -3.0
jax.config.update("jax_enable_x64", True)


def prepare(name: str, data: Data) -> Run:
    """One compiled step for all seeds."""
    target = jax_target(name, data)
    size = target.dimension
    algorithm = blackjax.nss(
        target.log_prior,
        target.log_likelihood,
        num_inner_steps=max(5, 2 * size),
        num_delete=NUM_DELETE,
    )
    step, start = jax.jit(algorithm.step), jax.jit(algorithm.init)

    def run(seed: int) -> Answer:
        key, of_prior, of_volumes = jax.random.split(jax.random.key(seed), 3)
        shape, smallest = (NUM_LIVE, size), jnp.finfo(float).tiny
        state = start(target.transform(jax.random.uniform(of_prior, shape, minval=smallest)))
        dead = []
        while not state.integrator.logZ_live - state.integrator.logZ < REMAINING:
            key, now = jax.random.split(key)
            state, info = step(now, state)
            dead.append(info)
        points = finalise(state, dead, update_info=False)
        simulated = jax.nn.logsumexp(log_weights(of_volumes, points), axis=0)
        return Answer(float(simulated.mean()), float(simulated.std()))

    return run
