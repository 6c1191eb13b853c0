"""Stochastic gradient Nose-Hoover thermostat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.schedule import RobbinsMonro, step_size_at


class SGNHTState(NamedTuple):
    """Position, velocity, friction set by the thermostat, and number of steps made."""

    position: Array
    velocity: Array
    thermostat: Array
    step: Array


class SGNHTInfo(NamedTuple):
    """Kinetic temperature (1 once the thermostat has settled), and the mean friction in use."""

    temperature: Array
    thermostat: Array


@partial(
    register_dataclass,
    data_fields=["step_size", "friction", "rate", "gradient_noise"],
    meta_fields=["per_coordinate", "estimate_noise"],
)
@dataclass(frozen=True)
class SGNHT(Kernel):
    r"""SGHMC with a friction that rises until it balances the gradient noise, however large.

    .. math::
        v \leftarrow (1 - \zeta) v - \eta \nabla \hat U(\theta) + \xi, \quad
        \theta \leftarrow \theta + v, \quad
        \zeta \leftarrow \zeta + c \bigl((1 - \tfrac12 \zeta) \overline{v^2} / \eta - 1\bigr), \quad
        \xi \sim N(0, 2 \alpha \eta)

    The thermostat zeta starts at alpha and ends near alpha + beta eta / 2, where beta is the
    variance of the gradient estimate. Beta need not be known: its effect is absorbed if it is the
    same everywhere, and small enough that zeta stays below 1, its upper limit. In the long run zeta
    varies about its mean with variance c (c / dimension if there is one thermostat for all).

    In the paper c = eta. Here it has no unit, so that a rescaled kernel makes the rescaled move.
    The temperature has SGHMC's factor 1 - zeta / 2; without it the velocity has the right variance,
    but the variance of the position is too small by that factor.

    Ding, Fang, Babbush, Chen, Skeel & Neven (2014), NeurIPS; Gan, Chen, Henao, Carlson & Carin
    (2015), ICML, for one thermostat per coordinate.

    Args:
        step_size: the learning rate eta, a number or a ``RobbinsMonro`` schedule.
        friction: alpha, in (0, 1]; the injected friction, and the start of the thermostat.
        rate: c, how fast the thermostat reacts; it needs about friction / rate steps to settle.
        gradient_noise: a guess of beta, to start the thermostat near its final value.
        per_coordinate: use one thermostat per coordinate, if their noise differs.
        estimate_noise: estimate beta from the target's mini-batch at the start.

    >>> import numpyro.distributions as dist
    >>> from weighbridge.models.model import Model
    >>> from weighbridge.models.targets.density import Target
    >>> target = Target(Model({"u": dist.Normal(0, 1)}, lambda p, row: 0.0), ())
    >>> kernel = SGNHT(0.01, friction=0.1, gradient_noise=20.0)
    >>> state = kernel.init(jnp.zeros(1), target)
    >>> round(float(state.thermostat), 6)
    0.2
    """

    step_size: float | Array | RobbinsMonro = 1e-3
    friction: float | Array = 0.2
    rate: float | Array = 0.01
    gradient_noise: float | Array = 0.0
    per_coordinate: bool = False
    estimate_noise: bool = False

    uses_batches: ClassVar[bool] = True

    def init(self, position: Array, target: LogDensity) -> SGNHTState:
        """Start at a position; the first step draws the velocity."""
        step = jnp.zeros((), int)
        beta = self.gradient_noise
        if self.estimate_noise:
            beta = target.gradient_variance(position)
        friction = self.friction + step_size_at(self.step_size, step) * beta / 2
        friction = jnp.minimum(jnp.broadcast_to(friction, position.shape), 1.0)
        thermostat = friction if self.per_coordinate else jnp.mean(friction)
        return SGNHTState(position, jnp.zeros_like(position), thermostat, step)

    def step(
        self, key: Array, state: SGNHTState, target: LogDensity
    ) -> tuple[SGNHTState, SGNHTInfo]:
        """One step on a fresh mini-batch."""
        eta = step_size_at(self.step_size, state.step)
        gradient = jax.grad(target.subsample(state.step))(state.position)
        keep = 1 - state.thermostat
        # A first velocity N(0, eta) and the injected noise are both normal, so one draw is their
        # sum.
        variance = 2 * self.friction * eta + jnp.where(state.step == 0, keep**2 * eta, 0.0)
        noise = jnp.sqrt(variance) * jax.random.normal(key, state.position.shape)
        velocity = keep * state.velocity + eta * gradient + noise
        position = state.position + velocity
        temperature = (1 - state.thermostat / 2) * velocity**2 / eta
        mean = jnp.mean(temperature)
        excess = (temperature if self.per_coordinate else mean) - 1
        # Above 1 the velocity would change its sign in every step, and grow.
        thermostat = jnp.minimum(state.thermostat + self.rate * excess, 1.0)
        info = SGNHTInfo(mean, jnp.mean(thermostat))
        return SGNHTState(position, velocity, thermostat, state.step + 1), info

    def rescale(self, variance: Array | float) -> SGNHT:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, step_size=self.step_size * variance)
