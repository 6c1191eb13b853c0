"""One annealing step of all islands, as a compiled program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from weighbridge.core.compilation import jit, jit_for_speed
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.cloud import Cloud, stretched
from weighbridge.estimators.annealing.moves.mover import settle, stable_moves
from weighbridge.estimators.annealing.path import Path, chunk_log_likelihoods
from weighbridge.estimators.annealing.reweighting import Settings, StepInfo, Weighed, weigh


def _anneal_step(
    key_data: Array,
    cloud: Cloud,
    power: Array,
    path: Path,
    mover: Any,
    settings: Settings,
    resampling: str,
    chain_length: int = 1,
) -> tuple[Cloud, Array, Any, StepInfo]:
    """One annealing step of all islands.

    Args:
        key_data: two keys for each island.
        cloud: the particles.
        power: their current power.
        path: the path of densities.
        mover: moves the particles.
        settings: see ``Settings``.
        resampling: name of the resampling scheme.
        chain_length: if more than 1, the number of resampled particles is smaller by this factor,
            and every state of the chains that start from them is kept (waste-free: Dau & Chopin
            2022, J. R. Stat. Soc. B 84:114-148).

    Returns:
        The particles, their new power, the tuned mover, and the info of the step.
    """
    keys = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    raw = chunk_log_likelihoods(path, cloud.position)
    weighed = weigh(keys[:, 0], cloud, raw, power, settings, resampling, chain_length)
    start, following = weighed.cloud, weighed.power
    if chain_length == 1:
        outcome = mover.move(keys[:, 1], start, path, following)
    else:
        outcome = mover.chain(keys[:, 1], start, path, following, weighed.population, chain_length)
        start = stretched(start, chain_length)
    return _settled(weighed, start, path, outcome)


def _patient_anneal_step(
    key_data: Array,
    cloud: Cloud,
    power: Array,
    path: Path,
    mover: Any,
    settings: Settings,
    resampling: str,
) -> tuple[Cloud, Array, Any, StepInfo]:
    """One annealing step, in which particles move only if some were resampled.

    It has no ``chain_length``: particles that do not move have no chain of states.
    """
    keys = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    raw = chunk_log_likelihoods(path, cloud.position)
    weighed = weigh(keys[:, 0], cloud, raw, power, settings, resampling, chain_length=1)
    wanted = jnp.any(weighed.info.resampled)
    outcome = _move_if(wanted, mover, keys[:, 1], weighed.cloud, path, weighed.power)
    return _settled(weighed, weighed.cloud, path, outcome)


anneal_step = jit_for_speed(_anneal_step, static_argnames=("resampling", "chain_length"))
# The same for a cheap likelihood: it compiles faster, and may run slower.
quick_step = jit(_anneal_step, static_argnames=("resampling", "chain_length"))
patient_step = jit_for_speed(_patient_anneal_step, static_argnames="resampling")


def _settled(
    weighed: Weighed, start: Cloud, path: Path, outcome: tuple[Array, Any, Any]
) -> tuple[Cloud, Array, Any, StepInfo]:
    """Accept the positions of a mover, except for particles that diverged."""
    moved, moves, mover = outcome
    adjusted = getattr(mover, "adjusted", False)
    stable = None if adjusted else stable_moves(path, weighed.power, start.position, moved)
    cloud, _, num_diverged = settle(start, moved, stable)
    info = weighed.info._replace(num_diverged=num_diverged, moves=moves)
    return cloud, weighed.power, mover, info


def _move_if(
    wanted: Array, mover: Any, keys: Array, cloud: Cloud, path: Path, power: Array
) -> tuple[Array, Any, Any]:
    """Move all particles, or none; if none, all leaves of the info are zero."""
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
