"""Rejection sampling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.errors import MethodError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.accept import select
from weighbridge.sampling.kernels.parts.dialogue import Point, step_alone
from weighbridge.sampling.kernels.parts.proposals import (
    check_degrees,
    draw_bell,
    key_from,
    log_bell,
    log_volume,
    num_bell_uniform,
)
from weighbridge.sampling.kernels.parts.scale import push, stretched


class RejectionInfo(NamedTuple):
    """Facts about a draw.

    Attributes:
        acceptance: mean of f / (bound q) over the tries.
        accepted: whether a draw was found; if not, the chain does not move.
        tries: number of tries.
        exceeded: whether the density exceeded its bound, so that draws are not exact.
    """

    acceptance: Array
    accepted: Array
    tries: Array
    exceeded: Array


class Trying(NamedTuple):
    """A draw in progress.

    Attributes:
        point: the current point of the chain.
        kernel: the proposal and its bound.
        key: key of all tries.
        info: the info so far; the acceptance is a sum until the end.
    """

    point: Point
    kernel: Rejection
    key: Array
    info: RejectionInfo

    @property
    def wanted(self) -> Array:
        """True until a draw is found, or there were too many tries."""
        return ~self.info.accepted & (self.info.tries < self.kernel.max_tries)

    def ask(self) -> Array:
        """The next proposal."""
        drawn = draw_bell(self._uniform()[:-1], self.kernel.degrees)
        return self.kernel.mean + push(self.kernel.scale, drawn)

    def tell(self, told: Point) -> Trying:
        """Keep it or try again; a further answer changes nothing."""
        kernel, info, wanted = self.kernel, self.info, self.wanted
        uniform = self._uniform()
        drawn = draw_bell(uniform[:-1], kernel.degrees)
        log_proposal = log_bell(drawn, kernel.degrees) - log_volume(kernel.scale, drawn.shape[0])
        log_ratio = told.log_density - log_proposal - kernel.log_bound
        log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
        probability = jnp.exp(jnp.minimum(log_ratio, 0.0))
        found = wanted & (uniform[-1] < probability)
        point = select(found, told, self.point)
        info = RejectionInfo(
            info.acceptance + jnp.where(wanted, probability, 0.0),
            info.accepted | found,
            info.tries + wanted,
            info.exceeded | (wanted & (log_ratio > 0)),
        )
        return self._replace(point=point, info=info)

    def finish(self) -> tuple[Point, RejectionInfo]:
        """The draw; the start if none was found, which also leaves the target invariant."""
        mean = self.info.acceptance / jnp.maximum(self.info.tries, 1)
        return self.point, self.info._replace(acceptance=mean)

    def _uniform(self) -> Array:
        count = num_bell_uniform(self.point.position.shape[0], self.kernel.degrees) + 1
        return jax.random.uniform(jax.random.fold_in(self.key, self.info.tries), (count,))


@partial(
    register_dataclass,
    data_fields=["mean", "scale", "log_bound", "max_tries"],
    meta_fields=["degrees"],
)
@dataclass(frozen=True)
class Rejection(Kernel):
    r"""Draw from a fixed distribution until a draw lies below the target: exact and independent.

    .. math:: \theta' = m + S z \sim q, \qquad
              \text{keep with probability } \frac{f(\theta')}{B q(\theta')}, \quad B \ge \max f / q

    The density q is normalised, f is the target. A draw needs about B / Z tries, where Z is the
    integral of f. If f exceeds B q, the draws are not exact, and ``exceeded`` is true. If
    ``max_tries`` are not enough, the chain does not move, and ``accepted`` is false. von Neumann
    (1951), Applied Math Series 12:36-38.

    Args:
        mean: centre m of the proposal, in unconstrained coordinates.
        scale: one number, one for each coordinate, or a (Cholesky) matrix S.
        log_bound: log B.
        max_tries: after this many tries the chain does not move.
        degrees: degrees of freedom of a Student-t proposal, a whole number; None for a normal.

    >>> import jax, jax.numpy as jnp
    >>> kernel = Rejection(jnp.zeros(1), 2.0, log_bound=1.7)
    >>> state = kernel.init(jnp.zeros(1), lambda u: -0.5 * jnp.sum(u**2))
    >>> state, info = kernel.step(jax.random.key(0), state, lambda u: -0.5 * jnp.sum(u**2))
    >>> bool(info.accepted), bool(info.exceeded), bool(info.tries >= 1)
    (True, False, True)
    """

    mean: float | Array = 0.0
    scale: float | Array = 1.0
    log_bound: float | Array = 0.0
    max_tries: int | Array = 10_000
    degrees: int | None = None

    uses_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_degrees(self.degrees)
        if isinstance(self.max_tries, int) and self.max_tries < 1:
            raise MethodError(f"max_tries must be at least 1, not {self.max_tries}.")

    def init(self, position: Array, target: LogDensity) -> Point:
        """Evaluate the target at the position."""
        return Point(position, target(position))

    def step(self, key: Array, state: Point, target: LogDensity) -> tuple[Point, RejectionInfo]:
        """One draw."""
        return step_alone(self, key, state, target)

    def num_uniform(self, shape: tuple[int, ...]) -> int:
        """Two for the key of the tries."""
        return 2

    def begin(self, uniform: Array, point: Point) -> Trying:
        """The state before the first try."""
        none = jnp.zeros_like(point.log_density)
        info = RejectionInfo(none, none > 0, jnp.zeros(none.shape, int), none > 0)
        kernel = jax.tree_util.tree_map(jnp.asarray, self)
        return Trying(point, kernel, key_from(uniform), info)

    def rescale(self, variance: Array | float) -> Rejection:
        """The kernel for a normalised target whose variances are larger by this factor."""
        mean, scale = stretched(variance, self.mean, self.scale)
        return replace(self, mean=mean, scale=scale)
