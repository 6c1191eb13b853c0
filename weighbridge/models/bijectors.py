"""Maps from the real line to an interval, with few transcendental functions.

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
