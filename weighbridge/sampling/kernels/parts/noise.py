"""The injected noise of stochastic gradient Langevin moves."""

from __future__ import annotations

import jax.numpy as jnp

from weighbridge.core.types import Array


def injected_variance(
    friction: float | Array, gradient_noise: float | Array, eta: Array
) -> tuple[Array, Array]:
    r"""Variance of the noise to inject: the noise of the gradient is subtracted.

    .. math:: 2 (\alpha - \tfrac12 \hat\beta \eta) \eta = 2 \alpha \eta - \hat\beta \eta^2

    The gradient contributes variance eta^2 beta-hat. If beta-hat eta / 2 exceeds alpha, this is
    more than the required noise: the variance is clipped at zero, and the second value is true.
    """
    variance = 2 * (friction - gradient_noise * eta / 2) * eta
    return jnp.maximum(variance, 0.0), jnp.any(variance < 0)
