"""Powers of the likelihood between the prior and the posterior, for tempered kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.types import Array, Kernel, LogDensity

# Each power is half of the one before; the last is the prior.
DEFAULT_POWERS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0)


def check_ladder(kernel: Kernel, powers: tuple[float, ...]) -> None:
    """Refuse powers that do not decrease from 1, and kernels that cannot be tempered."""
    if not isinstance(powers, tuple) or len(powers) < 2:
        raise MethodError(f"powers must be a tuple of two or more numbers, not {powers!r}.")
    gaps = np.diff(powers)
    if powers[0] != 1 or powers[-1] < 0 or not np.all(gaps < 0):
        raise MethodError(
            f"powers must fall from exactly 1 to 0 or more, not {powers}: the first is the target "
            "itself, 0 the prior."
        )
    if kernel.uses_batches or kernel.ensemble:
        raise MethodError(
            f"{type(kernel).__name__} cannot move at the powers of a ladder: tempering needs a "
            "kernel with an accept test that moves one position, such as wb.HMC() or "
            "wb.Metropolis()."
        )


class OnLadder(Kernel):
    """Base of kernels that move on a ladder of powers with an inner kernel."""

    kernel: Kernel
    powers: tuple[float, ...]

    def __post_init__(self) -> None:
        check_ladder(self.kernel, self.powers)

    @property
    def uses_gradient(self) -> bool:
        """Whether the inner kernel uses gradients."""
        return self.kernel.uses_gradient


def tempered(target: Any, power: Array | float) -> LogDensity:
    """The target with its likelihood raised to a power; a plain function is raised as a whole."""
    if hasattr(target, "tempered"):
        return cast(LogDensity, target.tempered(power))
    return cast(LogDensity, lambda position: power * target(position))


def check_lowest(target: Any, powers: tuple[float, ...]) -> None:
    """Refuse the power 0 of a plain function, which is flat and improper."""
    if powers[-1] == 0 and not hasattr(target, "tempered"):
        raise MethodError(
            "The power 0 of a plain function is flat, and cannot be sampled. Give powers that end "
            "above 0, such as powers=(1.0, 0.3, 0.1), or a target with a prior."
        )


def log_likelihood(target: LogDensity, position: Array) -> Array:
    """The factor of the power: the derivative of the tempered log density by its power."""
    density: Callable[[Array], Array] = lambda power: tempered(target, power)(position)  # noqa: E731
    slope: Array = jax.jvp(density, (jnp.ones(()),), (jnp.ones(()),))[1]
    return slope


def widening(powers: tuple[float, ...]) -> np.ndarray:
    """Log of the initial factor of the step size at each power.

    A Gaussian likelihood of power b is wider by 1 / sqrt(b); for the prior the factor is a guess.
    """
    floor = 0.5 * min(power for power in powers if power > 0)
    return -0.5 * np.log(np.maximum(powers, floor))


def tuned(kernel: Kernel, log_scale: Array, acceptance: Array, gain: Array) -> Array:
    """Step sizes adapted towards the kernel's target acceptance, if it has one."""
    wanted = kernel.target_acceptance
    return log_scale if wanted is None else log_scale + gain * (acceptance - wanted)
