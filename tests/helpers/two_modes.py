"""Two modes ten standard deviations apart, and many chains at once."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from weighbridge.core.compilation import jit

# Bound of means over 16 independent chains, in standard errors. They are Student-t with 15 degrees
# of freedom, which exceeds 4 in one of 900 cases.
BOUND = 4.0
# Bound of single comparisons over thousands of chains, in standard errors.
SIGMAS = 5.0
LEFT, RIGHT = np.array([-5.0, 0.0]), np.array([5.0, 0.0])
PRIOR = {"u": dist.Normal(0.0, 10.0).expand([2]).to_event(1)}
# Variance of a mode of the posterior: N(0, 10^2) N(5, 1) is proportional to such a normal.
VARIANCE = 100 / 101
# In two dimensions; the mean of the likelihood is 2 pi N(5; 0, 101) N(0; 0, 101).
LOG_EVIDENCE = -np.log(101) - 25 / 202


def two_modes(p):
    """Weights 0.3 and 0.7, ten standard deviations apart; both have the same prior density."""
    left, right = (jnp.sum((p["u"] - mode) ** 2) for mode in (LEFT, RIGHT))
    return jnp.logaddexp(jnp.log(0.3) - 0.5 * left, jnp.log(0.7) - 0.5 * right)


@partial(jit, static_argnums=(4, 5))
def chains(kernel, target, start, key, num_steps, num_warmup):
    def chain(key, position):
        def body(state, index):
            state, info = kernel.step(jax.random.fold_in(key, index), state, target)
            return state, (state.position, info)

        steps = jnp.arange(num_warmup + num_steps)
        state, kept = jax.lax.scan(body, kernel.init(position, target), steps)
        return state, jax.tree_util.tree_map(lambda leaf: leaf[num_warmup:], kept)

    return jax.vmap(chain)(jax.random.split(key, len(start)), start)


def run(kernel, target, start, num_steps, num_warmup, seed):
    """Positions and infos after the warm-up, chains x steps, and the last states."""
    with jax.enable_x64(True):
        kernel = jax.tree_util.tree_map(jnp.asarray, kernel)
        start, key = jnp.asarray(start), jax.random.key(seed)
        state, (positions, info) = chains(kernel, target, start, key, num_steps, num_warmup)
        return np.asarray(positions), jax.tree_util.tree_map(np.asarray, info), state


def z_score(of_chains, expected):
    return (np.mean(of_chains) - expected) / (np.std(of_chains, ddof=1) / np.sqrt(len(of_chains)))
