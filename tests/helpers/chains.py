"""Many short chains on targets whose draws and distribution functions are known exactly.

A kernel that leaves its target invariant turns exact draws into exact draws. These are tested as
normal scores: the target's conditional distribution functions (each coordinate given those before
it) and the normal quantile function make them standard normal and independent, for every target.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.special
import scipy.stats

import weighbridge as wb
from weighbridge.core import compilation
from weighbridge.core.pytrees import register_dataclass

# The bound of every comparison is four standard errors. One comparison has a false alarm with
# probability 6e-5, the few hundred in the files that use this about 2 %; seeds are fixed.
SIGMAS = 4.0
NUM_CHAINS = 20_000
RHO = 0.95
TARGETS = ("normal", "skewed", "bounded")
BOUNDED = wb.Model({"s": dist.Gamma(2.0, 1.0), "p": dist.Beta(2.0, 5.0)}, lambda p, row: 0.0)
COVARIANCE = np.array([[1.0, RHO], [RHO, 1.0]])


def normal(u):
    return -0.5 * (u[0] ** 2 + (u[1] - RHO * u[0]) ** 2 / (1 - RHO**2))


def skewed(u):
    return 2 * u[0] - jnp.exp(u[0]) - 0.5 * (u[1] - 0.5 * u[0] ** 2) ** 2


def _bounded(u):
    return BOUNDED.transform(u)[1]


@partial(register_dataclass, data_fields=["which"], meta_fields=[])
@dataclass(frozen=True)
class Example:
    """One of the targets by its number, so that all of them share one program."""

    which: int

    def __call__(self, position):
        return jax.lax.switch(self.which, (normal, skewed, _bounded), position)

    def subsample(self, step):
        return self

    def gradient_variance(self, position):
        return jnp.zeros_like(position)


def example(name):
    return Example(TARGETS.index(name))


def exact_draws(name, num, seed):
    """Unconstrained positions drawn from a target."""
    rng = np.random.default_rng(seed)
    if name == "bounded":
        share = rng.beta(2.0, 5.0, size=num)
        return np.stack([np.log(rng.gamma(2.0, size=num)), np.log(share / (1 - share))], 1)
    noise = rng.normal(size=num)
    if name == "normal":
        first = rng.normal(size=num)
        return np.stack([first, RHO * first + np.sqrt(1 - RHO**2) * noise], 1)
    first = np.log(rng.gamma(2.0, size=num))
    return np.stack([first, 0.5 * first**2 + noise], 1)


def scores(name, draws):
    """Normal scores of draws: standard normal and independent if the draws are exact."""
    first, second = draws.T
    if name == "normal":
        return np.stack([first, (second - RHO * first) / np.sqrt(1 - RHO**2)], 1)
    gamma = scipy.stats.norm.ppf(scipy.stats.gamma.cdf(np.exp(first), 2.0))
    if name == "skewed":
        return np.stack([gamma, second - 0.5 * first**2], 1)
    beta = scipy.stats.beta.cdf(scipy.special.expit(second), 2.0, 5.0)
    return np.stack([gamma, scipy.stats.norm.ppf(beta)], 1)


def deviations(values):
    """Mean, variance, product and distribution of normal scores, in standard errors."""
    num = len(values)
    found = list(values.mean(0) * np.sqrt(num))
    found += list((np.mean(values**2, 0) - 1) * np.sqrt(num / 2))
    found += list(np.mean(values**3 - 3 * values, 0) * np.sqrt(num / 6))
    found.append(np.mean(values[:, 0] * values[:, 1]) * np.sqrt(num))
    for column in values.T:
        found.append(scipy.stats.norm.isf(scipy.stats.kstest(column, "norm").pvalue / 2))
    return np.abs(found)


def assert_exact(values):
    """Normal scores are standard normal and independent, within SIGMAS."""
    found = deviations(values)
    assert np.all(found < SIGMAS), found


@partial(compilation.jit, static_argnames="prepare")
def _run(kernel, target, start, keys, num_steps, prepare):
    def chain(key, position):
        def step(index, state):
            return kernel.step(jax.random.fold_in(key, index), state, target)

        def body(index, carry):
            state, info = step(index, carry[0])
            return state, jax.tree_util.tree_map(jnp.add, carry[1], info)

        start = prepare(kernel.init(position, target))
        zeros = jax.tree_util.tree_map(
            lambda leaf: jnp.zeros(leaf.shape), jax.eval_shape(step, 0, start)[1]
        )
        state, total = jax.lax.fori_loop(0, num_steps, body, (start, zeros))
        return state, jax.tree_util.tree_map(lambda leaf: leaf / num_steps, total)

    return jax.vmap(chain)(keys, start)


def same(state):
    return state


def run_chains(kernel, target, start, num_steps, seed=0, prepare=same):
    """Last states of many chains, and the mean info of each."""
    with jax.enable_x64(True):
        as_arrays = jax.tree_util.tree_map(jnp.asarray, (kernel, target, start))
        keys = jax.random.split(jax.random.key(seed), len(start))
        state, info = _run(*as_arrays, keys, num_steps, prepare)
        return jax.tree_util.tree_map(np.asarray, (state, info))
