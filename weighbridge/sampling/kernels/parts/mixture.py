"""Mixtures of Gaussians or Student-t distributions that are fitted to weighted draws."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln, logsumexp

from weighbridge.core.resampling import effective_sample_size
from weighbridge.core.types import Array

# Degrees of freedom of the fixed component: its tails are heavy, but its variance is finite.
DEFENSIVE_DEGREES = 3
# Required effective sample size, as a share of all draws: weights are flattened to reach it.
LEARNING_ESS = 0.25
# Relative addition to each variance, so that draws in a plane do not give a singular matrix.
RIDGE = 1e-9
# Steps of the bisection for the power that flattens weights.
BISECTIONS = 30
TINY = 1e-300


class FittedMixture(NamedTuple):
    """Components of the proposal; the last one is fixed.

    Attributes:
        log_weight: log weight of each component.
        mean: components x coordinates.
        root: Cholesky factors of the scale matrices.
    """

    log_weight: Array
    mean: Array
    root: Array


class Statistics(NamedTuple):
    """Weighted sums over the populations so far, for each component that is fitted.

    Attributes:
        share: probability of the component.
        mass: the same, with a smaller weight for draws in the tails of a Student-t.
        first: sums of positions, relative to the centre of the first walkers.
        second: sums of products of these positions.
    """

    share: Array
    mass: Array
    first: Array
    second: Array


def spread_over(position: Array, num_components: int, defensive: float | Array) -> FittedMixture:
    """Components on points that are far from each other, and a fixed one over all points."""
    root = _root(jnp.atleast_2d(jnp.cov(position.T)))
    standard = solve_triangular(root, (position - position.mean(0)).T, lower=True).T

    def farthest(distance: Array, _: None) -> tuple[Array, Array]:
        chosen = jnp.argmax(distance)
        to_chosen = jnp.sum((standard - standard[chosen]) ** 2, axis=1)
        return jnp.minimum(distance, to_chosen), chosen

    from_centre = jnp.sum(standard**2, axis=1)
    _, chosen = jax.lax.scan(farthest, from_centre, None, length=num_components)
    mean = jnp.concatenate([position[chosen], position.mean(0)[None]])
    # The components together fill the volume of one covariance.
    narrow = num_components ** (-1 / position.shape[1]) * root
    roots = jnp.concatenate([jnp.broadcast_to(narrow, (num_components, *root.shape)), root[None]])
    equal = jnp.full(num_components, 1 / num_components, position.dtype)
    return FittedMixture(_log_shares(equal, defensive), mean, roots)


def num_squares(degrees: int | None) -> int:
    """Number of extra normal numbers per draw, for Student-t tails."""
    return max(degrees or 0, DEFENSIVE_DEGREES)


def draw_from(mixture: FittedMixture, normal: Array, uniform: Array, degrees: int | None) -> Array:
    """Positions drawn from the mixture, with normal numbers and one uniform number for each."""
    dimension = mixture.mean.shape[1]
    cumulative = jnp.cumsum(jnp.exp(mixture.log_weight))
    index = jnp.sum(uniform[:, None] * cumulative[-1] >= cumulative[:-1], axis=1)
    # A chi-squared number is a sum of squares.
    square = normal[:, dimension:] ** 2
    tail = jnp.sqrt(square[:, :DEFENSIVE_DEGREES].mean(1))
    plain = 1.0 if degrees is None else jnp.sqrt(square[:, :degrees].mean(1))
    length = 1 / jnp.where(index == mixture.mean.shape[0] - 1, tail, plain)
    turned = jnp.einsum("nij,nj->ni", mixture.root[index], normal[:, :dimension])
    return mixture.mean[index] + length[:, None] * turned


def log_components(
    position: Array, mixture: FittedMixture, degrees: int | None
) -> tuple[Array, Array]:
    """Log of weight times density of each component, and squared distances from it."""
    dimension = position.shape[1]

    def distances(mean: Array, root: Array) -> Array:
        return jnp.sum(solve_triangular(root, (position - mean).T, lower=True) ** 2, axis=0)

    distance = jax.vmap(distances, out_axes=1)(mixture.mean, mixture.root)
    diagonal = jnp.diagonal(mixture.root, axis1=1, axis2=2)
    volume = mixture.log_weight - jnp.sum(jnp.log(diagonal), axis=1)
    student = _log_student(distance, dimension, DEFENSIVE_DEGREES)
    learns = (
        -0.5 * distance - 0.5 * dimension * jnp.log(2 * jnp.pi)
        if degrees is None
        else _log_student(distance, dimension, degrees)
    )
    last = jnp.arange(distance.shape[1]) == distance.shape[1] - 1
    return volume + jnp.where(last, student, learns), distance


def statistics_of(
    position: Array, log_weight: Array, mixture: FittedMixture, degrees: int | None
) -> Statistics:
    """Weighted sums over draws from the mixture, with flattened weights."""
    num, dimension = position.shape
    components, distance = log_components(position, mixture, degrees)
    share = jnp.exp(components - logsumexp(components, axis=1, keepdims=True))[:, :-1]
    weight = jax.nn.softmax(_flattened(log_weight, LEARNING_ESS * num))
    weighted = weight[:, None] * share
    total = jnp.sum(weighted, axis=0)
    if degrees is not None:
        weighted = weighted * (degrees + dimension) / (degrees + distance[:, :-1])
    difference = position - mixture.mean[-1]
    second = jnp.einsum("nk,ni,nj->kij", weighted, difference, difference)
    return Statistics(total, jnp.sum(weighted, axis=0), weighted.T @ difference, second)


def fitted(
    found: Statistics, num_draws: Array | float, old: FittedMixture, defensive: float | Array
) -> FittedMixture:
    """The mixture of maximum likelihood, given weighted sums over this many draws."""
    num_components, dimension = found.first.shape
    share = jnp.maximum(found.share, TINY)
    mean = found.first / jnp.maximum(found.mass, TINY)[:, None]
    spread = found.second - jnp.einsum("ki,kj->kij", found.first, mean)
    spread = spread / share[:, None, None]
    # Few draws determine a component's covariance poorly: add the average over all components.
    within = jnp.einsum("k,kij->ij", share, spread) / jnp.sum(share)
    known = (LEARNING_ESS * num_draws * share)[:, None, None]
    spread = (known * spread + (dimension + 1) * within) / (known + dimension + 1)
    # A component without draws keeps its mean, with a small positive weight.
    alive = (found.share > 1e-12)[:, None]
    part = jnp.maximum(share / jnp.sum(share), 0.01 / num_components)
    return FittedMixture(
        _log_shares(part / jnp.sum(part), defensive),
        old.mean.at[:-1].set(jnp.where(alive, old.mean[-1] + mean, old.mean[:-1])),
        old.root.at[:-1].set(jax.vmap(_root)(spread)),
    )


def _log_shares(share: Array, defensive: float | Array) -> Array:
    """Log weights of all components, from the weights of those that are fitted."""
    kept = jnp.asarray(defensive, share.dtype)
    return jnp.log(jnp.append((1 - kept) * share, kept))


def _root(covariance: Array) -> Array:
    return jnp.asarray(jnp.linalg.cholesky(covariance + RIDGE * jnp.diag(jnp.diag(covariance))))


def _log_student(distance: Array, dimension: int, degrees: int) -> Array:
    """Log density of a standard Student-t, given the squared distance from its centre."""
    half = 0.5 * (degrees + dimension)
    constant = gammaln(half) - gammaln(0.5 * degrees) - 0.5 * dimension * jnp.log(degrees * jnp.pi)
    return constant - half * jnp.log1p(distance / degrees)


def _flattened(log_weight: Array, ess: float) -> Array:
    """Log weights times the largest power, at most 1, at which they have this effective size."""
    log_weight = log_weight - jnp.max(log_weight)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        enough = effective_sample_size(middle * log_weight) >= ess
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, _ = jax.lax.fori_loop(0, BISECTIONS, halve, (jnp.zeros(()), jnp.ones(())))
    power = jnp.where(effective_sample_size(log_weight) >= ess, 1.0, low)
    return jnp.where(jnp.isfinite(log_weight), power * log_weight, -jnp.inf)
