"""Parameters of a trap: a prior for weighbridge, and its quantile function for other tools.

NumPyro is imported only when a model is made, because the environments of the peers lack it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

Before = Mapping[str, np.ndarray]
Quantile = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Site:
    """One parameter, a scalar or a vector.

    Attributes:
        name: its name in the model.
        size: number of its entries.
        prior: ``prior(distributions) -> entry``, of the NumPyro module.
        quantile: ``quantile(cube [..., cube_size], before) -> [..., size]``, where ``before`` has
            the parameters named earlier.
        cube_size: how many uniform numbers it takes.
        vector: whether it is a vector in the model, or a scalar.
    """

    name: str
    size: int
    prior: Callable[[Any], Any]
    quantile: Callable[[np.ndarray, Before], np.ndarray]
    cube_size: int
    vector: bool = True


def _independent(
    name: str, make: Callable[[Any], Any], quantile: Quantile, size: int | None
) -> Site:
    """A site of independent entries with one distribution."""

    def prior(dist: Any) -> Any:
        return make(dist) if size is None else make(dist).expand([size]).to_event(1)

    count = 1 if size is None else size
    return Site(name, count, prior, lambda cube, _: quantile(cube), count, size is not None)


def uniform(name: str, low: float, high: float, size: int | None = None) -> Site:
    """Uniform entries; a scalar without a size."""
    return _independent(
        name, lambda dist: dist.Uniform(low, high), lambda cube: low + (high - low) * cube, size
    )


def normal(name: str, mean: float, scale: float, size: int | None = None) -> Site:
    """Normal entries."""
    return _independent(
        name,
        lambda dist: dist.Normal(mean, scale),
        lambda cube: mean + scale * special.ndtri(cube),
        size,
    )


def student(name: str, degrees: float, scale: float, size: int | None = None) -> Site:
    """Entries with Student's t-distribution around zero."""
    return _independent(
        name,
        lambda dist: dist.StudentT(degrees, 0.0, scale),
        lambda cube: scale * special.stdtrit(degrees, cube),
        size,
    )


def laplace(name: str, scale: float, size: int | None = None) -> Site:
    """Entries with Laplace's distribution around zero."""

    def quantile(cube: np.ndarray) -> np.ndarray:
        tail = np.log(2 * np.minimum(cube, 1 - cube))
        return np.asarray(scale * np.sign(cube - 0.5) * -tail)

    return _independent(name, lambda dist: dist.Laplace(0.0, scale), quantile, size)


def half_normal(name: str, scale: float) -> Site:
    """A positive scalar."""
    return _independent(
        name,
        lambda dist: dist.HalfNormal(scale),
        lambda cube: -scale * special.ndtri((1 - cube) / 2),
        None,
    )


def dirichlet(name: str, size: int, concentration: float) -> Site:
    """Probabilities with a symmetric Dirichlet prior; its quantiles break a stick."""

    def prior(dist: Any) -> Any:
        return dist.Dirichlet(np.full(size, concentration))

    def quantile(cube: np.ndarray, _: Before) -> np.ndarray:
        left = concentration * np.arange(size - 1, 0, -1)
        broken = special.betaincinv(concentration, left, cube)
        kept = np.concatenate([np.ones((*cube.shape[:-1], 1)), np.cumprod(1 - broken, -1)], -1)
        return kept * np.concatenate([broken, np.ones((*cube.shape[:-1], 1))], -1)

    return Site(name, size, prior, quantile, size - 1)
