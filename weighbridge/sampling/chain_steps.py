"""The compiled program of a chain: a block of steps, and what the warm-up learns from them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import jit, jit_for_speed
from weighbridge.core.types import Array
from weighbridge.models.targets.density import Target
from weighbridge.sampling.kernels.hmc import HMCState, evaluate
from weighbridge.sampling.kernels.parts.accept import select
from weighbridge.sampling.step_energies import StepEnergies
from weighbridge.sampling.warmup.dual_averaging import DualAveraging, first_step_size
from weighbridge.sampling.warmup.metric import Spread


class Chain(NamedTuple):
    """The state of a chain between two steps; a pytree.

    Attributes:
        kernel: the kernel with the step size and metric in use.
        state: the state of the kernel.
        averaging: the tuning of the step size of each kernel in ``tunable``.
        spread: the estimate of the metric.
        energy: energy of the last step, if the kernel reports it; NaN before the first step.
    """

    kernel: Any
    state: Any
    averaging: tuple[DualAveraging, ...]
    spread: Spread
    energy: Any = np.nan


class Phase(NamedTuple):
    """What is learned from the steps of a block; as numbers, so that no phase needs a new trace.

    Attributes:
        tunes: whether step sizes are tuned.
        learns: whether the metric is learned.
        wanted: target acceptance of the step sizes; 0 for each kernel's own target.
    """

    tunes: Any
    learns: Any
    wanted: Any


DRAWING = Phase(False, False, 0.0)


def is_tunable(kernel: Any) -> bool:
    """Whether a warm-up tunes the step size of the kernel itself, not only of kernels inside it."""
    return kernel.target_acceptance is not None


def has_metric(kernel: Any) -> bool:
    """Whether a warm-up learns a metric for the kernel."""
    return is_tunable(kernel) and hasattr(kernel, "scale")


begin = jit(lambda kernel, position, target: kernel.init(position, target))


@jit
def find_step_size(key_data: Array, chain: Chain, target: Target) -> Array:
    """The first step size of a window of the warm-up, where the chain is now."""
    state, kernel = chain.state, chain.kernel
    if not isinstance(state, HMCState):
        state = evaluate(state.position, target)
    key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    uniform = jax.random.uniform(key, (state.position.shape[0] + 1,))
    scale = getattr(kernel, "scale", 1.0)
    return first_step_size(uniform, state, target, kernel.step_size, scale)


@partial(jit_for_speed, static_argnames="size")
def advance(
    key_data: Array,
    chain: Chain,
    target: Target,
    first: Array | int,
    count: Array | int,
    thin: Array | int,
    phase: Phase,
    *,
    size: int,
) -> tuple[Chain, Array, Any, Array]:
    """Make ``count`` times ``thin`` steps, and keep every ``thin``-th position and info.

    The chain's key and the number of a step determine its random numbers, so that the division
    into blocks does not matter.

    Returns:
        The chain, the kept positions and infos, and for each of them the moments of the
        energies of its ``thin`` steps.
    """
    key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    info = jax.eval_shape(chain.kernel.step, key, chain.state, target)[1]
    nothing = jax.tree_util.tree_map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), info)

    def once(index: Array, carry: tuple[Chain, Any, StepEnergies]) -> Any:
        chain, before, energies = carry
        step_key = jax.random.fold_in(key, index)
        state, info = chain.kernel.step(step_key, chain.state, target)
        energy = jnp.asarray(getattr(info, "energy", chain.energy), float)
        energies = energies.update(chain.energy, energy)
        chain = _learn(chain._replace(state=state, energy=energy), info, phase)
        return chain, _either(before, info), energies

    def keep(index: Array, carry: tuple[Chain, Array, Any, Array]) -> Any:
        chain, positions, infos, moments = carry
        start = first + index * thin
        chain, info, energies = jax.lax.fori_loop(
            start, start + thin, once, (chain, nothing, StepEnergies.start())
        )
        positions = positions.at[index].set(chain.state.position)
        infos = jax.tree_util.tree_map(lambda all_, one: all_.at[index].set(one), infos, info)
        return chain, positions, infos, moments.at[index].set(energies.moments())

    position = chain.state.position
    positions = jnp.zeros((size, *position.shape), position.dtype)
    infos = jax.tree_util.tree_map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), info)
    chain = chain._replace(energy=jnp.asarray(chain.energy, float))
    carry = (chain, positions, infos, jnp.zeros((size, 3)))
    found: tuple[Chain, Array, Any, Array] = jax.lax.fori_loop(0, count, keep, carry)
    return found


def _learn(chain: Chain, info: Any, phase: Phase) -> Chain:
    """Tune the step size and update the metric with the draw, if the phase requires it."""
    kernel, state, averagings, spread, _ = chain
    tuned, learned = [], []
    parts = zip(kernel.tunable(), averagings, kernel.tunable_acceptance(info))
    for part, averaging, (acceptance, moved) in parts:
        mean = jnp.mean(jnp.nan_to_num(acceptance))
        wanted = jnp.where(phase.wanted > 0, phase.wanted, part.target_acceptance)
        tunes = jnp.logical_and(phase.tunes, moved)
        averaging = select(tunes, averaging.update(mean, wanted), averaging)
        step_size = jnp.where(tunes, jnp.exp(averaging.log_step), part.step_size)
        tuned.append(replace(part, step_size=step_size))
        learned.append(averaging)
    kernel, averagings = kernel.with_tunable(tuple(tuned)), tuple(learned)
    if has_metric(kernel):
        spread = select(phase.learns, spread.update(state.position), spread)
    return chain._replace(kernel=kernel, averaging=averagings, spread=spread)


def _either(before: Any, info: Any) -> Any:
    """The later info; a flag that was true at any step stays true."""
    return jax.tree_util.tree_map(
        lambda old, new: old | new if new.dtype == bool else new, before, info
    )
