"""Preconditioned stochastic gradient Langevin dynamics."""

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
from weighbridge.sampling.kernels.sgld import SGLDInfo


class PSGLDState(NamedTuple):
    """Position, running mean of squared gradients, its slope, and number of steps made."""

    position: Array
    square: Array
    slope: Array
    step: Array


@partial(
    register_dataclass,
    data_fields=["step_size", "decay", "damping", "initial_square", "gradient_noise"],
    meta_fields=["estimate_noise", "correct_drift"],
)
@dataclass(frozen=True)
class PSGLD(Kernel):
    r"""SGLD with step sizes adapted to the size of each coordinate's gradient (RMSprop).

    .. math::
        V \leftarrow \rho V + (1 - \rho) (\nabla \hat U)^2, \quad
        G = \frac{1}{\lambda + \sqrt V}, \quad
        \theta \leftarrow \theta - \epsilon (G \nabla \hat U - \Gamma) + \xi, \quad
        \xi \sim N\bigl(0, 2 (1 - \tfrac12 \hat\beta \epsilon G) \epsilon G \bigr)

    Gamma is the derivative of E[G | theta] with respect to theta. With it, small steps leave the
    posterior invariant. The paper drops it, and so does the default, because each single gradient
    changes V only a little. But in a slow chain many gradients come from nearby positions, so V
    does depend on theta. Without gamma, a smaller step at the same decay is therefore *worse*: on a
    standard normal with exact gradients the variance grows from 1 towards 2 as the step size
    decreases, and gamma corrects this (``tests/sampling/test_psgld.py`` measures both). Mini-batch
    noise hides the effect.

    ``correct_drift`` adds gamma. It needs the slope W of V. The past of W decays as that of V does,
    and in addition as fast as the chain forgets its position:

    .. math::
        \Gamma = -\frac{G^2 W}{2 \sqrt V}, \quad
        W \leftarrow \rho e^{-\epsilon G |\partial^2 U|} W
                     + 2 (1 - \rho) \nabla \hat U \, \partial^2 \hat U

    (correct for fast and for slow decay; only the diagonal of the Hessian enters). The paper's
    gamma uses the derivative of V through the latest gradient alone; it is only the last term of W.

    Li, Chen, Carlson & Carin (2016), AAAI.

    Args:
        step_size: epsilon, a number or a ``RobbinsMonro`` schedule, in units of the target's
            standard deviation: a coordinate of variance s^2 relaxes in about s / epsilon steps.
        decay: rho, the weight of the past in V; 1 keeps the initial V, which is SGLD.
        damping: lambda, which bounds G.
        initial_square: V at the start: 1 over the expected variance.
        gradient_noise: a fixed beta-hat, the variance of the gradient estimate.
        estimate_noise: estimate beta-hat from the spread of each mini-batch instead.
        correct_drift: add gamma, at the cost of a Hessian in every step.

    >>> import numpyro.distributions as dist
    >>> from weighbridge.models.model import Model
    >>> from weighbridge.models.targets.density import Target
    >>> target = Target(Model({"u": dist.Normal(0, 10)}, lambda p, row: 0.0), ())
    >>> kernel = PSGLD(0.1, decay=0.5)
    >>> start = kernel.init(jnp.full(1, 20.0), target)
    >>> state, _ = kernel.step(jax.random.key(0), start, target)
    >>> round(float(state.square[0]), 6)  # the gradient is -0.2
    0.52
    """

    step_size: float | Array | RobbinsMonro = 0.1
    decay: float | Array = 0.99
    damping: float | Array = 1e-5
    initial_square: float | Array = 1.0
    gradient_noise: float | Array = 0.0
    estimate_noise: bool = False
    correct_drift: bool = False

    uses_batches: ClassVar[bool] = True

    def init(self, position: Array, target: LogDensity) -> PSGLDState:
        """Start at a position, with the given mean of squares."""
        zero = jnp.zeros_like(position)
        return PSGLDState(position, zero + self.initial_square, zero, jnp.zeros((), int))

    def step(
        self, key: Array, state: PSGLDState, target: LogDensity
    ) -> tuple[PSGLDState, SGLDInfo]:
        """One step on a fresh mini-batch."""
        batch_target = target.subsample(state.step)
        epsilon = step_size_at(self.step_size, state.step)
        gradient = jax.grad(batch_target)(state.position)
        square = self.decay * state.square + (1 - self.decay) * gradient**2
        eta = epsilon / (self.damping + jnp.sqrt(square))
        beta = self.gradient_noise
        if self.estimate_noise:
            beta = batch_target.gradient_variance(state.position)
        variance, clipped = injected_variance(1.0, beta, eta)
        noise = jnp.sqrt(variance) * jax.random.normal(key, state.position.shape)
        position, slope = state.position + eta * gradient + noise, state.slope
        if self.correct_drift:
            curvature = jnp.diagonal(jax.hessian(batch_target)(state.position))
            # Where the log density is convex the past is neither forgotten nor amplified.
            kept = self.decay * jnp.exp(jnp.minimum(eta * curvature, 0.0))
            slope = kept * slope + 2 * (1 - self.decay) * gradient * curvature
            position = position - eta**2 / epsilon * slope / (2 * jnp.sqrt(square))
        return PSGLDState(position, square, slope, state.step + 1), SGLDInfo(clipped)

    def rescale(self, variance: Array | float) -> PSGLD:
        """The kernel for a target whose variances are larger by this factor."""
        scale = jnp.sqrt(variance)
        return replace(
            self,
            step_size=self.step_size * scale,
            damping=self.damping / scale,
            initial_square=self.initial_square / variance,
        )
