"""Hamiltonian Monte Carlo with a fixed number of leapfrog steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.base import Array, LogDensity
from weighbridge.kernels.accept import metropolis_accept


class HMCState(NamedTuple):
    """Position, and the log density and its gradient there."""

    position: Array
    log_density: Array
    gradient: Array


class HMCInfo(NamedTuple):
    """Acceptance probability, whether it was taken, the energy error, and divergence."""

    acceptance: Array
    accepted: Array
    energy_error: Array
    divergent: Array


# Beyond this many nats of energy error the trajectory is called divergent, as in Stan.
DIVERGENCE = 1000.0


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["step_size", "num_leapfrog", "inverse_mass"],
    meta_fields=[],
)
@dataclass(frozen=True)
class HMC:
    r"""Follow Hamiltonian dynamics by leapfrog steps, then accept or reject.

    .. math::
        H(\theta, v) = -\log f(\theta) + \tfrac12 v^\top M^{-1} v, \qquad
        a = \min(1, e^{H_{start} - H_{end}})

    Neal (2011), MCMC using Hamiltonian dynamics; Duane et al. (1987).

    Args:
        step_size: length of a leapfrog step.
        num_leapfrog: how many of them make a trajectory.
        inverse_mass: diagonal of M^-1, one number or one per coordinate; the variances of the
            target are the best choice.
    """

    step_size: float | Array = 0.1
    num_leapfrog: int | Array = 10
    inverse_mass: float | Array = 1.0

    uses_batches: ClassVar[bool] = False

    def init(self, position: Array, target: LogDensity) -> HMCState:
        """Evaluate the target and its gradient at the position."""
        log_density, gradient = jax.value_and_grad(target)(position)
        return HMCState(position, log_density, gradient)

    def step(self, key: Array, state: HMCState, target: LogDensity) -> tuple[HMCState, HMCInfo]:
        """One trajectory and its accept test."""
        key_momentum, key_accept = jax.random.split(key)
        momentum = jax.random.normal(key_momentum, state.position.shape)
        momentum = momentum / jnp.sqrt(self.inverse_mass)

        def leapfrog(_: int, carry: tuple[HMCState, Array]) -> tuple[HMCState, Array]:
            current, momentum = carry
            momentum = momentum + 0.5 * self.step_size * current.gradient
            position = current.position + self.step_size * self.inverse_mass * momentum
            following = self.init(position, target)
            return following, momentum + 0.5 * self.step_size * following.gradient

        proposed, final = jax.lax.fori_loop(0, self.num_leapfrog, leapfrog, (state, momentum))
        error = self._energy(proposed, final) - self._energy(state, momentum)
        error = jnp.where(jnp.isnan(error), jnp.inf, error)
        state, probability, accepted = metropolis_accept(key_accept, -error, proposed, state)
        return state, HMCInfo(probability, accepted, error, error > DIVERGENCE)

    def _energy(self, state: HMCState, momentum: Array) -> Array:
        return -state.log_density + 0.5 * jnp.sum(self.inverse_mass * momentum**2)

    def rescale(self, variance: Array | float) -> HMC:
        """The kernel for a target whose variances are this many times as large."""
        return replace(self, step_size=self.step_size * jnp.sqrt(variance))
