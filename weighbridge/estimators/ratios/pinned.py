"""A model with some entries of its parameters held at a point."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from weighbridge.core.compilation import jit, own
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.random import random_key
from weighbridge.core.types import Array
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.ratios.points import Point
from weighbridge.models.model import Model
from weighbridge.models.priors import Coordinates, Parameters, Site
from weighbridge.models.targets.host import HostLikelihood
from weighbridge.models.targets.term import Term

# Draws of the parameters on which the prior at the point depends.
PRIOR_DRAWS = 16_384
# A point is on the edge of a support if it is outside, but inside after two small steps: their
# sizes at zero, and relative to other values. The density is settled if it is the same after both.
NUDGES = ((1e-100, 1e-13), (1e-200, 1e-15))
SETTLED = 1e-3


@jax.tree_util.register_pytree_node_class
class Pinned(Model):
    r"""A model with some entries held at a point, as a density of all others.

    .. math:: g(v) = p(\beta_0, \phi(v)) \, |\det \partial \phi / \partial v|

    The density of what is held is in its own coordinates, without a Jacobian, so that the point may
    be on the edge of the support. It is not normalised: its integral is the prior density of the
    point. With the likelihood, the integral is that density times the evidence of the model in
    which the entries are fixed.

    >>> import numpyro.distributions as dist
    >>> from weighbridge.estimators.ratios.points import read_point
    >>> model = Model({"s": dist.HalfNormal(1.0), "mu": dist.Normal(0, 1)}, lambda p, y: p["s"] * y)
    >>> pinned = Pinned.of(model, read_point(model, {"s": 0.0}))
    >>> pinned.dimension, sorted(pinned.unravel(np.zeros(1)).items())[1]
    (1, ('s', array(0.)))
    """

    base: Model
    held: tuple[tuple[str, tuple[bool, ...]], ...]
    values: tuple[Any, ...]

    @classmethod
    def of(cls, model: Model, point: Point) -> Pinned:
        """The model with these entries held."""
        names = [site.name for site in model.sites if site.name in point]
        held = tuple((name, tuple(point[name][0].reshape(-1).tolist())) for name in names)
        return cls._made(model, held, tuple(own(point[name][1]) for name in names))

    @classmethod
    def _made(cls, base: Model, held: Any, values: Any) -> Pinned:
        pinned = object.__new__(cls)
        # A model is what its fields say; the prior and the likelihood are those of the base.
        vars(pinned).update({n: v for n, v in vars(base).items() if n != "_numbers"})
        pinned.base, pinned.held, pinned.values = base, held, values
        pinned.exchangeable = ()
        masks, sites, start = dict(held), [], 0
        for site in base.sites:
            mask, shape = masks.get(site.name), site.unconstrained_shape
            if mask is not None:
                shape = (0,) if all(mask) else (len(mask) - sum(mask),)
            stop = start + int(np.prod(shape, dtype=int))
            sites.append(Site(site.name, site.shape, shape, start, stop))
            start = stop
        pinned.sites = tuple(sites)
        return pinned

    @property
    def kept(self) -> np.ndarray:
        """Which unconstrained coordinates of the base remain."""
        found = np.ones(self.base.dimension, bool)
        for site in self.base.sites:
            mask = dict(self.held).get(site.name)
            if mask is not None:
                found[site.start : site.stop] = False if all(mask) else ~np.array(mask)
        return found

    def transform(self, position: Array) -> tuple[Parameters, Array]:
        """All parameters at a position of the rest, and the log density there."""
        masks, values = dict(self.held), dict(zip(dict(self.held), self.values))
        parameters: Parameters = {}
        log_density = jnp.zeros(())
        for site, prior in self._priors(parameters):
            free = position[site.start : site.stop].reshape(site.unconstrained_shape)
            if site.name not in masks:
                parameters[site.name], height = Coordinates.of(prior).value(free)
            else:
                mask = np.array(masks[site.name]).reshape(site.shape)
                point = jnp.asarray(values[site.name])
                parameters[site.name], height = _pin(site.name, prior, free, mask, point)
            log_density += height
        return parameters, jnp.where(log_density == jnp.inf, -jnp.inf, log_density)

    def draw(self, key: Array) -> Array:
        """A draw of the base without the coordinates that are held."""
        return self.base.draw(key)[np.flatnonzero(self.kept)]

    def flatten(self, parameters: Parameters) -> Array:
        """The vector of what is not held."""
        return self.base.flatten(parameters)[np.flatnonzero(self.kept)]

    def fingerprint(self) -> str:
        """Of the base and the point."""
        return (
            f"{self.base.fingerprint()} {self.held} {[np.asarray(v).tolist() for v in self.values]}"
        )

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The base and the values are leaves; which entries are held is static."""
        return (self.base, self.values), (self.held,)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Any, ...]) -> Pinned:
        """Rebuild from its parts."""
        return cls._made(children[0], static[0], children[1])


