"""Movers: how the annealing core moves particles at one power, and tunes itself doing so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.base import Array, Kernel
from weighbridge.estimators.anneal import PATH_AXES, Cloud, Path, stable_moves
from weighbridge.kernels.hmc import HMC
from weighbridge.target import Target


def over_islands(function: Any, *args: Any, path: Path, power: Array, own: Any = None) -> Any:
    """Call ``function(target, own, ...)`` for every particle of every island.

    Arguments have islands and particles as their first axes. The target is the island's own, and
    so is ``own``, whose first axis is the island.
    """

    def island(path: Path, own: Any, *args: Any) -> Any:
        target = path.target(power)
        return jax.vmap(lambda *particle: function(target, own, *particle))(*args)

    axes = (PATH_AXES, None if own is None else 0, *(0 for _ in args))
    return jax.vmap(island, in_axes=axes)(path, own, *args)


def particle_keys(keys: Array, num_particles: int) -> Array:
    """One key for each particle, islands x particles."""
    return jax.vmap(lambda key: jax.random.split(key, num_particles))(keys)


def average(info: Any, counted: Array) -> Any:
    """Average of every leaf over the particles that count."""
    total = jnp.maximum(jnp.sum(counted, axis=1), 1)
    return jax.tree_util.tree_map(
        lambda leaf: jnp.sum(jnp.where(counted, jnp.nan_to_num(leaf), 0.0), axis=1) / total, info
    )


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["kernel", "num_moves", "rows_past", "rows_chunk"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Repeat:
    """A kernel, applied a fixed number of times, with steps for the rows that are in.

    Attributes:
        kernel: with step sizes for one row.
        num_moves: how often it is applied.
        rows_past: at power lambda the kernel is rescaled to variances
            1 / (rows_past + lambda rows_chunk).
        rows_chunk: see above.
    """

    kernel: Kernel
    num_moves: Array | int
    rows_past: Array | float = 1.0
    rows_chunk: Array | float = 0.0

    def move(self, keys: Array, cloud: Cloud, path: Path, power: Array) -> tuple[Array, Any, Any]:
        """Move every particle; the info is averaged over the second half of the moves."""
        kernel = self.kernel.rescale(1.0 / (self.rows_past + power * self.rows_chunk))
        num_moves = self.num_moves
        first = num_moves // 2

        def move_one(target: Target, _: None, key: Array, position: Array) -> tuple[Array, Any]:
            state = kernel.init(position, target)
            shape = jax.eval_shape(kernel.step, key, state, target)[1]
            zero = jax.tree_util.tree_map(lambda leaf: jnp.zeros(leaf.shape), shape)

            def body(index: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
                state, total = carry
                state, info = kernel.step(jax.random.fold_in(key, index), state, target)
                share = jnp.where(index >= first, 1.0 / (num_moves - first), 0.0)
                add = lambda sum_, leaf: sum_ + share * leaf  # noqa: E731
                return state, jax.tree_util.tree_map(add, total, info)

            state, info = jax.lax.fori_loop(0, num_moves, body, (state, zero))
            return state.position, info

        each = particle_keys(keys, cloud.position.shape[1])
        moved, info = over_islands(move_one, each, cloud.position, path=path, power=power)
        # Moves that will be undone say nothing about the others.
        stable = stable_moves(path, power, cloud.position, moved)
        return moved, average(info, stable & jnp.isfinite(cloud.log_weight)), self


class AdaptiveInfo(NamedTuple):
    """How the moves went at one power.

    Attributes:
        acceptance: mean acceptance probability.
        step_size: in units of the particles' own spread.
        num_moves: how many were made.
        correlation: with where the particles started; see ``remembered``.
        divergent: share of divergent trajectories.
    """

    acceptance: Array
    step_size: Array
    num_moves: Array
    correlation: Array
    divergent: Array


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "step_size",
        "num_moves",
        "trajectory",
        "target_acceptance",
        "max_moves",
        "decorrelated",
    ],
    meta_fields=["dense"],
)
@dataclass(frozen=True)
class AdaptiveHMC:
    r"""HMC that takes its metric from the particles and moves until they have forgotten.

    The metric of an island is the covariance of particles of other islands, shrunk towards its
    diagonal: an island that moved by a metric of its own would not leave its target invariant.
    In the metric's coordinates a trajectory is about a quarter turn, of varying length. The step
    size follows the acceptance from move to move. The number of moves is what at the power before
    would have taken the correlation with the start to ``decorrelated``: decided beforehand,
    because to stop when the particles look right is to choose them. Buchholz, Chopin & Jacob
    (2021), Bayesian Analysis 16:745-771.

    Attributes:
        step_size: leapfrog step in units of the particles' spread.
        num_moves: moves at the next power.
        trajectory: length of a trajectory, in units of the particles' spread.
        target_acceptance: acceptance that the step size is tuned to.
        max_moves: moves at most.
        decorrelated: correlation to reach.
        dense: whether the metric is a matrix or a diagonal.
    """

    step_size: Array | float = 0.5
    num_moves: Array | int = 4
    trajectory: Array | float = 1.6
    target_acceptance: Array | float = 0.8
    max_moves: Array | int = 10
    decorrelated: Array | float = 0.1
    dense: bool = True

    def move(self, keys: Array, cloud: Cloud, path: Path, power: Array) -> tuple[Array, Any, Any]:
        """Move all particles, and tune for the next power."""
        scale = others_scale(cloud, dense=self.dense)
        start = cloud.position
        alive = jnp.isfinite(cloud.log_weight)
        key = keys[0]  # the islands' moves are drawn together
        shape = (*start.shape[:2], start.shape[2] + 1)
        begin = lambda target, _, position: HMC().init(position, target)  # noqa: E731
        first = over_islands(begin, start, path=path, power=power)

        def body(index: Array, carry: Any) -> Any:
            state, step_size, accepted, divergent = carry
            uniform = jax.random.uniform(jax.random.fold_in(key, index), shape)
            # Equidistributed lengths from 0.6 to 1.2 of the trajectory (a Weyl sequence).
            stretch = 0.6 + 0.6 * jnp.mod(0.6180339887498949 * (index + 1), 1.0)
            count = jnp.clip(jnp.ceil(stretch * self.trajectory / step_size), 1, 64).astype(int)

            def advance(target: Target, scale: Array, uniform: Array, state: Any) -> Any:
                return HMC(step_size, count, scale).step_with(uniform, state, target)

            state, info = over_islands(advance, uniform, state, path=path, power=power, own=scale)
            acceptance = _pooled(info.acceptance, alive)
            step_size = step_size * jnp.exp(acceptance - self.target_acceptance)
            divergent = divergent + _pooled(info.divergent, alive)
            return state, jnp.clip(step_size, 1e-4, 2.0), accepted + acceptance, divergent

        one = jnp.ones(())
        num_moves = jnp.asarray(self.num_moves)
        carry = (first, one * self.step_size, 0 * one, 0 * one)
        state, step_size, accepted, divergent = jax.lax.fori_loop(0, num_moves, body, carry)
        correlation = jnp.maximum(
            remembered(start, state.position, alive),
            remembered(first.log_density[..., None], state.log_density[..., None], alive),
        )
        needed = num_moves * jnp.log(self.decorrelated) / jnp.log(jnp.clip(correlation, 0.01, 0.99))
        needed = jnp.clip(jnp.ceil(needed), 1, self.max_moves).astype(num_moves.dtype)
        info = AdaptiveInfo(
            accepted / num_moves, step_size, num_moves, correlation, divergent / num_moves
        )
        return state.position, info, replace(self, step_size=step_size, num_moves=needed)


def others_scale(cloud: Cloud, *, dense: bool) -> Array:
    """For each island a square root of the covariance of particles that are not its own.

    Even islands take it from the odd ones, and odd from even; a single island has only itself.
    """
    num_islands = cloud.position.shape[0]
    if num_islands == 1:
        return particle_scale(cloud, dense=dense)[None]
    halves = [jax.tree_util.tree_map(lambda leaf: leaf[k::2], cloud) for k in (1, 0)]  # noqa: B023
    roots = jnp.stack([particle_scale(half, dense=dense) for half in halves])
    return roots[jnp.arange(num_islands) % 2]


def particle_scale(cloud: Cloud, *, dense: bool) -> Array:
    """A square root of the covariance of all particles, shrunk towards its diagonal.

    With N effective particles in D dimensions the weight of the full matrix is N / (N + D).
    """
    dimension = cloud.position.shape[-1]
    position = cloud.position.reshape(-1, dimension)
    # Islands count alike, whatever their evidence; within one, particles by their weight.
    usable = jnp.isfinite(cloud.log_weight)
    share = jax.nn.softmax(jnp.where(usable, cloud.log_weight, -jnp.inf), axis=1)
    share = jnp.where(usable, share, 0.0).reshape(-1)
    share = share / jnp.sum(share)
    centred = _centred(position, share @ position)
    variance = share @ centred**2
    variance = jnp.where(variance > 0, variance, 1.0)
    if not dense:
        return jnp.sqrt(variance)
    covariance = (centred * share[:, None]).T @ centred
    effective = 1.0 / jnp.sum(share**2)
    trust = effective / (effective + dimension)
    shrunk = trust * covariance + (1 - trust) * jnp.diag(variance)
    root: Array = jnp.linalg.cholesky(shrunk + 1e-10 * jnp.diag(variance))
    return root


def remembered(start: Array, end: Array, alive: Array) -> Array:
    """Correlation of values before and after, without its sign, averaged over coordinates."""
    weight = alive / jnp.sum(alive)
    weight = weight[..., None]

    def centre(values: Array) -> Array:
        values = jnp.where(alive[..., None], values, 0.0)
        return _centred(values, jnp.sum(weight * values, axis=(0, 1)))

    before, after = centre(start), centre(end)
    product = jnp.sum(weight * before * after, axis=(0, 1))
    norms = jnp.sum(weight * before**2, axis=(0, 1)) * jnp.sum(weight * after**2, axis=(0, 1))
    return jnp.mean(jnp.where(norms > 0, jnp.abs(product) / jnp.sqrt(norms), 1.0))


def _centred(values: Array, mean: Array) -> Array:
    """Deviations from the mean; where all values are equal none is left by rounding."""
    deviation = values - mean
    return jnp.where(jnp.abs(deviation) > 1e-12 * jnp.abs(mean), deviation, 0.0)


def _pooled(values: Array, alive: Array) -> Array:
    return jnp.sum(jnp.where(alive, jnp.nan_to_num(values), 0.0)) / jnp.sum(alive)
