"""Domains of integration: a distribution, the prior of a model, or a box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import ndtri

from weighbridge.core.errors import MethodError
from weighbridge.core.types import Array
from weighbridge.models.model import Model


class Domain(Protocol):
    """A domain of integration: it draws values and has a density."""

    @property
    def dimension(self) -> int:
        """Number of uniform numbers that are needed for one value."""
        ...

    def draw(self, key: Array, num: int) -> Any:
        """Independent values, along the first axis."""
        ...

    def from_uniform(self, points: np.ndarray) -> Any:
        """Values from points of the unit cube."""
        ...

    def log_density(self, value: Any) -> Array:
        """Log density at one value."""
        ...

    def log_measure(self, value: Any) -> Array:
        """Log density of the measure of the integral: the density itself, or 1 inside a box."""
        ...


class SingleDistribution(NamedTuple):
    """A single distribution."""

    distribution: Any

    @property
    def dimension(self) -> int:
        """Number of entries of a value."""
        return int(np.prod(self.distribution.shape(), dtype=int))

    def draw(self, key: Array, num: int) -> Any:
        """Independent values."""
        return self.distribution.sample(key, (num,))

    def from_uniform(self, points: np.ndarray) -> Any:
        """Values from points of the unit cube, by the inverse distribution function."""
        return jax.vmap(lambda point: _inverse(self.distribution, point, ""))(jnp.asarray(points))

    def log_density(self, value: Any) -> Array:
        """Log density at one value."""
        return jnp.sum(self.distribution.log_prob(value))

    def log_measure(self, value: Any) -> Array:
        """Log density at one value."""
        return self.log_density(value)


class Prior(NamedTuple):
    """The prior of a model; values are named parameters."""

    model: Model

    @property
    def dimension(self) -> int:
        """Number of entries of all parameters."""
        return sum(int(np.prod(site.shape, dtype=int)) for site in self.model.sites)

    def draw(self, key: Array, num: int) -> Any:
        """Independent parameters."""
        keys = jax.random.split(key, num)
        return jax.vmap(lambda key: self.model.transform(self.model.draw(key))[0])(keys)

    def from_uniform(self, points: np.ndarray) -> Any:
        """Parameters in their order, each given those before it."""

        def invert(point: Array) -> Any:
            parameters: dict[str, Array] = {}
            start = 0
            for site, prior in self.model._priors(parameters):
                stop = start + int(np.prod(site.shape, dtype=int))
                parameters[site.name] = _inverse(prior, point[start:stop], site.name)
                start = stop
            return parameters

        return jax.vmap(invert)(jnp.asarray(points))

    def log_density(self, value: Any) -> Array:
        """Log density of the parameters, in constrained space."""
        return sum(self.model.log_priors(value).values(), jnp.zeros(()))

    def log_measure(self, value: Any) -> Array:
        """Log density at one value."""
        return self.log_density(value)


class Box(NamedTuple):
    """A box with the measure 1 inside, so that expectations are integrals over the box."""

    low: np.ndarray
    high: np.ndarray

    @property
    def dimension(self) -> int:
        """Number of sides."""
        return len(self.low)

    def draw(self, key: Array, num: int) -> Any:
        """Independent points."""
        return self.from_uniform(jax.random.uniform(key, (num, self.dimension)))

    def from_uniform(self, points: Any) -> Any:
        """Points of the unit cube, scaled to the box."""
        return self.low + (self.high - self.low) * jnp.asarray(points)

    def log_density(self, value: Any) -> Array:
        """Log density of the uniform distribution: minus the log volume inside the box."""
        return self.log_measure(value) - jnp.sum(jnp.log(self.high - self.low))

    def log_measure(self, value: Any) -> Array:
        """0 inside the box, -inf outside."""
        inside = jnp.all((value >= self.low) & (value <= self.high))
        return jnp.where(inside, 0.0, -jnp.inf)


def _no_likelihood(parameters: Any) -> float:
    return 0.0


def domain_of(what: Any, name: str) -> Domain:
    """The domain that a user gave.

    Args:
        what: a distribution, a mapping, a model or a box.
        name: name of the argument, for error messages.

    >>> domain_of([(0, 1), (-1, 1)], "over").dimension
    2
    """
    if isinstance(what, dist.Distribution):
        return SingleDistribution(what)
    if isinstance(what, Model):
        return Prior(what)
    if isinstance(what, Mapping):
        return Prior(Model(what, total_log_likelihood=_no_likelihood))
    if isinstance(what, Sequence | np.ndarray):
        box = np.asarray(what, float)
        if box.ndim == 2 and box.shape[1] == 2 and box.size and np.all(box[:, 0] < box[:, 1]):
            if not np.all(np.isfinite(box)):
                raise MethodError(
                    f"The box {what!r} is infinite: give a distribution, or a proposal."
                )
            return Box(box[:, 0], box[:, 1])
    raise MethodError(
        f"{name} must be a NumPyro distribution, a mapping of names to distributions, a wb.Model "
        f"or a box [(low, high), ...] with low < high, not {what!r}."
    )


def _inverse(distribution: Any, point: Array, name: str) -> Array:
    """The inverse distribution function at a point; only for independent entries."""
    point = point.reshape(distribution.shape())
    if isinstance(distribution, dist.MultivariateNormal):
        turned = jnp.einsum("...ij,...j", distribution.scale_tril, ndtri(point))
        return jnp.asarray(distribution.loc + turned)
    inner = distribution
    while isinstance(inner, dist.Independent | dist.ExpandedDistribution):
        inner = inner.base_dist
    try:
        value: Array | None = None if inner.event_shape else inner.icdf(point)
    except (NotImplementedError, ImportError, AttributeError):
        value = None
    if value is None:
        named = f" of {name!r}" if name else ""
        raise MethodError(
            f"Sobol points need the inverse distribution function{named}, and NumPyro has none for "
            f'{type(inner).__name__}. Use method="monte_carlo", or a distribution that has one '
            "(Normal, LogNormal, HalfNormal, Uniform, Exponential, Laplace, Cauchy, Logistic, "
            "Gumbel, Pareto, truncated normals, MultivariateNormal)."
        )
    return value
