"""Scales of a move: one number, one for each coordinate, a matrix, or diagonal plus low rank."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from weighbridge.core.types import Array


class LowRank(NamedTuple):
    r"""A diagonal times the identity plus a matrix of low rank.

    .. math:: S = \mathrm{diag}(s) \bigl( I + U \, \mathrm{diag}(t - 1) \, U^\top \bigr)

    with orthonormal columns U. A product with a vector needs about 2 D k multiplications, and there
    is no D x D matrix.

    Attributes:
        diagonal: s, one number for each coordinate.
        directions: U, coordinates x k.
        stretch: t, one number for each direction.
    """

    diagonal: Array | np.ndarray
    directions: Array | np.ndarray
    stretch: Array | np.ndarray

    def stretched(self, vector: Array) -> Array:
        """(I + U (t - 1) U^T) v."""
        directions = jnp.asarray(self.directions)
        return vector + directions @ ((jnp.asarray(self.stretch) - 1.0) * (vector @ directions))


Scale = float | Array | LowRank


def push(scale: Scale, vector: Array) -> Array:
    """S v: maps a vector with unit covariance to one with covariance S S^T."""
    if isinstance(scale, LowRank):
        return jnp.asarray(scale.diagonal) * scale.stretched(vector)
    return jnp.asarray(scale) @ vector if jnp.ndim(scale) == 2 else scale * vector


def pull(scale: Scale, covector: Array) -> Array:
    """S^T g: maps a gradient to the standardised coordinates."""
    if isinstance(scale, LowRank):
        return scale.stretched(jnp.asarray(scale.diagonal) * covector)
    return covector @ scale if jnp.ndim(scale) == 2 else scale * covector


def stretched(
    variance: Array | float, mean: Array | float, scale: Array | float
) -> tuple[Array | float, Array | float]:
    """Mean and scale of a density whose variances become larger by this factor.

    >>> [float(value) for value in stretched(4.0, 1.5, 0.5)]
    [3.0, 1.0]
    """
    stretch = jnp.sqrt(variance)
    return mean * stretch, scale * stretch
