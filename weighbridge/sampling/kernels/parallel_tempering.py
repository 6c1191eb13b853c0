"""Parallel tempering: replicas at powers of the likelihood exchange their positions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.hmc import HMC
from weighbridge.sampling.kernels.parts.ladder import (
    DEFAULT_POWERS,
    OnLadder,
    check_lowest,
    log_likelihood,
    tempered,
    tuned,
    widening,
)

# Steps of the first round for placing the powers; each later round is as long as all before it.
FIRST_ROUND = 32
# Lower bound on the rejection rate of a pair, so that two powers never coincide.
LEAST_REJECTION = 1e-3


class ParallelTemperingState(NamedTuple):
    """The position at power 1, all replicas from cold to hot, and what was learned.

    Attributes:
        position: position of the replica at power 1.
        replicas: states of the inner kernel, stacked.
        log_likelihood: log-likelihood of each replica, which its power multiplies.
        powers: powers of the replicas.
        log_scale: log of the factor of the inner step size at each power.
        rejection: sum over this round of the rejection probability of each pair.
        round_steps: steps of this round.
        from_hot: whether each replica last came from the hottest power.
        round_trips: how often a replica came from the hottest power to the target.
        num_steps: number of steps so far.
    """

    position: Array
    replicas: Any
    log_likelihood: Array
    powers: Array
    log_scale: Array
    rejection: Array
    round_steps: Array
    from_hot: Array
    round_trips: Array
    num_steps: Array


class ParallelTemperingInfo(NamedTuple):
    """Moves and exchanges of the replicas.

    Attributes:
        acceptance: acceptance probability of the cold replica.
        replica_acceptance: acceptance probability of every replica.
        swap_acceptance: exchange probability of each pair of neighbours, tried or not.
        round_trips: how often a replica has come from the hottest power to the target, so far.
    """

    acceptance: Array
    replica_acceptance: Array
    swap_acceptance: Array
    round_trips: Array


@partial(register_dataclass, data_fields=["kernel", "num_adapt"], meta_fields=["powers"])
@dataclass(frozen=True)
class ParallelTempering(OnLadder):
    r"""Move replicas at several powers of the likelihood, and let neighbours exchange positions.

    .. math:: f_k(\theta) = p(\theta) L(\theta)^{b_k}, \qquad
              a_{k,k+1} = \min\bigl(1, (L(\theta_{k+1}) / L(\theta_k))^{b_k - b_{k+1}} \bigr)

    Hot replicas move between modes and pass on what they find. Even and odd pairs alternate
    deterministically, so that replicas travel instead of diffusing. During adaptation the powers
    are placed so that all pairs exchange equally often, and the step size of each power is tuned;
    then everything is fixed, and the chain is exact. If exchanges are rarer than one in ten
    (``info.swap_acceptance``), use more powers. Without ``round_trips`` there is no exchange
    between modes. Geyer (1991); Okabe et al. (2001), Chem. Phys. Lett. 335:435-439; Syed,
    Bouchard-Cote, Deligiannidis & Doucet (2022), JRSS B 84:321-350, algorithms 1 and 4.

    Args:
        kernel: moves each replica; its state must be a function of its position.
        powers: decreasing from 1 to 0, the prior; for a target that is a plain function, to a small
            positive power of the whole function.
        num_adapt: steps in which powers and step sizes are learned; at most those of the warm-up.

    >>> import jax, jax.numpy as jnp
    >>> kernel = ParallelTempering(HMC(0.5, 5), powers=(1.0, 0.3, 0.1))
    >>> density = lambda u: -0.5 * jnp.sum(u**2)
    >>> state = jax.jit(lambda start: kernel.init(start, density))(jnp.zeros(2))
    >>> state, info = jax.jit(lambda key: kernel.step(key, state, density))(jax.random.key(0))
    >>> state.position.shape, info.swap_acceptance.shape
    ((2,), (2,))
    """

    kernel: Kernel = field(default_factory=HMC)
    powers: tuple[float, ...] = DEFAULT_POWERS
    num_adapt: int | Array = 500

    def init(self, position: Array, target: LogDensity) -> ParallelTemperingState:
        """All replicas at the same position."""
        check_lowest(target, self.powers)
        powers = jnp.asarray(self.powers, position.dtype)
        positions = jnp.broadcast_to(position, (len(self.powers), *position.shape))
        none = jnp.zeros((), int)
        return ParallelTemperingState(
            position=position,
            replicas=self._begin(positions, powers, target),
            log_likelihood=jax.vmap(partial(log_likelihood, target))(positions),
            powers=powers,
            log_scale=jnp.asarray(widening(self.powers), position.dtype),
            rejection=jnp.zeros_like(powers[1:]),
            round_steps=none,
            from_hot=jnp.zeros(powers.shape, bool),
            round_trips=none,
            num_steps=none,
        )

    def step(
        self, key: Array, state: ParallelTemperingState, target: LogDensity
    ) -> tuple[ParallelTemperingState, ParallelTemperingInfo]:
        """Move every replica, then try the even or the odd pairs of neighbours."""
        num = len(self.powers)
        key_move, key_swap = jax.random.split(key)

        def move(key: Array, replica: Any, power: Array, log_scale: Array) -> Any:
            kernel = self.kernel.rescale(jnp.exp(2 * log_scale))
            replica, info = kernel.step(key, replica, tempered(target, power))
            return replica.position, info.acceptance, log_likelihood(target, replica.position)

        positions, acceptance, likelihoods = jax.vmap(move)(
            jax.random.split(key_move, num), state.replicas, state.powers, state.log_scale
        )
        log_ratio = (state.powers[:-1] - state.powers[1:]) * (likelihoods[1:] - likelihoods[:-1])
        probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        taken = jax.random.uniform(key_swap, (num - 1,)) < probability
        taken = taken & (jnp.arange(num - 1) % 2 == state.num_steps % 2)
        order = jnp.arange(num) + jnp.pad(taken, (0, 1)) - jnp.pad(taken, (1, 0))
        positions, likelihoods = positions[order], likelihoods[order]
        from_hot = state.from_hot[order].at[-1].set(True)
        round_trips = state.round_trips + from_hot[0]

        learnt = self._learn(state, acceptance, probability)
        state = learnt._replace(
            position=positions[0],
            replicas=self._begin(positions, learnt.powers, target),
            log_likelihood=likelihoods,
            from_hot=from_hot.at[0].set(False),
            round_trips=round_trips,
            num_steps=state.num_steps + 1,
        )
        info = ParallelTemperingInfo(acceptance[0], acceptance, probability, round_trips)
        return state, info

    def _begin(self, positions: Array, powers: Array, target: LogDensity) -> Any:
        return jax.vmap(lambda u, power: self.kernel.init(u, tempered(target, power)))(
            positions, powers
        )

    def _learn(
        self, state: ParallelTemperingState, acceptance: Array, probability: Array
    ) -> ParallelTemperingState:
        """Tune step sizes at each step, and place the powers again at the end of each round."""
        adapting = state.num_steps < self.num_adapt
        gain = adapting * (1.0 + state.round_steps) ** -0.6
        steps, rejection = state.round_steps + 1, state.rejection + 1 - probability
        done = state.num_steps + 1
        ends = adapting & (done >= FIRST_ROUND) & (done & (done - 1) == 0)
        # Equal parts of the barrier give equal rejection rates: algorithm 4 of Syed et al.
        pairs = jnp.maximum(rejection / steps, LEAST_REJECTION)
        barrier = jnp.concatenate([jnp.zeros(1), jnp.cumsum(pairs)])
        parts = jnp.linspace(0.0, 1.0, len(self.powers)) * barrier[-1]
        # Fourth roots are nearly as evenly spaced as logarithms, and are defined at zero.
        placed = jnp.interp(parts, barrier, state.powers**0.25) ** 4
        placed = placed.at[0].set(1.0).at[-1].set(state.powers[-1])
        return state._replace(
            powers=jnp.where(ends, placed, state.powers),
            log_scale=tuned(self.kernel, state.log_scale, acceptance, gain),
            rejection=jnp.where(ends, 0.0, rejection),
            round_steps=jnp.where(ends, 0, steps),
        )

    def rescale(self, variance: Array | float) -> ParallelTempering:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, kernel=self.kernel.rescale(variance))
