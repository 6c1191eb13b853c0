"""Simulated tempering: one walker that also moves between powers of the likelihood."""

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
    """What is learned for each power.

    Attributes:
        log_normaliser: log of the integral of each tempered density, up to a constant.
        log_likelihood: mean log-likelihood, during the first exploration of the powers.
        log_scale: log of the factor of the inner step size.
        visits: number of moves at each power.
        draws: number of moves from which the normalisers were learned.
    """

    log_normaliser: Array
    log_likelihood: Array
    log_scale: Array
    visits: Array
    draws: Array


class SimulatedTemperingState(NamedTuple):
    """A position at power 1, the log-likelihood there, what was learned, and the steps so far."""

    position: Array
    log_likelihood: Array
    learnt: Learnt
    num_steps: Array


class SimulatedTemperingInfo(NamedTuple):
    """Facts about an excursion.

    Attributes:
        acceptance: mean acceptance probability of its moves.
        num_moves: number of its moves.
        hottest: index of its smallest power.
        returned: whether it came back to power 1; otherwise it was undone.
    """

    acceptance: Array
    num_moves: Array
    hottest: Array
    returned: Array


class Excursion(NamedTuple):
    """An excursion in progress: its position, what it learns, and its info."""

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
    r"""Walk through positions and powers of the likelihood, from one visit to power 1 to the next.

    .. math:: f(\theta, k) = p(\theta) L(\theta)^{b_k} / z_k, \qquad
              P(k | \theta) \propto L(\theta)^{b_k} / z_k

    Draw a power given the position, move the position at that power, and draw a power again, until
    it is 1. This is one step, so every draw counts. A Markov chain observed only during its visits
    to a set has the correct conditional distribution on that set. An excursion that is too long is
    undone. This is exact too if the inner kernel is reversible, because the way back has the same
    length.

    All powers are visited equally often if z_k is the integral of the density at power k. The z_k
    are learned: first the walker goes up and down the ladder, and the mean log-likelihood is
    integrated over the powers; then by stochastic approximation with decreasing gains; then they
    are fixed. Marinari & Parisi (1992), Europhys. Lett. 19:451-458; Park & Pande (2007), Phys. Rev.
    E 76:016703; Tan (2017), J. Comp. Graph. Stat. 26:54-65.

    Args:
        kernel: moves the position; its state must be a function of its position.
        powers: decreasing from 1 to 0, the prior; for a target that is a plain function, to a small
            positive power of the whole function.
        num_adapt: steps in which the z_k and step sizes are learned; at most those of the warm-up.
        max_moves: an excursion of more moves is undone.
        log_normalisers: initial log z_k, if they are known.

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
        """One excursion from power 1 back to power 1."""
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
        """Update normalisers and step sizes after a move at one power."""
        visits = learnt.visits.at[index].add(1)
        gain = adapting * (1.0 * visits[index]) ** -0.6
        log_scale = tuned(self.kernel, learnt.log_scale[index], acceptance, gain)
        # Forget the beginning, when the walker is still far from the typical positions.
        share = jnp.where(jnp.isfinite(likelihood), jnp.maximum(1 / visits[index], 0.05), 0.0)
        finite = jnp.where(jnp.isfinite(likelihood), likelihood, 0.0)
        mean = learnt.log_likelihood[index]
        means = learnt.log_likelihood.at[index].set(mean + share * (finite - mean))
        # The derivative of log z with respect to the power is the mean log-likelihood.
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
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, kernel=self.kernel.rescale(variance))


def _log_probability(powers: Array, learnt: Learnt, likelihood: Array) -> Array:
    """Log probability of each power given the position, up to a constant."""
    # If the likelihood is zero only the prior is possible; 0 * -inf would be NaN.
    weighed = jnp.where(powers > 0, powers * likelihood, 0.0)
    return jnp.where(jnp.isnan(weighed), -jnp.inf, weighed) - learnt.log_normaliser


def _draw(uniform: Array, powers: Array, learnt: Learnt, likelihood: Array) -> Array:
    """Draw a power given the position, by inversion."""
    cumulative = jnp.cumsum(jax.nn.softmax(_log_probability(powers, learnt, likelihood)))
    return jnp.sum(uniform * cumulative[-1] >= cumulative[:-1])
