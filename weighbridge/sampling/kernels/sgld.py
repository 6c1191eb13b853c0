"""Stochastic gradient Langevin dynamics."""

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


class SGLDState(NamedTuple):
    """Position, and number of steps made."""

    position: Array
    step: Array


class SGLDInfo(NamedTuple):
    """Whether the gradient noise exceeded the noise to inject, which was then clipped at zero."""

    noise_clipped: Array


@partial(
    register_dataclass,
    data_fields=["step_size", "gradient_noise"],
    meta_fields=["estimate_noise"],
)
@dataclass(frozen=True)
class SGLD(Kernel):
    r"""Langevin dynamics without momentum on mini-batch gradients.

    .. math::
        \theta \leftarrow \theta - \eta \nabla \hat U(\theta) + \xi, \quad
        \xi \sim N\bigl(0, 2 (1 - \tfrac12 \hat\beta \eta) \eta \bigr)

    Welling & Teh (2011), ICML.

    Args:
        step_size: the learning rate eta, a number or a ``RobbinsMonro`` schedule.
        gradient_noise: a fixed beta-hat, the variance of the gradient estimate.
        estimate_noise: estimate beta-hat from the spread of each mini-batch instead.
    """

    step_size: float | Array | RobbinsMonro = 1e-3
    gradient_noise: float | Array = 0.0
    estimate_noise: bool = False

    uses_batches: ClassVar[bool] = True

    def init(self, position: Array, target: LogDensity) -> SGLDState:
        """Start at a position."""
        return SGLDState(position, jnp.zeros((), int))

    def step(self, key: Array, state: SGLDState, target: LogDensity) -> tuple[SGLDState, SGLDInfo]:
        """One step on a fresh mini-batch."""
        batch_target = target.subsample(state.step)
        eta = step_size_at(self.step_size, state.step)
        beta = self.gradient_noise
        if self.estimate_noise:
            beta = batch_target.gradient_variance(state.position)
        variance, clipped = injected_variance(1.0, beta, eta)
        noise = jnp.sqrt(variance) * jax.random.normal(key, state.position.shape)
        position = state.position + eta * jax.grad(batch_target)(state.position) + noise
        return SGLDState(position, state.step + 1), SGLDInfo(clipped)

    def rescale(self, variance: Array | float) -> SGLD:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, step_size=self.step_size * variance)
