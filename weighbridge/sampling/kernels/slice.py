"""Slice sampling along a line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax.numpy as jnp

from weighbridge.core.errors import MethodError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.accept import select, standard_normal
from weighbridge.sampling.kernels.parts.dialogue import Point, step_alone
from weighbridge.sampling.kernels.parts.scale import push

# The phases of a move.
LEFT, RIGHT, SHRINK, OVER = range(4)
# Each attempt shrinks the bracket by at least a quarter on average, so that after this many it is
# about 10^-5 of its width or less.
MAX_CONTRACTIONS = 40


class SliceInfo(NamedTuple):
    """Whether a point of the slice was found, and how often the bracket was changed."""

    acceptance: Array
    expansions: Array
    contractions: Array


class Bracket(NamedTuple):
    """A move in progress; places on the line are in units of the direction, from the start.

    Attributes:
        point: the current point.
        direction: direction of the line, with the length of the first bracket.
        level: log height of the slice.
        left, right: ends of the bracket.
        left_steps, right_steps: by how many widths each end may still grow.
        uniform: numbers for the attempts.
        phase: LEFT, RIGHT, SHRINK or OVER.
        info: the counts so far.
    """

    point: Point
    direction: Array
    level: Array
    left: Array
    right: Array
    left_steps: Array
    right_steps: Array
    uniform: Array
    phase: Array
    info: SliceInfo

    @property
    def wanted(self) -> Array:
        """True until a point of the slice is found."""
        return self.phase < OVER

    def ask(self) -> Array:
        """An end of the bracket, or a point drawn within it."""
        return self.point.position + self._place() * self.direction

    def tell(self, told: Point) -> Bracket:
        """Grow the bracket, shrink it, or end at the point."""
        inside = told.log_density > self.level  # false also for NaN
        place, info = self._place(), self.info
        grows_left, grows_right = (self.phase == LEFT) & inside, (self.phase == RIGHT) & inside
        found = (self.phase == SHRINK) & inside
        shrinks = (self.phase == SHRINK) & ~inside
        info = SliceInfo(
            info.acceptance + found,
            info.expansions + (grows_left | grows_right),
            info.contractions + shrinks,
        )
        left_steps, right_steps = self.left_steps - grows_left, self.right_steps - grows_right
        left = jnp.where(shrinks & (place < 0), place, self.left - grows_left)
        right = jnp.where(shrinks & (place >= 0), place, self.right + grows_right)
        ends = found | (info.contractions >= MAX_CONTRACTIONS)
        phase = jnp.where((self.phase == LEFT) & ~inside, RIGHT, self.phase)
        phase = jnp.where((self.phase == RIGHT) & ~inside, SHRINK, phase)
        phase = _skip(jnp.where(ends, OVER, phase), left_steps, right_steps)
        return self._replace(
            point=select(found, told, self.point),
            left=left,
            right=right,
            left_steps=left_steps,
            right_steps=right_steps,
            phase=phase,
            info=info,
        )

    def finish(self) -> tuple[Point, SliceInfo]:
        """The point found; the start if there was none, which is also reversible."""
        return self.point, self.info

    def _place(self) -> Array:
        attempt = jnp.minimum(self.info.contractions, MAX_CONTRACTIONS - 1)
        drawn = self.left + self.uniform[attempt] * (self.right - self.left)
        ends = jnp.where(self.phase == LEFT, self.left, self.right)
        return jnp.where(self.wanted, jnp.where(self.phase == SHRINK, drawn, ends), 0.0)


def _skip(phase: Array, left_steps: Array, right_steps: Array) -> Array:
    """Skip an end that may not grow any more."""
    phase = jnp.where((phase == LEFT) & (left_steps <= 0), RIGHT, phase)
    return jnp.where((phase == RIGHT) & (right_steps <= 0), SHRINK, phase)


@partial(
    register_dataclass,
    data_fields=["step_size", "scale", "max_expansions"],
    meta_fields=["along"],
)
@dataclass(frozen=True)
class Slice(Kernel):
    r"""Draw a height under the density, then a point on a line at which the density is higher.

    .. math:: y \sim U(0, f(\theta)), \qquad \theta' \sim U\{\theta + t d : f(\theta + t d) > y\}

    The slice is found by stepping out from a bracket of one width, up to a limit, and shrinking it
    at each point that is not in the slice. There is no accept test, and a poor width costs
    evaluations, not correctness. Neal (2003), Annals of Statistics 31:705-767, figures 3 and 5.

    Args:
        step_size: width of the first bracket.
        scale: one number, one for each coordinate, or a (Cholesky) matrix S; lines go along S v.
        max_expansions: the bracket grows to at most this many widths plus one.
        along: "directions" for v drawn from the unit sphere, "coordinates" for one of the axes.

    >>> import jax, jax.numpy as jnp
    >>> kernel = Slice(2.0)
    >>> density = lambda u: -0.5 * jnp.sum(u**2)
    >>> state = jax.jit(lambda start: kernel.init(start, density))(jnp.zeros(2))
    >>> state, info = jax.jit(lambda key: kernel.step(key, state, density))(jax.random.key(0))
    >>> int(info.acceptance), bool(jnp.any(state.position != 0))
    (1, True)
    """

    step_size: float | Array = 2.0
    scale: float | Array = 1.0
    max_expansions: int | Array = 8
    along: str = "directions"

    uses_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.along not in ("directions", "coordinates"):
            raise MethodError(f"along must be directions or coordinates, not {self.along!r}.")

    def init(self, position: Array, target: LogDensity) -> Point:
        """Evaluate the target at the position."""
        return Point(position, target(position))

    def step(self, key: Array, state: Point, target: LogDensity) -> tuple[Point, SliceInfo]:
        """One draw from the slice along one line."""
        return step_alone(self, key, state, target)

    def num_uniform(self, shape: tuple[int, ...]) -> int:
        """For the direction, the height, the bracket's place and limits, and the attempts."""
        return shape[0] + 3 + MAX_CONTRACTIONS

    def begin(self, uniform: Array, point: Point) -> Bracket:
        """Choose the line and the height, and place the bracket."""
        dimension = point.position.shape[0]
        # Uniforms are multiples of 2^-53 below one; adding half a step avoids 0 and 1.
        height, offset, share = uniform[dimension : dimension + 3] + 2.0**-54
        direction = self.step_size * push(self.scale, self._unit(uniform[:dimension]))
        left_steps = jnp.floor(share * (self.max_expansions + 1.0))
        right_steps = self.max_expansions - left_steps
        level = point.log_density + jnp.log(height)
        none = jnp.zeros_like(point.log_density)
        phase = _skip(jnp.zeros(none.shape, int) + LEFT, left_steps, right_steps)
        return Bracket(
            point=point,
            direction=direction,
            level=level,
            left=-offset,
            right=1.0 - offset,
            left_steps=left_steps,
            right_steps=right_steps,
            uniform=uniform[dimension + 3 :],
            phase=phase,
            info=SliceInfo(none, none, jnp.zeros(none.shape, int)),
        )

    def _unit(self, uniform: Array) -> Array:
        if self.along == "coordinates":
            dimension = uniform.shape[0]
            return jnp.asarray(jnp.arange(dimension) == jnp.floor(uniform[0] * dimension), float)
        normal = standard_normal(uniform)
        return normal / jnp.sqrt(jnp.sum(normal**2))

    def in_metric(self, scale: Array) -> Slice:
        """The same kernel with this scale."""
        return replace(self, scale=scale)

    def tuned(self, info: SliceInfo, dimension: int) -> Slice:
        """A width at which brackets grow as often as they shrink (Karamanis & Beutler 2021)."""
        share = info.expansions / jnp.maximum(info.expansions + info.contractions, 1e-9)
        return replace(self, step_size=jnp.clip(self.step_size * jnp.exp(share - 0.5), 1e-4, 100.0))

    def rescale(self, variance: Array | float) -> Slice:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, step_size=self.step_size * jnp.sqrt(variance))
