"""Stochastic gradient Riemannian Hamiltonian Monte Carlo with a diagonal Fisher metric."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.noise import injected_variance
from weighbridge.sampling.kernels.parts.schedule import RobbinsMonro, step_size_at
from weighbridge.sampling.kernels.sghmc import SGHMCInfo, SGHMCState, at_rest


@partial(
    register_dataclass,
    data_fields=["step_size", "friction", "damping", "gradient_noise"],
    meta_fields=["estimate_noise"],
)
@dataclass(frozen=True)
class RiemannianSGHMC(Kernel):
    r"""SGHMC with a metric from the diagonal of the Fisher information.

    .. math::
        v \leftarrow (1 - \alpha) v - \eta \bigl(S \nabla \hat U - \Gamma\bigr) + \xi, \quad
        \theta \leftarrow \theta + S v, \quad
        \xi \sim N\bigl(0, 2 (\alpha - \tfrac12 \hat\beta S^2 \eta) \eta \bigr)

    .. math::
        S_i(\theta) = (\lambda_i + \beta_i(\theta))^{-1/2}, \qquad
        \Gamma_i = \partial S_i / \partial \theta_i

    where beta is the variance of the gradient over mini-batches. For n rows and batches of B rows
    it is n / B times the diagonal of the (empirical) Fisher information: the rows determine the
    shape of the metric, and the noise its size. Therefore no coordinate is heated by more than eta
    / (2 alpha), and with ``estimate_noise`` nothing is clipped up to eta = 2 alpha. For exact
    gradients beta is 0, and the metric depends on lambda only.

    In the paper's recipe the velocity has covariance eta for every theta, the curl matrix is S, and
    the friction is constant. The only correction for the metric's dependence on theta is then
    Gamma: without it the density is wrong by a factor 1 / S. Gamma must be the derivative of
    exactly the function S that makes the step. So the metric is not averaged over past positions:
    such an average depends on theta through the path, and its derivative is unknown. The metric
    comes from one mini-batch, that of the target as given, and not from the fresh batches of the
    gradients, whose noise would be correlated with it. Gamma is computed from one derivative along
    a random direction of signs z, as z (dS z), whose mean is the required diagonal. The position
    moves with the metric at the midpoint, to first order: with the metric at the start it would be
    shifted at first order in sqrt(eta).

    Ma, Chen & Fox (2015), NeurIPS. (The paper uses the friction G^-1; any friction is valid.)

    Args:
        step_size: the learning rate eta for a metric of 1, or a ``RobbinsMonro`` schedule.
        friction: the momentum decay alpha, in (0, 1].
        damping: lambda, which is the metric without noise, one number or one for each coordinate;
            with lambda = 1 and exact gradients the move is SGHMC.
        gradient_noise: a fixed beta-hat.
        estimate_noise: use the metric's beta as beta-hat.

    >>> import numpyro.distributions as dist
    >>> from weighbridge.models.model import Model
    >>> from weighbridge.models.targets.density import Target
    >>> target = Target(Model({"u": dist.Normal(0, 1)}, lambda p, row: 0.0), ())
    >>> kernel = RiemannianSGHMC(0.01, friction=0.1, damping=4.0)
    >>> state, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(1), target), target)
    >>> bool(jnp.allclose(state.position, state.velocity / 2))
    True
    """

    step_size: float | Array | RobbinsMonro = 0.05
    friction: float | Array = 0.2
    damping: float | Array = 1.0
    gradient_noise: float | Array = 0.0
    estimate_noise: bool = False

    uses_batches: ClassVar[bool] = True

    def init(self, position: Array, target: LogDensity) -> SGHMCState:
        """Start at a position; the first step draws the velocity."""
        return at_rest(position)

    def step(
        self, key: Array, state: SGHMCState, target: LogDensity
    ) -> tuple[SGHMCState, SGHMCInfo]:
        """One step on a fresh mini-batch."""
        eta = step_size_at(self.step_size, state.step)
        normal, other = jax.random.normal(key, (2, *state.position.shape))
        signs = jnp.sign(other)

        def metric(position: Array) -> tuple[Array, Array]:
            spread = target.gradient_variance(position)
            return -0.5 * jnp.log(self.damping + spread), spread

        log_scale, change, spread = jax.linearize(metric, state.position, has_aux=True)
        scale = jnp.exp(log_scale)
        gradient = jax.grad(target.subsample(state.step))(state.position)
        beta = spread if self.estimate_noise else self.gradient_noise
        variance, clipped = injected_variance(self.friction, beta * scale**2, eta)
        keep = 1 - self.friction
        spread_first = jnp.where(state.step == 0, keep**2 * eta, 0.0)
        velocity = keep * state.velocity + eta * scale * (gradient + signs * change(signs))
        velocity = velocity + jnp.sqrt(variance + spread_first) * normal
        # As in SGHMC: without forces the stationary velocity variance is eta / (1 - alpha / 2).
        temperature = jnp.mean(velocity**2) * (1 - self.friction / 2) / eta
        move = scale * velocity
        # The metric at the midpoint; the hyperbolic tangent limits changes that are too large.
        position = state.position + move * (1 + jnp.tanh(change(move) / 2))
        return SGHMCState(position, velocity, state.step + 1), SGHMCInfo(temperature, clipped)

    def rescale(self, variance: Array | float) -> RiemannianSGHMC:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, damping=self.damping / variance)
