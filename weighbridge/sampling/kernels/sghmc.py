"""Stochastic gradient Hamiltonian Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.noise import injected_variance
from weighbridge.sampling.kernels.parts.schedule import RobbinsMonro, step_size_at


class SGHMCState(NamedTuple):
    """Position, velocity, and number of steps made."""

    position: Array
    velocity: Array
    step: Array


def at_rest(position: Array) -> SGHMCState:
    """The state before the first step, which draws the velocity."""
    return SGHMCState(position, jnp.zeros_like(position), jnp.zeros((), int))


class SGHMCInfo(NamedTuple):
    """Kinetic temperature (1 without heating), and whether the injected noise was clipped."""

    temperature: Array
    noise_clipped: Array


@partial(
    register_dataclass,
    data_fields=["step_size", "friction", "gradient_noise", "resample_every"],
    meta_fields=["estimate_noise"],
)
@dataclass(frozen=True)
class SGHMC(Kernel):
    r"""Langevin dynamics with momentum on mini-batch gradients.

    .. math::
        v \leftarrow (1 - \alpha) v - \eta \nabla \hat U(\theta) + \xi, \quad
        \theta \leftarrow \theta + v, \quad
        \xi \sim N\bigl(0, 2 (\alpha - \tfrac12 \hat\beta \eta) \eta \bigr)

    where beta-hat is an estimate of Var[grad U-hat]; the velocity starts from N(0, eta). The move
    is not adjusted: it samples a density that is hotter than the target, by the gradient noise that
    beta-hat does not account for, and distorted at second order in the step.

    Chen, Fox & Guestrin (2014), ICML; Cameron, Eggers & Kroon (2019), Entropy 21:1109. (The latter
    prints the noise variance without the factor 1/2, which would subtract twice the actual gradient
    noise.)

    Args:
        step_size: the learning rate eta, a number or a ``RobbinsMonro`` schedule.
        friction: the momentum decay alpha, in (0, 1].
        gradient_noise: a fixed beta-hat.
        resample_every: draw a new velocity every this many steps; 0 draws only the first.
        estimate_noise: estimate beta-hat from the spread of each mini-batch instead.
    """

    step_size: float | Array | RobbinsMonro = 1e-3
    friction: float | Array = 0.2
    gradient_noise: float | Array = 0.0
    resample_every: int | Array = 0
    estimate_noise: bool = False

    uses_batches: ClassVar[bool] = True

    def init(self, position: Array, target: LogDensity) -> SGHMCState:
        """Start at a position; the first step draws the velocity."""
        return at_rest(position)

    def step(
        self, key: Array, state: SGHMCState, target: LogDensity
    ) -> tuple[SGHMCState, SGHMCInfo]:
        """One step on a fresh mini-batch."""
        batch_target = target.subsample(state.step)
        eta = step_size_at(self.step_size, state.step)
        period = jnp.asarray(self.resample_every)
        renew = (state.step == 0) | ((period > 0) & (state.step % jnp.maximum(period, 1) == 0))
        gradient = jax.grad(batch_target)(state.position)
        beta = self.gradient_noise
        if self.estimate_noise:
            beta = batch_target.gradient_variance(state.position)
        variance, clipped = injected_variance(self.friction, beta, eta)
        # A new velocity N(0, eta) and the injected noise are both normal, so one draw is their sum.
        keep = 1 - self.friction
        velocity = keep * jnp.where(renew, 0.0, state.velocity) + eta * gradient
        spread = jnp.sqrt(variance + jnp.where(renew, keep**2 * eta, 0.0))
        velocity = velocity + spread * jax.random.normal(key, state.position.shape)
        # Without forces the Euler scheme has the stationary velocity variance eta / (1 - alpha /
        # 2).
        temperature = jnp.mean(velocity**2) * (1 - self.friction / 2) / eta
        position = state.position + velocity
        return SGHMCState(position, velocity, state.step + 1), SGHMCInfo(temperature, clipped)

    def rescale(self, variance: Array | float) -> SGHMC:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, step_size=self.step_size * variance)
