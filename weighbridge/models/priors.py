"""Priors: checks of the entries with clear errors, and the coordinates of their values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from weighbridge.core.compilation import own
from weighbridge.core.errors import ModelError
from weighbridge.core.random import random_key
from weighbridge.core.types import Array
from weighbridge.models.bijectors import bijector_to, value_and_log_slope
from weighbridge.models.own_arrays import with_own_arrays
from weighbridge.models.scipy_names import counterpart
from weighbridge.models.transforms import InCoordinates

Parameters = dict[str, Array]


class Site(NamedTuple):
    """The place of one parameter in the flat vector, and its shapes in both spaces."""

    name: str
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    start: int
    stop: int


class Coordinates(NamedTuple):
    """The coordinates of the values of a prior on R^D.

    Attributes:
        base: the distribution whose unconstrained values are the coordinates.
        bijector: maps coordinates to values of the base.
        transforms: affine maps from values of the base to values of the prior.
    """

    base: Any
    bijector: Any
    transforms: tuple[Any, ...]

    @staticmethod
    def of(prior: Any) -> Coordinates:
        """For a scaled and shifted distribution, the coordinates before scaling and shifting.

        Papaspiliopoulos, Roberts & Skold (2007), Statistical Science 22:59-73.

        >>> Coordinates.of(dist.HalfNormal(1.0)).transforms
        ()
        >>> from numpyro.distributions.transforms import AffineTransform
        >>> scaled = dist.TransformedDistribution(dist.Normal(0, 1), AffineTransform(0.0, 3.0))
        >>> Coordinates.of(scaled).base
        <numpyro.distributions.continuous.Normal object at ...>
        """
        if isinstance(prior, InCoordinates):
            return Coordinates(prior.base_dist, prior.bijector, ())
        inner = prior
        while isinstance(inner, dist.Independent | dist.ExpandedDistribution):
            inner = inner.base_dist
        if type(inner) is dist.TransformedDistribution and all(
            isinstance(transform, dist.transforms.AffineTransform) for transform in inner.transforms
        ):
            base = inner.base_dist
            return Coordinates(base, bijector_to(base.support), tuple(inner.transforms))
        return Coordinates(prior, bijector_to(prior.support), ())

    def value(self, unconstrained: Array) -> tuple[Array, Array]:
        """The value at these coordinates, and the log density of the coordinates.

        The scales of the density and of the Jacobian cancel.
        """
        value, log_slope = value_and_log_slope(self.bijector, unconstrained)
        log_density = log_slope + jnp.sum(self.base.log_prob(value))
        for transform in self.transforms:
            value = transform(value)
        return value, log_density

    def inverse(self, value: Array) -> Array:
        """The coordinates of a value."""
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        found: Array = self.bijector.inv(value)
        return found


def clean_entry(name: str, value: Any) -> Any:
    """Check one entry of the prior, and convert its numbers to double-precision leaves."""
    if not isinstance(value, dist.Distribution):
        if type(value).__module__.split(".")[0] == "scipy":
            raise ModelError(
                f"The prior of {name!r} is a distribution of SciPy, which JAX cannot use. "
                f"Use its NumPyro counterpart: {counterpart(value)}."
            )
        if callable(value):
            return with_own_arrays(value)
        raise ModelError(
            f"The prior of {name!r} must be a NumPyro distribution or a function of the "
            f"parameters before it, not {value!r}."
        )
    _check_distribution(name, value)
    _check_arguments(name, value)
    if not survives_flattening(value):
        raise ModelError(
            f"The prior of {name!r} ({type(value).__name__}) loses a part when JAX flattens and "
            "rebuilds it: its class does not list all its pytree fields. Give it as a function "
            "instead, lambda parameters: ..., which constructs it."
        )
    return _with_doubles(value)


def survives_flattening(prior: Any) -> bool:
    """Whether a distribution still works after JAX has flattened and rebuilt it.

    NumPyro 0.22 loses the support of ``Levy``, and a user's own class may lose anything.

    >>> survives_flattening(dist.Normal(0, 1))
    True
    """

    def use(key: Array) -> Array:
        rebuilt = _with_doubles(prior)
        value = rebuilt.sample(key)
        Coordinates.of(rebuilt).inverse(value)
        return jnp.sum(rebuilt.log_prob(value))

    with jax.enable_x64(True), contextlib.suppress(AttributeError, NotImplementedError, TypeError):
        jax.eval_shape(use, random_key(0))
        return True
    return False


def _with_doubles(prior: Any) -> Any:
    return jax.tree_util.tree_map(lambda leaf: own(np.asarray(leaf, np.float64)), prior)


def _check_distribution(name: str, prior: Any) -> None:
    """Refuse a prior without a density on a continuous space: the evidence is undefined."""
    inner = prior
    while inner is not None:
        kind = type(inner).__name__
        if kind in ("ImproperUniform", "MaskedDistribution"):
            raise ModelError(
                f"The prior of {name!r} is improper ({kind}): it does not integrate to one, so "
                "the evidence is undefined. Use a proper prior, such as a wide Normal or a "
                "bounded Uniform."
            )
        if kind in ("Delta", "Unit"):
            raise ModelError(
                f"The prior of {name!r} is a point ({kind}) without a density. Put the fixed "
                "value into the log-likelihood instead."
            )
        inner = getattr(inner, "base_dist", None)
    if prior.is_discrete:
        raise ModelError(
            f"The prior of {name!r} is discrete ({type(prior).__name__}). Sum the discrete "
            "parameter out of the log-likelihood, or compare one model for each of its values."
        )
    try:
        Coordinates.of(prior)
    except NotImplementedError:
        raise ModelError(
            f"The prior of {name!r} has the support {prior.support}, for which NumPyro has no "
            "bijector. Use a distribution with a standard support."
        ) from None


def _check_arguments(name: str, prior: Any) -> None:
    """Refuse distributions whose arguments make them improper or undefined."""
    inner = prior
    while inner is not None:
        for argument in inner.arg_constraints:
            value = getattr(inner, argument, None)
            if value is not None and not np.all(np.isfinite(np.asarray(value, float))):
                raise ModelError(
                    f"The prior of {name!r} has {argument}={value}: it is improper, and the "
                    "evidence is undefined. Give it a finite value."
                )
        low, high = getattr(inner, "low", None), getattr(inner, "high", None)
        if low is not None and high is not None and not np.all(np.asarray(low) < high):
            raise ModelError(
                f"The prior of {name!r} has low={low}, which is not below high={high}."
            )
        try:
            inner.validate_args()
        except ValueError as error:
            raise ModelError(f"The prior of {name!r} is not valid: {error}") from None
        inner = getattr(inner, "base_dist", None)


def lay_out(entries: Mapping[str, Any]) -> tuple[Site, ...]:
    """Trace one prior draw to find all shapes, and check what functions return."""
    sites: list[Site] = []

    def draw(key: Array) -> None:
        parameters: Parameters = {}
        start = 0
        for name, entry in entries.items():
            prior = entry
            if not isinstance(entry, dist.Distribution):
                prior = _call_entry(name, entry, parameters)
                _check_distribution(name, prior)
            value = prior.sample(key)
            shape = Coordinates.of(prior).inverse(value).shape
            parameters[name] = value
            stop = start + int(np.prod(shape, dtype=int))
            sites.append(Site(name, value.shape, shape, start, stop))
            start = stop

    with jax.enable_x64(True):
        jax.eval_shape(draw, random_key(0))
    if sites[-1].stop == 0:
        raise ModelError("The model has no free parameter.")
    return tuple(sites)


def _call_entry(name: str, function: Callable[..., Any], parameters: Parameters) -> Any:
    try:
        prior = function(dict(parameters))
    except KeyError as error:
        raise ModelError(
            f"The prior of {name!r} uses the parameter {error}, which is not named before it. "
            f"The parameters before it are {sorted(parameters)}."
        ) from None
    if not isinstance(prior, dist.Distribution):
        raise ModelError(
            f"The function given as the prior of {name!r} must return a NumPyro distribution, "
            f"not {type(prior).__name__}."
        )
    return prior


def clean_exchangeable(
    exchangeable: Mapping[str, int] | None, sites: tuple[Site, ...]
) -> tuple[tuple[str, int], ...]:
    """Names and axes of the exchangeable parameters, checked against their shapes."""
    if not exchangeable:
        return ()
    shapes = {site.name: site.shape for site in sites}
    lengths = {}
    for name, axis in exchangeable.items():
        if name not in shapes:
            raise ModelError(f"exchangeable names {name!r}; the model has {list(shapes)}.")
        if not -len(shapes[name]) <= axis < len(shapes[name]):
            raise ModelError(f"exchangeable: {name!r} has shape {shapes[name]}, no axis {axis}.")
        lengths[name] = shapes[name][axis]
    if len(set(lengths.values())) > 1:
        raise ModelError(f"exchangeable entries must have one length, not {lengths}.")
    return tuple((name, int(axis)) for name, axis in exchangeable.items())


def leaf_layout(prior: Any) -> tuple[Any, tuple[int, ...]]:
    """The pytree structure of a distribution, and the order of its leaves by field name.

    NumPyro keeps its fields in a set, so their order differs between processes. The programs in the
    disk cache need a fixed order.
    """
    structure: Any = jax.tree_util.tree_structure(prior)
    numbered = jax.tree_util.tree_unflatten(structure, range(structure.num_leaves))
    return structure, tuple(_leaves_by_name(numbered))


def _leaves_by_name(value: Any) -> Iterator[Any]:
    if isinstance(value, dist.Distribution):
        for field in sorted(type(value).gather_pytree_data_fields()):
            yield from _leaves_by_name(vars(value).get(field))
        return
    for leaf in jax.tree_util.tree_leaves(value, is_leaf=_is_distribution):
        if _is_distribution(leaf):
            yield from _leaves_by_name(leaf)
        else:
            yield leaf


def _is_distribution(value: Any) -> bool:
    return isinstance(value, dist.Distribution)
