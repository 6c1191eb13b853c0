"""The leapfrog step that Hamiltonian moves share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from weighbridge.core.types import Array
from weighbridge.sampling.kernels.parts.scale import pull, push


class Slope(Protocol):
    """A position, and the gradient of the log density there."""

    @property
    def position(self) -> Array:
        """Where it is."""
        ...

    @property
    def gradient(self) -> Array:
        """Of the log density."""
        ...


Point = TypeVar("Point", bound=Slope)


def leapfrog(
    evaluate: Callable[[Array], Point],
    point: Point,
    momentum: Array,
    step_size: float | Array,
    scale: float | Array,
) -> tuple[Point, Array]:
    r"""Half a step of the momentum, a step of the position, half a step of the momentum.

    .. math::
        r \leftarrow r + \tfrac\epsilon2 S^\top \nabla \log f(\theta), \quad
        \theta \leftarrow \theta + \epsilon S r, \quad
        r \leftarrow r + \tfrac\epsilon2 S^\top \nabla \log f(\theta)

    It keeps volumes, and a step of the other sign undoes it. Neal (2011), MCMC using Hamiltonian
    dynamics.

    Args:
        evaluate: from a position to the point there.
        point: where the step begins.
        momentum: r, of standard spread.
        step_size: epsilon; negative goes back in time.
        scale: the square root S of the inverse mass (see ``sampling/kernels/parts/scale.py``).
    """
    half = 0.5 * step_size
    momentum = momentum + half * pull(scale, point.gradient)
    following = evaluate(point.position + step_size * push(scale, momentum))
    return following, momentum + half * pull(scale, following.gradient)
