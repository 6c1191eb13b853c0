"""The log density at the end of a path, and its gradient, at the particles of all islands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.moves.kernels import over_islands
from weighbridge.estimators.annealing.path import Path
from weighbridge.models.model import Model
from weighbridge.models.targets.host import HostLikelihood
from weighbridge.models.targets.unbounded import UnboundedError


def log_densities(
    path: Path,
    position: np.ndarray,
    *,
    differentiable: bool,
    power: float = 1.0,
    bounded: bool = True,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Log density of the posterior, and its gradient, at islands x particles x coordinates.

    At another ``power`` the likelihood is tempered; all powers share a program. A density of +inf
    is an error, unless it need not be ``bounded``.
    """
    where: Array = position  # type: ignore[assignment]
    if isinstance(path.chunk, HostLikelihood):
        log_prior = np.asarray(_log_priors(path.model, where))
        log_likelihood = np.asarray(path.chunk.of_cloud(path.model, where))
        return np.asarray(log_prior + power * log_likelihood), None
    if not differentiable:
        height, score = _log_densities(path, where, np.asarray(power)), None
    else:
        height, score = _scores(path, where, np.asarray(power))
    if bounded and np.any(np.asarray(height) == np.inf):
        raise UnboundedError(position).in_term(path.model, path.chunk)
    return np.asarray(height), None if score is None else np.asarray(score)


@jit
def _log_densities(path: Path, position: Array, power: Array) -> Array:
    log_density: Array = _over_islands(path, position, power, lambda target: target)
    return log_density


@jit
def _scores(path: Path, position: Array, power: Array) -> tuple[Array, Array]:
    found: tuple[Array, Array] = _over_islands(path, position, power, jax.value_and_grad)
    return found


def _over_islands(
    path: Path, position: Array, power: Array, of_target: Callable[[Any], Any]
) -> Any:
    def at(target: Any, _: None, position: Array) -> Any:
        return of_target(target)(position)

    return over_islands(at, position, path=path, power=power)


@jit
def _log_priors(model: Model, position: Array) -> Array:
    log_prior: Array = jax.vmap(jax.vmap(lambda u: model.transform(u)[1]))(position)
    return log_prior
