"""The affine-invariant stretch move of an ensemble."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.accept import metropolis_accept
from weighbridge.sampling.kernels.parts.dialogue import Point, step_alone, tuned_step_size


class StretchInfo(NamedTuple):
    """Acceptance probability of each walker's proposal, and whether it was accepted."""

    acceptance: Array
    accepted: Array


class Halves(NamedTuple):
    """A move in progress: one half of the walkers moves given the other, then vice versa.

    With an odd number of walkers the middle one moves twice, and is no partner in the meantime.

    Attributes:
        point: all walkers.
        uniform: halves x walkers of a half x (partner, stretch, accept test).
        reach: the largest stretch a.
        half: which half moves; 2 after both have moved.
        info: info of each walker.
    """

    point: Point
    uniform: Array
    reach: Array
    half: Array
    info: StretchInfo

    @property
    def wanted(self) -> Array:
        """All walkers of a half, twice."""
        return jnp.broadcast_to(self.half[..., None] < 2, self.uniform.shape[:-3] + self._size())

    def ask(self) -> Array:
        """The proposal of each walker of the half, on the line through its partner."""
        moving, partner = self._moving(self.point.position), self._partner()
        return partner + self._stretch()[:, None] * (moving - partner)

    def tell(self, told: Point) -> Halves:
        """Accept or reject each proposal, with the volume factor of the stretch."""
        current = jax.tree_util.tree_map(self._moving, self.point)
        dimension = told.position.shape[-1]
        log_ratio = told.log_density - current.log_density
        log_ratio = log_ratio + (dimension - 1) * jnp.log(self._stretch())
        test = jax.vmap(metropolis_accept)
        after, *info = test(self._numbers()[:, 2], log_ratio, told, current)

        def write(all_: Array, half: Array) -> Array:
            written = jax.lax.dynamic_update_slice_in_dim(all_, half, self._first(), 0)
            return jnp.where(self.half < 2, written, all_)

        point = jax.tree_util.tree_map(write, self.point, after)
        infos = jax.tree_util.tree_map(write, self.info, StretchInfo(*info))
        return self._replace(point=point, info=infos, half=jnp.minimum(self.half + 1, 2))

    def finish(self) -> tuple[Point, StretchInfo]:
        """All walkers at their new positions."""
        return self.point, self.info

    def _size(self) -> tuple[int]:
        return (self.uniform.shape[-2],)

    def _numbers(self) -> Array:
        return self.uniform[jnp.minimum(self.half, 1)]

    def _first(self) -> Array:
        """The first walker that moves; the halves overlap if the number of walkers is odd."""
        others = self.point.position.shape[0] - self._size()[0]
        return jnp.where(self.half == 0, 0, others)

    def _moving(self, values: Any) -> Array:
        return jax.lax.dynamic_slice_in_dim(values, self._first(), self._size()[0], 0)

    def _partner(self) -> Array:
        size = self._size()[0]
        others = self.point.position.shape[0] - size
        chosen = jnp.floor(self._numbers()[:, 0] * others).astype(int)
        return self.point.position[chosen + jnp.where(self.half == 0, size, 0)]

    def _stretch(self) -> Array:
        """Inverse of the distribution function of the density 1 / sqrt(z) on [1/a, a]."""
        return (1 + (self.reach - 1) * self._numbers()[:, 1]) ** 2 / self.reach


@partial(register_dataclass, data_fields=["step_size"], meta_fields=[])
@dataclass(frozen=True)
class Stretch(Kernel):
    r"""Move each walker along the line through another one.

    .. math:: x' = x_j + z (x - x_j), \quad g(z) \propto z^{-1/2} \text{ on } [1/a, a], \quad
              \alpha = \min\bigl(1, z^{D-1} f(x') / f(x) \bigr)

    A position is a whole ensemble, walkers x coordinates, and its density the product over the
    walkers; partners come from the other half of the ensemble. The move is invariant to scales and
    correlations of the target. With fewer than about twice as many walkers as coordinates the
    ensemble cannot leave its own subspace. Goodman & Weare (2010), Comm. App. Math. Comp. Sci.
    5:65-80; Foreman-Mackey et al. (2013), PASP 125:306-312.

    Args:
        step_size: the largest stretch a, minus one.

    >>> import jax, jax.numpy as jnp
    >>> kernel = Stretch()
    >>> state = kernel.init(jnp.linspace(-1, 1, 8)[:, None], lambda u: -0.5 * jnp.sum(u**2))
    >>> state, info = kernel.step(jax.random.key(0), state, lambda u: -0.5 * jnp.sum(u**2))
    >>> state.position.shape, info.accepted.shape
    ((8, 1), (8,))
    """

    step_size: float | Array = 1.0

    uses_gradient: ClassVar[bool] = False
    ensemble: ClassVar[bool] = True

    def init(self, position: Array, target: LogDensity) -> Point:
        """Evaluate the target at every walker."""
        return Point(position, jax.vmap(target)(position))

    def step(self, key: Array, state: Point, target: LogDensity) -> tuple[Point, StretchInfo]:
        """Move both halves, one after the other."""
        return step_alone(self, key, state, jax.vmap(target))

    def num_uniform(self, shape: tuple[int, ...]) -> int:
        """Three for each walker of each half."""
        return 6 * -(-shape[0] // 2)

    def begin(self, uniform: Array, point: Point) -> Halves:
        """Start with the first half."""
        none = jnp.zeros_like(point.log_density)
        return Halves(
            point=point,
            uniform=uniform.reshape(2, -1, 3),
            reach=jnp.asarray(1.0 + self.step_size),
            half=jnp.zeros((), int),
            info=StretchInfo(none, none > 0),
        )

    def in_metric(self, scale: Array) -> Stretch:
        """Unchanged: the ensemble defines its own metric."""
        return self

    def tuned(self, info: StretchInfo, dimension: int) -> Stretch:
        """Longer stretches if the acceptance is too high, shorter ones if it is too low."""
        step_size = tuned_step_size(self.step_size, info.acceptance, dimension, 4.0)
        return replace(self, step_size=step_size)

    def rescale(self, variance: Array | float) -> Stretch:
        """Unchanged: the move does not depend on the scale of the target."""
        return self
