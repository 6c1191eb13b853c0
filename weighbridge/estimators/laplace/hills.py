"""A log density with its derivatives at one position, compiled or by finite differences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from weighbridge.core.compilation import EitherProgram
from weighbridge.core.errors import MethodError
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.laplace.charts import Chart
from weighbridge.estimators.laplace.climbing import log_density
from weighbridge.estimators.proposals.joint_density import JointDensity

# Finite differences need about 2 D^2 evaluations for each curvature, and Nelder-Mead is slow in
# many dimensions.
MOST_ON_HOST = 12
# Steps of finite differences, in standard deviations of the posterior; and the fall of the log
# density (nats) that is taken for one standard deviation at first.
DIFFERENCE, FALL = 0.03, 0.5
HALVINGS = 48


class Expansion(NamedTuple):
    """Log density, gradient and matrix of second derivatives at a position.

    Attributes:
        value: log density of the chart's coordinates.
        gradient: by the unconstrained coordinates.
        curvature: second derivatives by the unconstrained coordinates.
        log_volume: log |det| of the chart; plus ``value`` it is the log density of the
            unconstrained coordinates.
    """

    value: float
    gradient: np.ndarray
    curvature: np.ndarray
    log_volume: float


class Hill(NamedTuple):
    """A log density on unconstrained vectors that is climbed.

    Attributes:
        heights: its values at positions x coordinates; -inf where it is undefined.
        expand: its expansion at a position.
        has_gradient: whether derivatives are exact; if not, they are finite differences.
    """

    heights: Callable[[np.ndarray], np.ndarray]
    expand: Callable[[np.ndarray], Expansion]
    has_gradient: bool


def hill_of(density: JointDensity, chart: Chart, scale: np.ndarray) -> Hill:
    """The log density of a chart's coordinates, with derivatives.

    For a likelihood on the host, or one that JAX cannot differentiate twice, derivatives are
    central differences, for up to ``MOST_ON_HOST`` dimensions. Beyond that a ``wb.MethodError``
    says what else to use.
    """
    path = density.path
    if density.is_on_host or not _has_derivatives(chart, path):
        why = (
            "The total_log_likelihood of this model runs on the host, without gradients"
            if density.is_on_host
            else "JAX cannot differentiate the likelihood of this model twice (a while_loop?)"
        )
        if density.model.dimension > MOST_ON_HOST:
            raise MethodError(
                f"{why}. Modes are then found for up to {MOST_ON_HOST} dimensions; this model has "
                f"{density.model.dimension}. Write the likelihood with differentiable functions of "
                'jax.numpy, or use method="smc" or "nested".'
            )
        if chart.name != "unconstrained":
            raise MethodError(
                f'{why}: use coordinates="unconstrained", or write it with differentiable '
                "functions of jax.numpy."
            )
        return Hill(density, partial(_by_differences, density, scale), has_gradient=False)
    if chart.name == "unconstrained":
        heights: Callable[[np.ndarray], np.ndarray] = density
    else:
        heights = partial(_defined_heights, chart, path)
    return Hill(heights, partial(_by_tracing, chart, path), has_gradient=True)


def _has_derivatives(chart: Chart, path: Path) -> bool:
    """Whether the expansion can be traced; an error that has another cause comes back later."""
    place: Any = jax.ShapeDtypeStruct((path.model.dimension,), np.float64)
    try:
        _EXPANSION.for_numbers(path.num_numbers).shape(chart, path, place)
    except Exception:
        return False
    return True


def _defined_heights(chart: Chart, path: Path, positions: np.ndarray) -> np.ndarray:
    found = np.asarray(_HEIGHTS.for_numbers(path.num_numbers)(chart, path, positions))
    return np.where(np.isfinite(found), found, -np.inf)


def _by_tracing(chart: Chart, path: Path, position: np.ndarray) -> Expansion:
    found = _EXPANSION.for_numbers(path.num_numbers)(chart, path, position)
    value, gradient, curvature, log_volume = map(np.asarray, found)
    return Expansion(float(value), gradient, 0.5 * (curvature + curvature.T), float(log_volume))


def _expansion(chart: Chart, path: Path, position: Array) -> tuple[Array, Array, Array, Array]:
    def slope(u: Array) -> tuple[Array, tuple[Array, Array]]:
        value, gradient = jax.value_and_grad(partial(log_density, chart, path))(u)
        return gradient, (value, gradient)

    # Forward over reverse: sums over rows have no second derivative in reverse mode.
    curvature, (value, gradient) = jax.jacfwd(slope, has_aux=True)(position)
    return value, gradient, curvature, chart.log_volume(path.model, position)


_EXPANSION: EitherProgram[tuple[Array, Array, Array, Array]] = EitherProgram(
    _expansion, static_argnums=0
)
_HEIGHTS: EitherProgram[Array] = EitherProgram(
    lambda chart, path, positions: jax.vmap(partial(log_density, chart, path))(positions),
    static_argnums=0,
)


# --- without gradients -----------------------------------------------------------------------


def _by_differences(density: JointDensity, scale: np.ndarray, position: np.ndarray) -> Expansion:
    r"""The expansion from central differences, in the directions of the posterior's own axes.

    With steps of h standard deviations along the columns of R, the root of the covariance,

    .. math:: g_i \approx \frac{f_{+i} - f_{-i}}{2 h}, \quad
              H_{ij} \approx \frac{f_{+i+j} - f_{+i-j} - f_{-i+j} + f_{-i-j}}{4 h^2}

    R is found in two rounds: first a step for each coordinate, then the root of the first result.
    """
    frame = np.diag(_steps(density, scale, position))
    for last in (False, True):
        value, gradient, curvature = _differences(density, position, frame)
        if last:
            break
        values, vectors = np.linalg.eigh(-0.5 * (curvature + curvature.T))
        if not np.isfinite(curvature).all():
            break
        frame = frame @ vectors / np.sqrt(np.clip(np.abs(values), 1e-2, 1e4))
    back = np.linalg.inv(frame)
    return Expansion(value, back.T @ gradient, back.T @ curvature @ back, 0.0)


def _steps(density: JointDensity, scale: np.ndarray, position: np.ndarray) -> np.ndarray:
    """How far each coordinate moves until the log density has changed by about half a nat."""
    dimension, lengths = len(position), 0.5 ** np.arange(HALVINGS)
    tries = position + (lengths[:, None, None] * np.diag(scale)).reshape(-1, dimension)
    change = np.abs(density(tries) - density(position[None])[0]).reshape(HALVINGS, dimension)
    near = np.where(np.isfinite(change), change, np.inf) <= FALL
    return np.asarray(scale * lengths[np.argmax(near, axis=0)])


def _differences(
    density: JointDensity, position: np.ndarray, frame: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Value, gradient and curvature in units of the columns of ``frame``."""
    dimension = len(position)
    unit = DIFFERENCE * np.eye(dimension)
    rows, columns = np.triu_indices(dimension, 1)
    offsets = [np.zeros((1, dimension)), unit, -unit]
    offsets += [a * unit[rows] + b * unit[columns] for a in (1, -1) for b in (1, -1)]
    found = density(position + np.concatenate(offsets) @ frame.T)
    value, ahead, behind = (
        found[0],
        found[1 : 1 + dimension],
        found[1 + dimension : 1 + 2 * dimension],
    )
    corners = found[1 + 2 * dimension :].reshape(4, -1)
    with np.errstate(invalid="ignore"):  # beyond the support the density is zero
        gradient = (ahead - behind) / (2 * DIFFERENCE)
        curvature = np.diag((ahead - 2 * value + behind) / DIFFERENCE**2)
        mixed = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * DIFFERENCE**2)
    curvature[rows, columns] = curvature[columns, rows] = mixed
    return float(value), np.nan_to_num(gradient), np.nan_to_num(curvature)
