"""Simulated tempering: one walker whose power of the likelihood moves too."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.hmc import HMC
from weighbridge.sampling.kernels.parts.accept import select
from weighbridge.sampling.kernels.parts.ladder import (
    DEFAULT_POWERS,
    OnLadder,
    check_lowest,
    log_likelihood,
    tempered,
    tuned,
    widening,
)


class Learnt(NamedTuple):
    """What is learnt of each power.

    Attributes:
        log_normaliser: log of the integral of each tempered density, up to a constant.
        log_likelihood: its mean, while powers are first explored.
        log_scale: log of the factor of the inner step size.
        visits: moves made at each power.
        draws: moves by which the normalisers were learnt.
    """

    log_normaliser: Array
    log_likelihood: Array
    log_scale: Array
    visits: Array
    draws: Array


class SimulatedTemperingState(NamedTuple):
    """A position at power 1, the log-likelihood there, what was learnt, and steps made."""

    position: Array
    log_likelihood: Array
    learnt: Learnt
    num_steps: Array


class SimulatedTemperingInfo(NamedTuple):
    """What an excursion was like.

    Attributes:
        acceptance: mean probability of the moves on the way.
        num_moves: how many they were.
        hottest: index of the smallest power on the way.
        returned: whether it came back to power 1; one that did not was undone.
    """

    acceptance: Array
    num_moves: Array
    hottest: Array
    returned: Array


class Excursion(NamedTuple):
    """A walker on its way: where it is, what it learns, and what is told of it."""

    position: Array
    log_likelihood: Array
    learnt: Learnt
    info: SimulatedTemperingInfo


@partial(
    register_dataclass,
    data_fields=["kernel", "num_adapt", "max_moves", "log_normalisers"],
    meta_fields=["powers"],
)
@dataclass(frozen=True)
class SimulatedTempering(OnLadder):
    r"""Walk through positions and powers of the likelihood, from one visit of power 1 to the next.

    .. math:: f(\theta, k) = p(\theta) L(\theta)^{b_k} / z_k, \qquad
              P(k | \theta) \propto L(\theta)^{b_k} / z_k

    A power is drawn given the position, the position moved at that power, and a power drawn again,
    until it is 1: that is one step, so every draw counts. A chain that is seen only where it
    visits a set has there the distribution it should have. An excursion that is too long is undone,
    which is exact too as long as the inner kernel is reversible: the way back is as long.

    All powers are visited equally often if z_k is the integral of the density at power k. That is
    learnt: first the ladder is gone through up and down, and the mean log-likelihood at its powers
    integrated; then by stochastic approximation with vanishing steps; then it is fixed.
    Marinari & Parisi (1992), Europhys. Lett. 19:451-458; Park & Pande (2007), Phys. Rev. E
    76:016703; Tan (2017), J. Comp. Graph. Stat. 26:54-65.

    Args:
        kernel: moves the position; its state must follow from its position.
        powers: from 1 down to 0, the prior; for a target that is a plain function, to a small
            power of all of it.
        num_adapt: steps in which the z_k and step sizes are learnt; at most those of the warm-up.
        max_moves: an excursion of more moves is undone.
        log_normalisers: log z_k to begin with, if they are known.

    >>> import jax, jax.numpy as jnp
    >>> kernel = SimulatedTempering(HMC(0.5, 5), powers=(1.0, 0.3, 0.1))
    >>> state = kernel.init(jnp.zeros(2), lambda u: -0.5 * jnp.sum(u**2))
    >>> state, info = kernel.step(jax.random.key(0), state, lambda u: -0.5 * jnp.sum(u**2))
    >>> state.position.shape, int(info.num_moves), bool(info.returned)
    ((2,), 5, True)
    """

    kernel: Kernel = field(default_factory=HMC)
    powers: tuple[float, ...] = DEFAULT_POWERS
    num_adapt: int | Array = 500
    max_moves: int | Array = 10_000
    log_normalisers: Array | np.ndarray | None = None

    def init(self, position: Array, target: LogDensity) -> SimulatedTemperingState:
        """Start at power 1."""
        check_lowest(target, self.powers)
        none = jnp.zeros(len(self.powers), position.dtype)
        given = self.log_normalisers
        learnt = Learnt(
            log_normaliser=none if given is None else jnp.asarray(given, position.dtype),
            log_likelihood=none,
            log_scale=jnp.asarray(widening(self.powers), position.dtype),
            visits=jnp.zeros(none.shape, int),
            draws=jnp.zeros((), int),
        )
        return SimulatedTemperingState(
            position, log_likelihood(target, position), learnt, jnp.zeros((), int)
        )

    def step(
        self, key: Array, state: SimulatedTemperingState, target: LogDensity
    ) -> tuple[SimulatedTemperingState, SimulatedTemperingInfo]:
        """One excursion, from power 1 back to it."""
        num = len(self.powers)
        powers = jnp.asarray(self.powers, state.position.dtype)
        # Up the ladder and down again.
        tour = num - 1 - jnp.abs(num - 1 - jnp.arange(2 * num - 1))
        adapting = state.num_steps < self.num_adapt
        exploring = adapting & (5 * state.num_steps < self.num_adapt)
        if self.log_normalisers is not None:
            exploring = jnp.zeros((), bool)
        limit = jnp.where(exploring, 2 * num - 1, self.max_moves)

        def move(walk: Excursion) -> Excursion:
            info, learnt = walk.info, walk.learnt
            key_move, key_power = jax.random.split(jax.random.fold_in(key, info.num_moves))
            uniform = jax.random.uniform(key_power, (2,))
            drawn = _draw(uniform[0], powers, learnt, walk.log_likelihood)
            index = jnp.where(exploring, tour[jnp.minimum(info.num_moves, 2 * num - 2)], drawn)
            density = tempered(target, powers[index])
            kernel = self.kernel.rescale(jnp.exp(2 * learnt.log_scale[index]))
            replica, moved = kernel.step(key_move, kernel.init(walk.position, density), density)
            likelihood = log_likelihood(target, replica.position)
            learnt = self._learn(
                learnt, index, likelihood, moved.acceptance, powers, adapting, exploring
            )
            after = _draw(uniform[1], powers, learnt, likelihood)
            num_moves = info.num_moves + 1
            info = SimulatedTemperingInfo(
                acceptance=info.acceptance + (moved.acceptance - info.acceptance) / num_moves,
                num_moves=num_moves,
                hottest=jnp.maximum(info.hottest, index),
                returned=jnp.where(exploring, num_moves == limit, after == 0),
            )
            return Excursion(replica.position, likelihood, learnt, info)

        none = jnp.zeros((), int)
        begin = SimulatedTemperingInfo(jnp.zeros_like(powers[0]), none, none, none > 0)
        walk: Any = jax.lax.while_loop(
            lambda walk: ~walk.info.returned & (walk.info.num_moves < limit),
            move,
            Excursion(state.position, state.log_likelihood, state.learnt, begin),
        )
        position, likelihood = select(walk.info.returned, walk[:2], state[:2])
        state = SimulatedTemperingState(position, likelihood, walk.learnt, state.num_steps + 1)
        return state, walk.info

    def _learn(
        self,
        learnt: Learnt,
        index: Array,
        likelihood: Array,
        acceptance: Array,
        powers: Array,
        adapting: Array,
        exploring: Array,
    ) -> Learnt:
        """Normalisers and step sizes after a move at one power."""
        visits = learnt.visits.at[index].add(1)
        gain = adapting * (1.0 * visits[index]) ** -0.6
        log_scale = tuned(self.kernel, learnt.log_scale[index], acceptance, gain)
        # Forgets the beginning, when the walker is far from where it belongs.
        share = jnp.where(jnp.isfinite(likelihood), jnp.maximum(1 / visits[index], 0.05), 0.0)
        finite = jnp.where(jnp.isfinite(likelihood), likelihood, 0.0)
        mean = learnt.log_likelihood[index]
        means = learnt.log_likelihood.at[index].set(mean + share * (finite - mean))
        # The derivative of log z by the power is the mean log-likelihood.
        areas = (powers[:-1] - powers[1:]) * (means[:-1] + means[1:]) / 2
        explored = jnp.append(jnp.cumsum(areas[::-1])[::-1], 0.0)

        draws = learnt.draws + ~exploring
        num = len(self.powers)
        rate = adapting * jnp.minimum(1.0, num * jnp.maximum(draws, 1.0) ** -0.8)
        given = jax.nn.softmax(_log_probability(powers, learnt, likelihood))
        excess = jnp.where(jnp.isnan(given), 0.0, given - 1 / num)
        approached = learnt.log_normaliser + rate * excess
        return Learnt(
            log_normaliser=jnp.where(exploring, explored, approached),
            log_likelihood=means,
            log_scale=learnt.log_scale.at[index].set(log_scale),
            visits=visits,
            draws=draws,
        )

    def rescale(self, variance: Array | float) -> SimulatedTempering:
        """The kernel for a target whose variances are this many times as large."""
        return replace(self, kernel=self.kernel.rescale(variance))


def _log_probability(powers: Array, learnt: Learnt, likelihood: Array) -> Array:
    """Log probability of each power given the position, up to a constant."""
    # Where the likelihood is zero only the prior is possible, whose 0 * -inf would be no number.
    weighed = jnp.where(powers > 0, powers * likelihood, 0.0)
    return jnp.where(jnp.isnan(weighed), -jnp.inf, weighed) - learnt.log_normaliser


def _draw(uniform: Array, powers: Array, learnt: Learnt, likelihood: Array) -> Array:
    """Draw a power given the position, by inversion."""
    cumulative = jnp.cumsum(jax.nn.softmax(_log_probability(powers, learnt, likelihood)))
    return jnp.sum(uniform * cumulative[-1] >= cumulative[:-1])
