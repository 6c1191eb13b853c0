"""Independence Metropolis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.dialogue import Point, step_alone
from weighbridge.sampling.kernels.parts.hastings import Hastings, MetropolisInfo, hastings
from weighbridge.sampling.kernels.parts.proposals import (
    check_degrees,
    draw_bell,
    log_bell,
    num_bell_uniform,
    unpush,
)
from weighbridge.sampling.kernels.parts.scale import push, stretched

# With fewer draws than coordinates the covariance is singular. It is regularised as if by this many
# further draws, with this share of each coordinate's variance.
EXTRA_DRAWS = 5.0
SMALL_SHARE = 1e-3


@partial(register_dataclass, data_fields=["mean", "scale"], meta_fields=["degrees"])
@dataclass(frozen=True)
class Independence(Kernel):
    r"""Propose from a fixed distribution, accept by the ratio of importance weights.

    .. math:: \theta' = m + S z, \qquad w(\theta) = f(\theta) / q(\theta), \qquad
              a = \min(1, w(\theta') / w(\theta))

    with z from a multivariate Student-t or a standard normal. If the weights are unbounded, the
    chain gets stuck where they are large. Therefore a proposal must not have lighter tails than the
    target, and the Student-t is the default. Tierney (1994), Annals of Statistics 22:1701-1728.

    Args:
        mean: centre m of the proposal, in unconstrained coordinates.
        scale: one number, one for each coordinate, or a (Cholesky) matrix S.
        degrees: degrees of freedom of the Student-t, a whole number; None for a normal.

    >>> import jax, jax.numpy as jnp
    >>> kernel = Independence(jnp.zeros(2), 1.2, degrees=None)
    >>> state = kernel.init(jnp.zeros(2), lambda u: -0.5 * jnp.sum(u**2))
    >>> state, info = kernel.step(jax.random.key(0), state, lambda u: -0.5 * jnp.sum(u**2))
    >>> state.position.shape, bool(0 <= info.acceptance <= 1)
    ((2,), True)
    """

    mean: float | Array = 0.0
    scale: float | Array = 1.0
    degrees: int | None = 5

    uses_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_degrees(self.degrees)

    @classmethod
    def fitted(cls, positions: Any, degrees: int | None = 5) -> Independence:
        """The kernel whose proposal has the mean and covariance of some draws.

        Args:
            positions: unconstrained positions, draws x coordinates or chains x draws x
                coordinates.
            degrees: degrees of freedom of the Student-t; None for a normal.

        >>> kernel = Independence.fitted(np.random.default_rng(0).normal(size=(500, 2)))
        >>> kernel.mean.shape, kernel.scale.shape
        ((2,), (2, 2))
        """
        draws = np.asarray(positions, np.float64)
        if draws.ndim not in (2, 3) or draws.shape[-1] == 0:
            raise MethodError(
                "positions must be draws x coordinates, or chains x draws x coordinates; this "
                f"array has shape {draws.shape}."
            )
        draws = draws.reshape(-1, draws.shape[-1])
        num, dimension = draws.shape
        if num < 2:
            raise MethodError("A covariance needs at least two draws; run the chain longer.")
        if not np.all(np.isfinite(draws)):
            raise MethodError("positions must be finite; leave out draws that are not.")
        covariance = np.cov(draws, rowvar=False).reshape(dimension, dimension)
        variance = np.diag(covariance)
        if not np.all(variance > 0):
            still = np.flatnonzero(variance <= 0).tolist()
            raise MethodError(f"Coordinates {still} never move in these draws; use a longer chain.")
        extra = SMALL_SHARE * EXTRA_DRAWS * np.diag(variance)
        covariance = (num * covariance + extra) / (num + EXTRA_DRAWS)
        mean: Any = draws.mean(0)
        scale: Any = np.linalg.cholesky(covariance)
        return cls(mean, scale, degrees)

    def init(self, position: Array, target: LogDensity) -> Point:
        """Evaluate the target at the position."""
        return Point(position, target(position))

    def step(self, key: Array, state: Point, target: LogDensity) -> tuple[Point, MetropolisInfo]:
        """One proposal and its accept test."""
        return step_alone(self, key, state, target)

    def num_uniform(self, shape: tuple[int, ...]) -> int:
        """For the proposal, and one for the accept test."""
        return num_bell_uniform(shape[0], self.degrees) + 1

    def begin(self, uniform: Array, point: Point) -> Hastings:
        """Propose a position."""
        drawn = draw_bell(uniform[:-1], self.degrees)
        here = unpush(self.scale, point.position - self.mean)
        correction = log_bell(here, self.degrees) - log_bell(drawn, self.degrees)
        proposed = self.mean + push(self.scale, drawn)
        return hastings(point, proposed, uniform[-1], correction)

    def rescale(self, variance: Array | float) -> Independence:
        """The kernel for a target whose variances are larger by this factor."""
        mean, scale = stretched(variance, self.mean, self.scale)
        return replace(self, mean=mean, scale=scale)
