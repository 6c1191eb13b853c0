"""The Metropolis-adjusted Langevin algorithm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.hmc import DIVERGENCE, HMCState, evaluate
from weighbridge.sampling.kernels.parts.accept import metropolis_accept, standard_normal
from weighbridge.sampling.kernels.parts.leapfrog import leapfrog


class MALAInfo(NamedTuple):
    """Acceptance probability of the proposal, whether it was accepted, and divergence."""

    acceptance: Array
    accepted: Array
    divergent: Array


@partial(register_dataclass, data_fields=["step_size", "scale"], meta_fields=[])
@dataclass(frozen=True)
class MALA(Kernel):
    r"""Move along the gradient with added noise, then accept or reject.

    .. math::
        \theta' = \theta + \tfrac{\epsilon^2}{2} S S^\top \nabla \log f(\theta) + \epsilon S z,
        \quad z \sim N(0, I), \quad
        a = \min\Bigl(1, \frac{f(\theta') q(\theta | \theta')}{f(\theta) q(\theta' | \theta)}\Bigr)

    The proposal is not symmetric. The noise of the reverse move is

    .. math:: z' = -z - \tfrac\epsilon2 S^\top
              \bigl(\nabla \log f(\theta) + \nabla \log f(\theta')\bigr), \quad
              q(\theta | \theta') / q(\theta' | \theta) = e^{(|z|^2 - |z'|^2) / 2}

    which makes the move one leapfrog step from the momentum z to -z'. Roberts & Tweedie (1996),
    Bernoulli 2:341-363; Roberts & Rosenthal (1998), JRSS B 60:255-268.

    Args:
        step_size: standard deviation epsilon of the noise; the drift is proportional to its square.
        scale: one number, one for each coordinate, or a (Cholesky) matrix S; a square root of the
            target's covariance is the best choice.

    >>> import jax, jax.numpy as jnp
    >>> kernel = MALA(1.0)
    >>> state = kernel.init(jnp.zeros(2), lambda u: -0.5 * jnp.sum(u**2))
    >>> state, info = kernel.step(jax.random.key(0), state, lambda u: -0.5 * jnp.sum(u**2))
    >>> state.position.shape, bool(0 <= info.acceptance <= 1)
    ((2,), True)
    """

    step_size: float | Array = 0.5
    scale: float | Array = 1.0

    target_acceptance: ClassVar[float | None] = 0.574

    def init(self, position: Array, target: LogDensity) -> HMCState:
        """Evaluate the target and its gradient at the position."""
        return evaluate(position, target)

    def step(self, key: Array, state: HMCState, target: LogDensity) -> tuple[HMCState, MALAInfo]:
        """One proposal and its accept test."""
        uniform = jax.random.uniform(key, (state.position.shape[0] + 1,))
        noise = standard_normal(uniform[:-1])
        proposed, back = leapfrog(
            lambda at: evaluate(at, target), state, noise, self.step_size, self.scale
        )
        log_ratio = proposed.log_density - state.log_density
        log_ratio = log_ratio + 0.5 * jnp.sum(noise**2) - 0.5 * jnp.sum(back**2)
        divergent = ~(log_ratio >= -DIVERGENCE)  # also true for NaN
        state, probability, accepted = metropolis_accept(uniform[-1], log_ratio, proposed, state)
        return state, MALAInfo(probability, accepted, divergent)

    def rescale(self, variance: Array | float) -> MALA:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, step_size=self.step_size * jnp.sqrt(variance))
