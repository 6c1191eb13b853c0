"""Metropolis-Hastings with a user's proposal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp

from weighbridge.core.errors import MethodError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.dialogue import Point, step_alone
from weighbridge.sampling.kernels.parts.hastings import Hastings, MetropolisInfo, hastings
from weighbridge.sampling.kernels.parts.proposals import key_from


@partial(
    register_dataclass,
    data_fields=["unit"],
    meta_fields=["propose", "log_proposal"],
)
@dataclass(frozen=True)
class MetropolisHastings(Kernel):
    r"""Propose with your own function, and correct for its asymmetry in the accept test.

    .. math:: \theta' \sim q(\cdot | \theta), \qquad a = \min\Bigl(1,
              \frac{f(\theta') q(\theta | \theta')}{f(\theta) q(\theta' | \theta)}\Bigr)

    Hastings (1970), Biometrika 57:97-109. All positions are unconstrained vectors, including the
    arguments and results of the functions. A proposal is rejected if its log density is NaN, or if
    log_proposal gives density zero to a value that was just drawn.

    Args:
        propose: ``propose(key, position)``, a new position.
        log_proposal: ``log_proposal(to, given)``, the log density of proposing ``to`` at
            ``given``, up to a constant; None for a symmetric proposal.
        unit: the unit of length of the functions; they get positions divided by it.

    >>> import jax, jax.numpy as jnp
    >>> shrink = lambda key, u: 0.8 * u + jax.random.normal(key, u.shape)
    >>> log_shrink = lambda to, given: -0.5 * jnp.sum((to - 0.8 * given) ** 2)
    >>> kernel = MetropolisHastings(shrink, log_shrink)
    >>> state = kernel.init(jnp.zeros(2), lambda u: -0.5 * jnp.sum(u**2))
    >>> state, info = kernel.step(jax.random.key(0), state, lambda u: -0.5 * jnp.sum(u**2))
    >>> state.position.shape, bool(0 <= info.acceptance <= 1)
    ((2,), True)
    """

    propose: Callable[[Array, Array], Any]
    log_proposal: Callable[[Array, Array], Any] | None = None
    unit: float | Array = 1.0

    uses_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(self.propose):
            raise MethodError(
                "propose must be a function of a key and a position that returns a position, "
                f"not {self.propose!r}."
            )
        if self.log_proposal is not None and not callable(self.log_proposal):
            raise MethodError(
                "log_proposal must be a function of two positions, to and given, or None for a "
                f"symmetric proposal, not {self.log_proposal!r}."
            )

    def init(self, position: Array, target: LogDensity) -> Point:
        """Evaluate the target at the position."""
        return Point(position, target(position))

    def step(self, key: Array, state: Point, target: LogDensity) -> tuple[Point, MetropolisInfo]:
        """One proposal and its accept test."""
        return step_alone(self, key, state, target)

    def num_uniform(self, shape: tuple[int, ...]) -> int:
        """Two for the key of the proposal, and one for the accept test."""
        return 3

    def begin(self, uniform: Array, point: Point) -> Hastings:
        """Propose a position."""
        here = point.position / self.unit
        there = self._checked(self.propose(key_from(uniform[:2]), here), here.shape, "propose")
        correction = jnp.zeros_like(point.log_density)
        if self.log_proposal is not None:
            back = self._checked(self.log_proposal(here, there), (), "log_proposal")
            forth = self._checked(self.log_proposal(there, here), (), "log_proposal")
            # A drawn proposal has a positive density. If log_proposal gives zero, the two functions
            # do not match, and an infinite ratio would accept anything.
            fits = jnp.isfinite(forth) & (back < jnp.inf)
            correction = jnp.where(fits, back - forth, -jnp.inf)
        return hastings(point, there * self.unit, uniform[2], correction)

    @staticmethod
    def _checked(value: Any, shape: tuple[int, ...], name: str) -> Array:
        array = jnp.asarray(value, float)
        if array.shape != shape:
            wanted = f"a position of shape {shape}" if shape else "one number"
            raise MethodError(f"{name} must return {wanted}, not an array of shape {array.shape}.")
        return array

    def rescale(self, variance: Array | float) -> MetropolisHastings:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, unit=self.unit * jnp.sqrt(variance))
