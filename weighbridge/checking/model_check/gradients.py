"""Comparison of a gradient with finite differences."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from weighbridge.core.compilation import jit

# Up to this dimension every coordinate is a direction; above it, this many random directions.
NUM_DIRECTIONS = 16
# Step relative to the position. In double precision, rounding and curvature together are smallest
# near this step.
STEP = 1e-5
ROUNDING = 50 * np.finfo(float).eps
# A larger relative error of the gradient is called wrong. A larger relative change of the finite
# difference between two step sizes is called rough; a smooth function has 1e-9.
WRONG = 1e-5
ROUGH = 1e-3
# Slopes in flat directions are lost in the rounding of steep ones: this share of the gradient's
# norm counts as noise.
FLAT = 1e-9


def gradient_fault(target: Any, position: np.ndarray, seed: int) -> tuple[str, str]:
    r"""The error found in the gradient of a log density, and its remedy; "" if it is right.

    Along directions v, the slope is compared with central differences at two step sizes,

    .. math:: v^T \nabla f(u) \approx \frac{f(u + h v) - f(u - h v)}{2 h}

    The two differences agree with each other where f is smooth.

    Args:
        target: a log density, and a pytree.
        position: points x coordinates, in double precision.
        seed: of the random directions.

    >>> import jax.numpy as jnp
    >>> with jax.enable_x64(True):
    ...     right = jax.tree_util.Partial(lambda u: -jnp.sum(u**2))
    ...     wrong = jax.tree_util.Partial(lambda u: -jnp.sum(u * jax.lax.stop_gradient(u)))
    ...     faults = [gradient_fault(f, np.ones((1, 3)), seed=0) for f in (right, wrong)]
    >>> faults[0][1], faults[1][0]
    ('', 'slope -1 where differences give -2')
    """
    try:
        centre, slopes = (np.asarray(part) for part in _value_and_slope(target, position))
    except Exception as error:
        return (
            f"JAX cannot differentiate it ({type(error).__name__})",
            "Write the log-likelihood with jax.numpy operations that have a derivative (no while "
            'loop, no callback), or use moves that need none: moves="slice", "random_walk".',
        )
    finite = np.isfinite(slopes).all(axis=1)
    if not finite[np.isfinite(centre)].all():
        return (
            "the gradient is NaN or infinite where the log density is finite",
            "JAX also differentiates the branch that jnp.where does not select: make its argument "
            "safe first, jnp.where(ok, jnp.log(jnp.where(ok, x, 1.0)), ...); look for sqrt and "
            "norms at zero.",
        )
    directions = _directions(position.shape[1], seed)
    step = STEP * np.maximum(np.abs(position).max(axis=1), 1.0)[:, None, None]
    offsets = step * directions
    near, far = (
        _differences(target, position, k * offsets) / (2 * k * step[..., 0]) for k in (1, 2)
    )
    slope = slopes @ directions.T
    known = np.isfinite(near) & np.isfinite(far) & np.isfinite(slope)
    if not known.any():
        return "not finite next to any of the draws", (
            "The log density must be finite in an open region: check its support."
        )
    near, far, slope = (np.where(known, part, 0.0) for part in (near, far, slope))
    size = np.maximum(np.abs(near), np.abs(slope))
    noise = ROUNDING * np.abs(np.where(np.isfinite(centre), centre, 0.0))[:, None] / step[..., 0]
    noise = noise + FLAT * np.linalg.norm(np.where(finite[:, None], slopes, 0.0), axis=1)[:, None]
    rough = np.abs(near - far) - noise > ROUGH * size
    if rough.any():
        return (
            f"the log density is not smooth: differences disagree at {rough.sum()} of "
            f"{known.sum()} places",
            "Look for rounding, integers, branches and single precision (float32) inside the "
            "log-likelihood; without a smooth density use moves that need no gradient.",
        )
    excess = np.abs(near - slope) - noise - 5 * np.abs(near - far)
    wrong = excess > WRONG * size
    if wrong.any():
        point, direction = np.unravel_index(np.argmax(np.where(wrong, excess, 0.0)), wrong.shape)
        return (
            f"slope {slope[point, direction]:.6g} where differences give "
            f"{near[point, direction]:.6g}",
            "Look for stop_gradient, custom derivatives (custom_jvp, custom_vjp) that are wrong, "
            "and values that are computed outside JAX.",
        )
    worst = np.max(np.abs(near - slope) / np.maximum(size, noise + np.finfo(float).tiny))
    return f"agrees with differences at {known.sum()} places, to {worst:.1g}", ""


def _directions(dimension: int, seed: int) -> np.ndarray:
    if dimension <= NUM_DIRECTIONS:
        return np.eye(dimension)
    normal = np.random.default_rng(seed).normal(size=(NUM_DIRECTIONS, dimension))
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))


_value_and_slope = jit(lambda target, position: jax.vmap(jax.value_and_grad(target))(position))
_values = jit(lambda target, position: jax.vmap(target)(position))


def _differences(target: Any, position: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """f(u + offset) - f(u - offset), points x directions."""
    centre = position[:, None]
    both = np.stack([centre + offsets, centre - offsets])
    values = np.asarray(_values(target, both.reshape(-1, position.shape[1])))
    above, below = values.reshape(2, *offsets.shape[:2])
    with np.errstate(invalid="ignore"):
        return np.asarray(above - below)
