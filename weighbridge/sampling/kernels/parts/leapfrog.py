"""The leapfrog step of Hamiltonian moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from weighbridge.core.types import Array
from weighbridge.sampling.kernels.parts.scale import Scale, pull, push


class Slope(Protocol):
    """A position, and the gradient of the log density there."""

    @property
    def position(self) -> Array:
        """The position."""
        ...

    @property
    def gradient(self) -> Array:
        """The gradient of the log density there."""
        ...


Point = TypeVar("Point", bound=Slope)


def leapfrog(
    evaluate: Callable[[Array], Point],
    point: Point,
    momentum: Array,
    step_size: float | Array,
    scale: Scale,
) -> tuple[Point, Array]:
    r"""Half a step of the momentum, a step of the position, half a step of the momentum.

    .. math::
        r \leftarrow r + \tfrac\epsilon2 S^\top \nabla \log f(\theta), \quad
        \theta \leftarrow \theta + \epsilon S r, \quad
        r \leftarrow r + \tfrac\epsilon2 S^\top \nabla \log f(\theta)

    It preserves volume, and a step with the opposite sign reverses it. Neal (2011), MCMC using
    Hamiltonian dynamics.

    Args:
        evaluate: maps a position to the point there.
        point: the point at which the step begins.
        momentum: r, standard normal in the target distribution.
        step_size: epsilon; a negative value goes back in time.
        scale: the square root S of the inverse mass (see ``sampling/kernels/parts/scale.py``).
    """
    half = 0.5 * step_size
    momentum = momentum + half * pull(scale, point.gradient)
    following = evaluate(point.position + step_size * push(scale, momentum))
    return following, momentum + half * pull(scale, following.gradient)
