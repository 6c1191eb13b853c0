"""Random-walk Metropolis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.accept import standard_normal
from weighbridge.sampling.kernels.parts.dialogue import Point, step_alone, tuned_step_size
from weighbridge.sampling.kernels.parts.hastings import Hastings, MetropolisInfo, hastings
from weighbridge.sampling.kernels.parts.scale import push


@partial(register_dataclass, data_fields=["step_size", "scale"], meta_fields=[])
@dataclass(frozen=True)
class Metropolis(Kernel):
    r"""Propose a random step, accept with probability min(1, f(theta') / f(theta)).

    .. math:: \theta' = \theta + s S z, \qquad z \sim N(0, I)

    Metropolis et al. (1953), J. Chem. Phys. 21:1087-1092.

    Args:
        step_size: standard deviation s of the proposal, one number or one per coordinate.
        scale: one number, one for each coordinate, or a (Cholesky) matrix S; with a square root of
            the target's covariance, s = 2.38 / sqrt(dimension) is about the best step size.

    >>> import jax, jax.numpy as jnp
    >>> kernel = Metropolis(2.0)
    >>> state = kernel.init(jnp.zeros(1), lambda u: -0.5 * jnp.sum(u**2))
    >>> state, info = kernel.step(jax.random.key(0), state, lambda u: -0.5 * jnp.sum(u**2))
    >>> state.position.shape, bool(0 <= info.acceptance <= 1)
    ((1,), True)
    """

    step_size: float | Array = 0.5
    scale: float | Array = 1.0

    uses_gradient: ClassVar[bool] = False
    target_acceptance: ClassVar[float | None] = 0.3

    def init(self, position: Array, target: LogDensity) -> Point:
        """Evaluate the target at the position."""
        return Point(position, target(position))

    def step(self, key: Array, state: Point, target: LogDensity) -> tuple[Point, MetropolisInfo]:
        """One proposal and its accept test."""
        return step_alone(self, key, state, target)

    def num_uniform(self, shape: tuple[int, ...]) -> int:
        """One for each coordinate, and one for the accept test."""
        return shape[0] + 1

    def begin(self, uniform: Array, point: Point) -> Hastings:
        """Propose a position."""
        noise = standard_normal(uniform[:-1])
        proposed = point.position + self.step_size * push(self.scale, noise)
        return hastings(point, proposed, uniform[-1])

    def in_metric(self, scale: Array) -> Metropolis:
        """The same kernel with this scale."""
        return replace(self, scale=scale)

    def tuned(self, info: MetropolisInfo, dimension: int) -> Metropolis:
        """Longer steps if the acceptance is too high, shorter ones if it is too low."""
        step_size = tuned_step_size(self.step_size, info.acceptance, dimension, 100.0)
        return replace(self, step_size=step_size)

    def rescale(self, variance: Array | float) -> Metropolis:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, step_size=self.step_size * jnp.sqrt(variance))
