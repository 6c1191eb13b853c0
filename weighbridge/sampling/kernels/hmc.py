"""Hamiltonian Monte Carlo with a fixed number of leapfrog steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.accept import metropolis_accept, standard_normal
from weighbridge.sampling.kernels.parts.leapfrog import leapfrog
from weighbridge.sampling.kernels.parts.scale import Scale


class HMCState(NamedTuple):
    """Position, log density, and the gradient of the log density or of a guide."""

    position: Array
    log_density: Array
    gradient: Array


def evaluate(position: Array, target: LogDensity, guide: LogDensity | None = None) -> HMCState:
    """The state at a position; with a guide, the gradient is the guide's."""
    if guide is not None:
        return HMCState(position, target(position), jax.grad(guide)(position))
    log_density, gradient = jax.value_and_grad(target)(position)
    return HMCState(position, log_density, gradient)


class HMCInfo(NamedTuple):
    """Facts about one trajectory.

    Attributes:
        acceptance: probability of accepting its end.
        accepted: whether it was accepted.
        energy: H at the new state of the chain, with the momentum there.
        energy_error: H_end - H_start of the trajectory.
        divergent: whether the energy error became too large.
    """

    acceptance: Array
    accepted: Array
    energy: Array
    energy_error: Array
    divergent: Array


# A trajectory with a larger energy error (nats) is called divergent, as in Stan.
DIVERGENCE = 1000.0


@partial(
    register_dataclass,
    data_fields=["step_size", "num_leapfrog", "scale", "jitter"],
    meta_fields=[],
)
@dataclass(frozen=True)
class HMC(Kernel):
    r"""Follow Hamiltonian dynamics by leapfrog steps, then accept or reject.

    .. math::
        H(\theta, p) = -\log f(\theta) + \tfrac12 p^\top M^{-1} p, \qquad
        a = \min(1, e^{H_{start} - H_{end}})

    with M^-1 = S S^T; the momentum is kept as r = S^T p, which is standard normal.

    Neal (2011), MCMC using Hamiltonian dynamics; Duane et al. (1987).

    Args:
        step_size: length of a leapfrog step.
        num_leapfrog: number of leapfrog steps of a trajectory.
        scale: the square root S of the inverse mass: one number, one for each coordinate, a
            (Cholesky) matrix, or ``LowRank``; a square root of the target's covariance is best.
        jitter: each trajectory's step size is multiplied by a number drawn from 1 - jitter to 1 +
            jitter, so that the length of trajectories is not always a period of the target.
    """

    step_size: float | Array = 0.1
    num_leapfrog: int | Array = 10
    scale: Scale = 1.0
    jitter: float | Array = 0.0

    target_acceptance: ClassVar[float | None] = 0.8

    def init(self, position: Array, target: LogDensity) -> HMCState:
        """Evaluate the target and its gradient at the position."""
        return evaluate(position, target)

    def step(self, key: Array, state: HMCState, target: LogDensity) -> tuple[HMCState, HMCInfo]:
        """One trajectory and its accept test."""
        uniform = jax.random.uniform(key, (state.position.shape[0] + 2,))
        return self.step_with(uniform, state, target)

    def step_with(
        self,
        uniform: Array,
        state: HMCState,
        target: LogDensity,
        guide: LogDensity | None = None,
    ) -> tuple[HMCState, HMCInfo]:
        """The step for given uniform numbers, one for each coordinate and one more.

        A caller that moves many particles draws the numbers for all of them at once, which compiles
        much faster than one key for each. One more number draws the jitter; without it there is no
        jitter. With a guide, the trajectory and the state use the guide's gradient, and the target
        is evaluated only in the accept test. The test is still exact: leapfrog steps preserve
        volume and are reversible for any gradient (Neal 2011, section 5).
        """
        dimension = state.position.shape[0]
        momentum = standard_normal(uniform[:dimension])
        step_size = self.step_size
        if uniform.shape[0] > dimension + 1:
            step_size = step_size * (1 + self.jitter * (2 * uniform[dimension + 1] - 1))

        def at(position: Array) -> HMCState:
            if guide is None:
                return evaluate(position, target)
            return HMCState(position, state.log_density, jax.grad(guide)(position))

        def move(_: int, carry: tuple[HMCState, Array]) -> tuple[HMCState, Array]:
            return leapfrog(at, *carry, step_size, self.scale)

        proposed, final = jax.lax.fori_loop(0, self.num_leapfrog, move, (state, momentum))
        if guide is not None:
            proposed = proposed._replace(log_density=target(proposed.position))
        before = 0.5 * jnp.sum(momentum**2) - state.log_density
        error = 0.5 * jnp.sum(final**2) - proposed.log_density - before
        error = jnp.where(jnp.isnan(error), jnp.inf, error)
        state, probability, accepted = metropolis_accept(
            uniform[dimension], -error, proposed, state
        )
        energy = before + jnp.where(accepted, error, 0.0)
        return state, HMCInfo(probability, accepted, energy, error, error > DIVERGENCE)

    def rescale(self, variance: Array | float) -> HMC:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, step_size=self.step_size * jnp.sqrt(variance))
