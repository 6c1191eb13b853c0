"""Step sizes that follow a schedule instead of a constant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array


@partial(register_dataclass, data_fields=["scale", "offset", "decay"], meta_fields=[])
@dataclass(frozen=True)
class RobbinsMonro:
    r"""A step size that decays slowly enough to reach the target, and fast enough to converge.

    .. math:: \eta_t = a (b + t)^{-\gamma}, \qquad \tfrac12 < \gamma \le 1

    Welling & Teh (2011), ICML.

    >>> float(RobbinsMonro(scale=0.1, offset=1.0, decay=0.55)(0))
    0.1...
    """

    scale: float | Array = 0.1
    offset: float | Array = 1.0
    decay: float | Array = 0.55

    def __call__(self, step: Array | int) -> Array:
        """The step size at a step."""
        return jnp.asarray(self.scale * (self.offset + step) ** (-self.decay))

    def __mul__(self, factor: Array | float) -> RobbinsMonro:
        """The schedule with all step sizes multiplied by a factor."""
        return replace(self, scale=self.scale * factor)


def step_size_at(step_size: Any, step: Array) -> Array:
    """The step size at a step, for a schedule or a constant."""
    return jnp.asarray(step_size(step) if callable(step_size) else step_size)
