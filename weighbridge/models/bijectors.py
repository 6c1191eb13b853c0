"""Maps from the real line to an interval and to a simplex: faster, or more exact, than NumPyro's.

For cheap likelihoods with bounded priors, moves spend most of their time here: NumPyro's bijector,
its log-Jacobian and their derivatives compute five exponentials where one is enough.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions.transforms as transforms

from weighbridge.core.types import Array


@jax.custom_jvp
def logistic(x: Array) -> tuple[Array, Array]:
    r"""The logistic function and the logarithm of its derivative.

    .. math:: s = \frac{1}{1 + e^{-x}}, \qquad \log s (1 - s) = -|x| - 2 \log(1 + e^{-|x|})

    As in NumPyro, s is kept away from 0 and 1, where a density may be infinite.

    >>> [value.item() for value in logistic(jnp.zeros(()))]
    [0.5, -1.3862943...]
    """
    fall = jnp.exp(-jnp.abs(x))
    limits = np.finfo(fall.dtype)
    value = jnp.where(x >= 0, 1.0, fall) / (1.0 + fall)
    return jnp.clip(value, limits.tiny, 1.0 - limits.eps), -jnp.abs(x) - 2.0 * jnp.log1p(fall)


@logistic.defjvp
def _logistic_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (tangent,) = primals, tangents
    value, log_slope = logistic(x)
    return (value, log_slope), (value * (1.0 - value) * tangent, (1.0 - 2.0 * value) * tangent)


class StickBreaking(transforms.StickBreakingTransform):
    r"""From the real line to a simplex, as in NumPyro, but exact where entries are tiny.

    .. math:: y_k = z_k \prod_{j < k} (1 - z_j), \qquad z_k = \frac{1}{1 + e^{-x_k}}

    after a shift of x that maps 0 to equal entries. NumPyro computes 1 - z by a subtraction, so no
    last entry is below 1e-16, and a prior with mass there, such as a Dirichlet with
    concentrations of 0.1, loses it: its integral is less than 1.
    """

    def __call__(self, x: Array) -> Array:
        """Transform coordinates to entries that sum to 1."""
        x = x - _shift(x)
        left = jnp.cumprod(jax.nn.sigmoid(-x), axis=-1)
        ones = jnp.ones((*x.shape[:-1], 1), x.dtype)
        entries = jnp.concatenate([jax.nn.sigmoid(x), ones], axis=-1)
        entries *= jnp.concatenate([ones, left], axis=-1)
        return jnp.maximum(entries, np.finfo(entries.dtype).tiny)

    def _inverse(self, y: Array) -> Array:
        after = jnp.cumsum(y[..., :0:-1], axis=-1)[..., ::-1]
        x = jnp.log(y[..., :-1]) - jnp.log(jnp.maximum(after, np.finfo(y.dtype).tiny))
        return x + _shift(x)


def _shift(x: Array) -> Array:
    return jnp.log(x.shape[-1] - jnp.arange(x.shape[-1]))


def bijector_to(support: Any) -> Any:
    """The bijector from the real line to a support: NumPyro's, or a better one.

    >>> import numpyro.distributions as dist
    >>> type(bijector_to(dist.constraints.simplex)).__name__
    'StickBreaking'
    """
    return _improved(transforms.biject_to(support))


def _improved(bijector: Any) -> Any:
    if type(bijector) is transforms.StickBreakingTransform:
        return StickBreaking()
    if isinstance(bijector, transforms.IndependentTransform):
        inner = _improved(bijector.base_transform)
        return transforms.IndependentTransform(inner, bijector.reinterpreted_batch_ndims)
    return bijector


def value_and_log_slope(bijector: Any, x: Array) -> tuple[Array, Array]:
    """The value of a NumPyro bijector, and the log absolute determinant of its Jacobian.

    >>> import numpyro.distributions as dist
    >>> bijector = dist.biject_to(dist.constraints.interval(-1.0, 3.0))
    >>> [round(value.item(), 6) for value in value_and_log_slope(bijector, jnp.zeros(()))]
    [1.0, 0.0]
    """
    inner = bijector
    while isinstance(inner, transforms.IndependentTransform):
        inner = inner.base_transform
    parts = inner.parts if isinstance(inner, transforms.ComposeTransform) else [inner]
    kinds = [type(part) for part in parts]
    if kinds == [transforms.SigmoidTransform]:
        value, log_slope = logistic(x)
        return value, jnp.sum(log_slope)
    if kinds == [transforms.SigmoidTransform, transforms.AffineTransform]:
        unit, log_slope = logistic(x)
        value = parts[1](unit)
        log_scale = jnp.log(jnp.abs(parts[1].scale))
        return value, jnp.sum(log_slope + log_scale)
    value = bijector(x)
    return value, jnp.sum(bijector.log_abs_det_jacobian(x, value))
