"""One annealing step of all islands, as a program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from weighbridge.base import Array
from weighbridge.estimators.cloud import Cloud, stretched
from weighbridge.estimators.mover import settle, stable_moves
from weighbridge.estimators.path import Path, chunk_log_likelihoods
from weighbridge.estimators.reweighting import Settings, StepInfo, weigh
from weighbridge.numerics import jit, jit_for_speed


def _anneal_step(
    key_data: Array,
    cloud: Cloud,
    power: Array,
    path: Path,
    mover: Any,
    settings: Settings,
    resampling: str,
    chain_length: int = 1,
    patient: bool = False,
) -> tuple[Cloud, Array, Any, StepInfo]:
    """One annealing step of all islands; ``key_data`` has two keys for each."""
    keys = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    raw = chunk_log_likelihoods(path, cloud.position)
    weighed = weigh(keys[:, 0], cloud, raw, power, settings, resampling, chain_length)
    start, following = weighed.cloud, weighed.power
    if patient:
        moved, moves, mover = _move_if(
            jnp.any(weighed.info.resampled), mover, keys[:, 1], start, path, following
        )
    elif chain_length == 1:
        moved, moves, mover = mover.move(keys[:, 1], start, path, following)
    else:
        moved, moves, mover = mover.chain(
            keys[:, 1], start, path, following, weighed.population, chain_length
        )
        start = stretched(start, chain_length)
    adjusted = getattr(mover, "adjusted", False)
    stable = None if adjusted else stable_moves(path, following, start.position, moved)
    cloud, _, num_diverged = settle(start, moved, stable)
    info = weighed.info._replace(num_diverged=num_diverged, moves=moves)
    return cloud, following, mover, info


STATIC = ("resampling", "chain_length", "patient")
anneal_step = jit_for_speed(_anneal_step, static_argnames=STATIC)
# The same, for a likelihood that is cheap: it takes less time to compile, and may take more to run.
quick_step = jit(_anneal_step, static_argnames=STATIC)


def _move_if(
    wanted: Array, mover: Any, keys: Array, cloud: Cloud, path: Path, power: Array
) -> tuple[Array, Any, Any]:
    """Move all particles, or none; then the info is zero."""
    mover = jax.tree_util.tree_map(jnp.asarray, mover)

    def move() -> tuple[Array, Any, Any]:
        found: tuple[Array, Any, Any] = mover.move(keys, cloud, path, power)
        return found

    def stay() -> tuple[Array, Any, Any]:
        info = jax.tree_util.tree_map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape[1])
        return cloud.position, info, mover

    shape = jax.eval_shape(move)
    found: tuple[Array, Any, Any] = jax.lax.cond(wanted, move, stay)
    return found
