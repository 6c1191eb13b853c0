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


def prepare(name: str, data: Data, effort: float = 1.0) -> Run:
    """One compiled step for all seeds."""
    target = jax_target(name, data)
    size = target.dimension
    num_live, num_delete = round(NUM_LIVE * effort), round(NUM_DELETE * effort)
    num_inner = max(5, 2 * size)
    algorithm = blackjax.nss(
        target.log_prior,
        target.log_likelihood,
        num_inner_steps=num_inner,
        num_delete=num_delete,
    )
    step, start = jax.jit(algorithm.step), jax.jit(algorithm.init)

    def run(seed: int) -> Answer:
        key, of_prior, of_volumes = jax.random.split(jax.random.key(seed), 3)
        shape, smallest = (num_live, size), jnp.finfo(float).tiny
        state = start(target.transform(jax.random.uniform(of_prior, shape, minval=smallest)))
        dead, calls = [], num_live
        while not state.integrator.logZ_live - state.integrator.logZ < REMAINING:
            key, now = jax.random.split(key)
            state, info = step(now, state)
            dead.append(info)
            # Each move evaluates both ends of its interval, then its steps outwards and inwards.
            slices = info.update_info
            calls += 2 * num_delete * num_inner
            calls += int(jnp.sum(slices.num_expansions) + jnp.sum(slices.num_shrink))
        points = finalise(state, dead, update_info=False)
        simulated = jax.nn.logsumexp(log_weights(of_volumes, points), axis=0)
        return Answer(float(simulated.mean()), float(simulated.std()), calls=calls)

    return run
