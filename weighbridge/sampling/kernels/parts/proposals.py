"""Draws of proposals: normal and Student-t distributions, and keys for a user's function."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from weighbridge.core.errors import MethodError
from weighbridge.core.types import Array
from weighbridge.sampling.kernels.parts.accept import standard_normal


def key_from(uniform: Array) -> Array:
    """A key from two uniform numbers, for functions that draw with a key."""
    words = jnp.floor(uniform * 2.0**32).astype(jnp.uint32)
    key: Array = jax.random.wrap_key_data(words, impl="threefry2x32")
    return key


# --- a normal, or a multivariate Student-t with whole degrees of freedom ----------------------


def check_degrees(degrees: object) -> None:
    """Refuse degrees of freedom that are neither a positive whole number nor None."""
    whole = isinstance(degrees, int) and not isinstance(degrees, bool)
    if degrees is not None and not (whole and degrees > 0):  # type: ignore[operator]
        raise MethodError(
            "degrees must be a whole number of degrees of freedom, at least 1, or None for a "
            f"normal proposal, not {degrees!r}."
        )


def num_bell_uniform(dimension: int, degrees: int | None) -> int:
    """Number of uniform numbers of a draw."""
    return dimension + (degrees or 0)


def draw_bell(uniform: Array, degrees: int | None) -> Array:
    r"""A draw of standard scale from uniform numbers.

    .. math:: z \sim N(0, I), \quad\text{or}\quad z / \sqrt{\chi^2_\nu / \nu}
    """
    normal = standard_normal(uniform)
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
    """S^-1 v: maps a vector with covariance S S^T to one with unit covariance."""
    return jnp.linalg.solve(scale, vector) if jnp.ndim(scale) == 2 else vector / scale


def log_volume(scale: float | Array, dimension: int) -> Array:
    """Log of the factor |det S| by which the scale multiplies volumes."""
    if jnp.ndim(scale) == 2:
        volume: Array = jnp.linalg.slogdet(jnp.asarray(scale))[1]
        return volume
    return jnp.sum(jnp.log(jnp.abs(jnp.broadcast_to(jnp.asarray(scale), (dimension,)))))
