"""Chains of stochastic-gradient kernels on targets whose gradient noise is known."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

import weighbridge as wb
from weighbridge.core.pytrees import register_dataclass

# A false alarm of any single comparison has a probability below 1e-6 (5 sigma).
SIGMAS = 5.0
CORRELATED = np.linalg.inv(np.array([[1.0, 0.45], [0.45, 0.25]]))  # correlation 0.9
ILL_CONDITIONED = np.diag([1.0, 100.0])


@partial(
    register_dataclass,
    data_fields=["precision", "noise", "key", "index"],
    meta_fields=[],
)
@dataclass(frozen=True)
class NoisyNormal:
    """A normal density, with normal gradient noise of known variance for each coordinate."""

    precision: np.ndarray
    noise: np.ndarray
    key: jax.Array
    index: jax.Array | int = 0

    def __call__(self, position):
        draw = jax.random.normal(jax.random.fold_in(self.key, self.index), position.shape)
        value = -0.5 * position @ (jnp.asarray(self.precision) @ position)
        return value + jnp.sum(jnp.sqrt(self.noise) * draw * position)

    def subsample(self, step):
        return replace(self, index=step)

    def gradient_variance(self, position):
        return jnp.zeros_like(position) + self.noise


def normal(precision, noise=0.0):
    """A noisy normal target; every chain gets a copy with its own key."""
    noise = np.broadcast_to(np.asarray(noise, float), len(precision))
    return NoisyNormal(precision, noise, jax.random.key(0))


class Chains(NamedTuple):
    """Last states of chains; means of infos, positions and products over their second half."""

    state: Any
    info: Any
    mean: np.ndarray
    product: np.ndarray

    def errors(self, covariance, centre=0.0):
        """Deviations of means and products from the expected ones, in standard errors."""
        white = np.linalg.inv(np.linalg.cholesky(covariance))
        cross = self.mean[:, :, None] * (np.zeros(len(covariance)) + centre)
        about = self.product - cross - cross.swapaxes(1, 2) + np.multiply.outer(centre, centre)
        excess = np.einsum("ij,njk,lk->nil", white, about, white) - np.eye(len(covariance))
        lower = excess[:, *np.tril_indices(len(covariance))]
        values = np.concatenate([(self.mean - centre) @ white.T, lower], axis=1)
        return np.sqrt(len(values)) * values.mean(0) / values.std(0)

    def covariance(self):
        """The covariance of the positions of all chains."""
        centre = self.mean.mean(0)
        return self.product.mean(0) - np.outer(centre, centre)


@jax.jit
def _run(kernel, target, start, num_steps, key):
    first = num_steps // 2

    def chain(key, position):
        key_batch, key_move = jax.random.split(key)
        own = replace(target, key=key_batch) if hasattr(target, "key") else target

        def step(state, index):
            state, info = kernel.step(jax.random.fold_in(key_move, index), state, own)
            position = state.position
            return state, (info, position, position[:, None] * position)

        def body(index, carry):
            state, total = carry
            state, seen = step(state, index)
            share = jnp.where(index >= first, 1 / (num_steps - first), 0.0)
            return state, jax.tree_util.tree_map(lambda t, leaf: t + share * leaf, total, seen)

        begin = kernel.init(position, own)
        zero = jax.tree_util.tree_map(
            lambda leaf: jnp.zeros(leaf.shape), jax.eval_shape(step, begin, 0)[1]
        )
        return jax.lax.fori_loop(0, num_steps, body, (begin, zero))

    state, (info, mean, product) = jax.vmap(chain)(jax.random.split(key, len(start)), start)
    return Chains(state, info, mean, product)


def run(kernel, target, start, num_steps, seed=0):
    """Run chains, each with its own keys and batches."""
    kernel, target = jax.tree_util.tree_map(jnp.asarray, (kernel, target))
    found = _run(kernel, target, jnp.asarray(start), num_steps, jax.random.key(seed))
    return jax.tree_util.tree_map(np.asarray, found)


def assert_covariance(chains, covariance, centre=0.0):
    np.testing.assert_array_less(np.abs(chains.errors(covariance, centre)), SIGMAS)


def draws_of(precision, num, seed=0):
    """Exact draws of the normal, as starting points."""
    generator = np.random.default_rng(seed)
    return generator.multivariate_normal(np.zeros(len(precision)), np.linalg.inv(precision), num)


def momentum_law(precision, eta, friction, noise):
    """Covariance of positions and velocities of v' = (1-a) v - eta P x + xi, x' = x + v'."""
    dimension = len(precision)
    keep = np.diag(1 - np.broadcast_to(friction, dimension))
    pull = -eta * precision
    transition = np.block([[np.eye(dimension) + pull, keep], [pull, keep]])
    both = np.kron(np.ones((2, 2)), np.diag(np.broadcast_to(noise, dimension)))
    law = scipy.linalg.solve_discrete_lyapunov(transition, both)
    return law[:dimension, :dimension], law[dimension:, dimension:]


def sgais(kernel):
    """Evidence of the Gaussian model by SGAIS with this kernel, and the exact evidence."""
    data = wb.zoo.gaussian.simulate(100, seed=1)
    method = wb.PublishedSGAIS(
        num_islands=16,
        num_particles=16,
        chunk_size=50,
        batch_size=50,
        num_moves=20,
        kernel=kernel,
    )
    result = wb.evidence(wb.zoo.gaussian.model(), data, method, seed=0)
    return result, wb.zoo.gaussian.log_evidence(data)
