"""What moves with a proposal of their own share: bell-shaped proposals, and their accept test."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, ndtri

from weighbridge.base import Array, MethodError
from weighbridge.kernels.accept import metropolis_accept
from weighbridge.kernels.dialogue import Point
from weighbridge.kernels.metropolis import MetropolisInfo


class Hastings(NamedTuple):
    r"""A move under way whose proposal may favour one direction over the other.

    .. math:: \alpha = \min\Bigl(1,
              \frac{f(\theta')}{f(\theta)} \frac{q(\theta | \theta')}{q(\theta' | \theta)}\Bigr)

    Hastings (1970), Biometrika 57:97-109.

    Attributes:
        point: where it is.
        proposed: where it would go.
        log_correction: log of q(here | there) / q(there | here); not a number rejects.
        uniform: number for the accept test.
        info: of the move, once it is over.
        wanted: whether the density at the proposed position is still to be told.
    """

    point: Point
    proposed: Array
    log_correction: Array
    uniform: Array
    info: MetropolisInfo
    wanted: Array

    def ask(self) -> Array:
        """The position proposed."""
        return self.proposed

    def tell(self, told: Point) -> Hastings:
        """Accept or reject; a second answer changes nothing."""
        log_ratio = told.log_density - self.point.log_density + self.log_correction
        point, *info = metropolis_accept(self.uniform, log_ratio, told, self.point)
        after = self._replace(point=point, info=MetropolisInfo(*info), wanted=~self.wanted)
        keep = lambda new, old: jnp.where(self.wanted, new, old)  # noqa: E731
        return cast(Hastings, jax.tree_util.tree_map(keep, after, self))

    def finish(self) -> tuple[Point, MetropolisInfo]:
        """Where the chain is now."""
        return self.point, self.info


def hastings(point: Point, proposed: Array, log_correction: Array, uniform: Array) -> Hastings:
    """Begin a move to the proposed position."""
    no = jnp.zeros_like(point.log_density)
    info = MetropolisInfo(no, no > 0)
    return Hastings(point, proposed, log_correction + no, uniform, info, no == 0)


def key_from(uniform: Array) -> Array:
    """A key from two uniform numbers, for functions that draw by a key."""
    words = jnp.floor(uniform * 2.0**32).astype(jnp.uint32)
    key: Array = jax.random.wrap_key_data(words, impl="threefry2x32")
    return key


# --- bell shapes: a normal, or a multivariate Student-t of whole degrees of freedom -----------


def check_degrees(degrees: object) -> None:
    """Refuse degrees of freedom that are not a whole number above zero, nor None."""
    whole = isinstance(degrees, int) and not isinstance(degrees, bool)
    if degrees is not None and not (whole and degrees > 0):  # type: ignore[operator]
        raise MethodError(
            "degrees must be a whole number of degrees of freedom, at least 1, or None for a "
            f"normal proposal, not {degrees!r}."
        )


def num_bell_uniform(dimension: int, degrees: int | None) -> int:
    """How many uniform numbers a draw takes."""
    return dimension + (degrees or 0)


def draw_bell(uniform: Array, degrees: int | None) -> Array:
    r"""A draw of standard scale from uniform numbers.

    .. math:: z \sim N(0, I), \quad\text{or}\quad z / \sqrt{\chi^2_\nu / \nu}
    """
    # Uniforms are multiples of 2^-53 below one: the middle of the step avoids the ends.
    normal = ndtri(uniform + 2.0**-54)
    if degrees is None:
        return normal
    return normal[:-degrees] / jnp.sqrt(jnp.mean(normal[-degrees:] ** 2))


def log_bell(drawn: Array, degrees: int | None) -> Array:
    """Log density of a draw of standard scale.

    >>> round(float(log_bell(jnp.zeros(2), None)), 4), round(float(log_bell(jnp.zeros(1), 1)), 4)
    (-1.8379, -1.1447)
    """
    dimension, square = drawn.shape[0], jnp.sum(drawn**2)
    if degrees is None:
        return -0.5 * square - 0.5 * dimension * math.log(2 * math.pi)
    power = 0.5 * (degrees + dimension)
    constant = gammaln(power) - gammaln(0.5 * degrees)
    constant = constant - 0.5 * dimension * math.log(math.pi * degrees)
    return constant - power * jnp.log1p(square / degrees)


def unpush(scale: float | Array, vector: Array) -> Array:
    """S^-1 v: from a vector with the spread of the scale to one of standard spread."""
    return jnp.linalg.solve(scale, vector) if jnp.ndim(scale) == 2 else vector / scale


def log_volume(scale: float | Array, dimension: int) -> Array:
    """Log of the factor |det S| by which the scale widens volumes."""
    if jnp.ndim(scale) == 2:
        volume: Array = jnp.linalg.slogdet(jnp.asarray(scale))[1]
        return volume
    return jnp.sum(jnp.log(jnp.abs(jnp.broadcast_to(jnp.asarray(scale), (dimension,)))))