def log_prior_at(pinned: Pinned, seed: int) -> tuple[float, float]:
    r"""Log prior density of the point, and its standard error.

    .. math:: p(\beta_0) = E\left[\prod_j p(\beta_{0j} \mid \text{parameters before it})\right]

    over draws of the other parameters, each given what comes before it (likelihood weighting). It
    is exact, with one draw, if the priors of what is held do not depend on other parameters.

    >>> from weighbridge.estimators.ratios.points import read_point
    >>> model = Model({"s": dist.HalfNormal(1.0)}, lambda p, y: p["s"] * y)
    >>> with jax.enable_x64(True):
    ...     height, error = log_prior_at(Pinned.of(model, read_point(model, {"s": 0.0})), 0)
    >>> round(height, 6), error
    (-0.225791, 0.0)
    """
    exact = all(isinstance(pinned._entries[name], dist.Distribution) for name, _ in pinned.held)
    found = np.asarray(_heights_at(pinned, random_key(seed), 1 if exact else PRIOR_DRAWS))
    if np.isnan(found).any() or np.isposinf(found).any():
        raise MethodError(
            "The prior density is infinite or undefined at the point, so there is no Savage-Dickey "
            "ratio there. Choose another point, or a prior with a finite density at it."
        )
    if not np.isfinite(found).any():
        names = ", ".join(repr(name) for name, _ in pinned.held)
        raise MethodError(
            f"The point lies outside the support of the prior of {names}, or where its density is "
            "zero: the smaller model is not part of this one. Choose a point inside."
        )
    top = found.max()
    weight = np.exp(found - top)
    error = (
        float(weight.std(ddof=1) / weight.mean()) / np.sqrt(len(weight)) if len(found) > 1 else 0.0
    )
    return float(top + np.log(weight.mean())), float(error)


class AtPoint:
    """The density of a model whose parameters are all held: one number.

    It has what is used of a ``JointDensity``, which needs at least one coordinate.

    Args:
        pinned: the model, all of whose entries are held.
        full: the density of its base.
    """

    def __init__(self, pinned: Pinned, full: JointDensity) -> None:
        self.model = pinned
        self.num_evaluations = 1
        chunk = full.path.chunk
        parameters, log_prior = _at_point(pinned)
        if isinstance(chunk, HostLikelihood):
            named = {name: np.asarray(value)[None] for name, value in parameters.items()}
            log_likelihood = chunk.at(named, np.ones(1, bool))[0]
        else:
            log_likelihood = _likelihood_at_point(pinned, chunk)
        self._height = float(log_prior) + float(log_likelihood)

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """The same number for each of the positions, which have no coordinates."""
        return np.full(len(positions), self._height)


@jit
def _at_point(pinned: Pinned) -> tuple[Parameters, Array]:
    return pinned.transform(jnp.zeros(0))


@jit
def _likelihood_at_point(pinned: Pinned, term: Term) -> Array:
    return term(pinned, jnp.zeros(0), pinned.transform(jnp.zeros(0))[0])


