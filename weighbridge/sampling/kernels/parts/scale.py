"""Scales of a move: one number, one for each coordinate, or a (Cholesky) matrix."""

from __future__ import annotations

import jax.numpy as jnp

from weighbridge.core.types import Array


def push(scale: float | Array, vector: Array) -> Array:
    """S v: maps a vector with unit covariance to one with covariance S S^T."""
    return jnp.asarray(scale) @ vector if jnp.ndim(scale) == 2 else scale * vector


def pull(scale: float | Array, covector: Array) -> Array:
    """S^T g: maps a gradient to the standardised coordinates."""
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
