"""A proposal and its accept test, with an ask-and-tell interface."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from weighbridge.core.types import Array
from weighbridge.sampling.kernels.parts.accept import metropolis_accept, select
from weighbridge.sampling.kernels.parts.dialogue import Point


class MetropolisInfo(NamedTuple):
    """Acceptance probability of the proposal, and whether it was accepted."""

    acceptance: Array
    accepted: Array


class Hastings(NamedTuple):
    r"""A move in progress whose proposal need not be symmetric.

    .. math:: \alpha = \min\Bigl(1,
              \frac{f(\theta')}{f(\theta)} \frac{q(\theta | \theta')}{q(\theta' | \theta)}\Bigr)

    Hastings (1970), Biometrika 57:97-109.

    Attributes:
        point: the current point.
        proposed: the proposed position.
        log_correction: log of q(here | there) / q(there | here); NaN rejects.
        uniform: number for the accept test.
        info: info of the move, after it has ended.
        wanted: whether the density at the proposed position is still needed.
    """

    point: Point
    proposed: Array
    log_correction: Array
    uniform: Array
    info: MetropolisInfo
    wanted: Array

    def ask(self) -> Array:
        """The proposed position."""
        return self.proposed

    def tell(self, told: Point) -> Hastings:
        """Accept or reject; a second answer changes nothing."""
        log_ratio = told.log_density - self.point.log_density + self.log_correction
        point, *info = metropolis_accept(self.uniform, log_ratio, told, self.point)
        after = self._replace(point=point, info=MetropolisInfo(*info), wanted=~self.wanted)
        return select(self.wanted, after, self)

    def finish(self) -> tuple[Point, MetropolisInfo]:
        """The new point of the chain, and the info."""
        return self.point, self.info


def hastings(
    point: Point, proposed: Array, uniform: Array, log_correction: Array | float = 0.0
) -> Hastings:
    """Start a move to the proposed position; a symmetric proposal needs no correction."""
    no = jnp.zeros_like(point.log_density)
    info = MetropolisInfo(no, no > 0)
    return Hastings(point, proposed, log_correction + no, uniform, info, no == 0)