def _pin(name: str, prior: Any, free: Array, mask: np.ndarray, point: Array) -> tuple[Array, Array]:
    """The value of a parameter with held entries, and the log density of its free coordinates."""
    log_slope: Array = jnp.zeros(())
    value = point
    if not mask.all():
        coordinates = Coordinates.of(prior)
        bijector = coordinates.bijector
        while isinstance(bijector, dist.transforms.IndependentTransform):
            bijector = bijector.base_transform
        parts = (bijector, *coordinates.transforms)
        if any(part.domain.event_dim or part.codomain.event_dim for part in parts):
            raise ModelError(
                f"Entries of {name!r} are tied to each other (support {prior.support}), so they "
                "cannot be held one by one. Hold the whole parameter."
            )
        everywhere = jnp.zeros(mask.shape).at[~mask].set(free)
        for part in parts:
            moved = part(everywhere)
            slope = jnp.broadcast_to(part.log_abs_det_jacobian(everywhere, moved), mask.shape)
            log_slope += jnp.sum(slope[~mask])
            everywhere = moved
        value = jnp.where(mask, point, everywhere)
    height = _limit(lambda x: jnp.sum(prior.log_prob(x)), prior.support, value, mask)
    return value, height + log_slope


def _limit(
    log_density: Callable[[Array], Array], support: Any, value: Array, mask: np.ndarray
) -> Array:
    """The log density at a value, or its limit if held entries are on the edge of the support.

    Infinite if the limit is; -inf outside the support.
    """
    found, is_known = log_density(value), jnp.all(support(value))
    for sign in (1.0, -1.0):
        steps = (sign * mask * jnp.where(value == 0, at_zero, jnp.abs(value) * relative)
                 for at_zero, relative in NUDGES)  # fmt: skip
        near, nearer = (value + step for step in steps)
        is_inside = jnp.all(support(near)) & jnp.all(support(nearer))
        heights = log_density(near), log_density(nearer)
        change = heights[1] - heights[0]
        runs_off = jnp.where(change < 0, -jnp.inf, jnp.inf)
        limit = jnp.where(jnp.abs(change) < SETTLED, heights[1], runs_off)
        found = jnp.where(~is_known & is_inside, limit, found)
        is_known |= is_inside
    return jnp.where(is_known, found, -jnp.inf)


@partial(jit, static_argnums=2)
def _heights_at(pinned: Pinned, key: Array, count: int) -> Array:
    found: Array = jax.vmap(partial(_height_at, pinned))(jax.random.split(key, count))
    return found


def _height_at(pinned: Pinned, key: Array) -> Array:
    """Log density of what is held, given one draw of what is not."""
    masks, values = dict(pinned.held), dict(zip(dict(pinned.held), pinned.values))
    parameters: Parameters = {}
    log_weight = jnp.zeros(())
    for index, (site, prior) in enumerate(pinned._priors(parameters)):
        drawn = prior.sample(jax.random.fold_in(key, index))
        if site.name not in masks:
            parameters[site.name] = drawn
            continue
        mask = np.array(masks[site.name]).reshape(site.shape)
        point = jnp.asarray(values[site.name])
        parameters[site.name], height = _given(site.name, prior, drawn, mask, point)
        log_weight += height
    return log_weight


def _given(
    name: str, prior: Any, drawn: Array, mask: np.ndarray, point: Array
) -> tuple[Array, Array]:
    """A draw given what is held, and the log marginal density of what is held."""
    if mask.all():
        return point, _limit(lambda x: jnp.sum(prior.log_prob(x)), prior.support, point, mask)
    inner = prior
    while isinstance(inner, dist.Independent):
        inner = inner.base_dist
    value = jnp.where(mask, point, drawn)
    if not inner.event_dim:

        def of_held(x: Array) -> Array:
            return jnp.sum(jnp.where(mask, jnp.broadcast_to(inner.log_prob(x), mask.shape), 0.0))

        return value, _limit(of_held, prior.support, value, mask)
    if isinstance(inner, dist.MultivariateNormal) and mask.ndim == 1:
        # The conditional draw is a correction of the joint one (Matheron's rule).
        covariance, here = inner.covariance_matrix, np.flatnonzero(mask)
        cross, own_part = covariance[:, here], covariance[np.ix_(here, here)]
        moved = drawn + cross @ jnp.linalg.solve(own_part, point[here] - drawn[here])
        marginal = dist.MultivariateNormal(inner.mean[here], own_part)
        return jnp.where(mask, point, moved), marginal.log_prob(point[here])
    raise ModelError(
        f"The prior of {name!r} ({type(prior).__name__}) ties its entries together, and the "
        "density of some of them is not known. Hold the whole parameter, or give each entry a "
        "prior of its own."
    )
