"""Mixtures of Gaussians or Student-t distributions that learn from weighted draws."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln, logsumexp

from weighbridge.core.resampling import effective_sample_size
from weighbridge.core.types import Array

# Degrees of freedom of the component that does not learn: tails heavier than those of any target
# worth sampling, with a variance.
DEFENSIVE_DEGREES = 3
# Effective draws to learn from, as a share of all: weights are flattened until they have.
LEARNING_ESS = 0.25
# Added to each variance, relative to it, so that draws in a plane do not stop the rest.
RIDGE = 1e-9
# Steps of the bisection for the power that flattens weights.
BISECTIONS = 30
TINY = 1e-300


class Mixture(NamedTuple):
    """Components of the proposal; the last one does not learn.

    Attributes:
        log_weight: log of each component's share.
        mean: components x coordinates.
        root: Cholesky factors of the scale matrices.
    """

    log_weight: Array
    mean: Array
    root: Array


class Statistics(NamedTuple):
    """Weighted sums over the populations so far, for each component that learns.

    Attributes:
        share: probability of the component.
        mass: the same, with draws in the tails of a Student-t counted less.
        first: sums of positions, from the centre of the first walkers.
        second: sums of their products.
    """

    share: Array
    mass: Array
    first: Array
    second: Array


def spread_over(position: Array, num_components: int, defensive: float | Array) -> Mixture:
    """Components on points that are far from each other, and one over all that does not learn."""
    root = _root(jnp.atleast_2d(jnp.cov(position.T)))
    standard = solve_triangular(root, (position - position.mean(0)).T, lower=True).T

    def farthest(distance: Array, _: None) -> tuple[Array, Array]:
        chosen = jnp.argmax(distance)
        to_chosen = jnp.sum((standard - standard[chosen]) ** 2, axis=1)
        return jnp.minimum(distance, to_chosen), chosen

    from_centre = jnp.sum(standard**2, axis=1)
    _, chosen = jax.lax.scan(farthest, from_centre, None, length=num_components)
    mean = jnp.concatenate([position[chosen], position.mean(0)[None]])
    # So many components share the room that one covariance takes.
    narrow = num_components ** (-1 / position.shape[1]) * root
    roots = jnp.concatenate([jnp.broadcast_to(narrow, (num_components, *root.shape)), root[None]])
    equal = jnp.full(num_components, 1 / num_components, position.dtype)
    return Mixture(_log_shares(equal, defensive), mean, roots)


def num_squares(degrees: int | None) -> int:
    """Normal numbers that a draw needs besides its coordinates, for Student-t tails."""
    return max(degrees or 0, DEFENSIVE_DEGREES)


def draw_from(mixture: Mixture, normal: Array, uniform: Array, degrees: int | None) -> Array:
    """Positions from the mixture, by normal numbers and a uniform one for each."""
    dimension = mixture.mean.shape[1]
    cumulative = jnp.cumsum(jnp.exp(mixture.log_weight))
    index = jnp.sum(uniform[:, None] * cumulative[-1] >= cumulative[:-1], axis=1)
    # Chi-squared numbers are sums of squares.
    square = normal[:, dimension:] ** 2
    tail = jnp.sqrt(square[:, :DEFENSIVE_DEGREES].mean(1))
    plain = 1.0 if degrees is None else jnp.sqrt(square[:, :degrees].mean(1))
    length = 1 / jnp.where(index == mixture.mean.shape[0] - 1, tail, plain)
    turned = jnp.einsum("nij,nj->ni", mixture.root[index], normal[:, :dimension])
    return mixture.mean[index] + length[:, None] * turned


def log_components(position: Array, mixture: Mixture, degrees: int | None) -> tuple[Array, Array]:
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
    position: Array, log_weight: Array, mixture: Mixture, degrees: int | None
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
    found: Statistics, num_draws: Array | float, old: Mixture, defensive: float | Array
) -> Mixture:
    """The mixture of largest likelihood, given weighted sums over so many draws."""
    num_components, dimension = found.first.shape
    share = jnp.maximum(found.share, TINY)
    mean = found.first / jnp.maximum(found.mass, TINY)[:, None]
    spread = found.second - jnp.einsum("ki,kj->kij", found.first, mean)
    spread = spread / share[:, None, None]
    # Few draws say little about a component's shape: what is common to all is added.
    within = jnp.einsum("k,kij->ij", share, spread) / jnp.sum(share)
    known = (LEARNING_ESS * num_draws * share)[:, None, None]
    spread = (known * spread + (dimension + 1) * within) / (known + dimension + 1)
    # A component that has lost all stays where it is, with a share that it can live on.
    alive = (found.share > 1e-12)[:, None]
    part = jnp.maximum(share / jnp.sum(share), 0.01 / num_components)
    return Mixture(
        _log_shares(part / jnp.sum(part), defensive),
        old.mean.at[:-1].set(jnp.where(alive, old.mean[-1] + mean, old.mean[:-1])),
        old.root.at[:-1].set(jax.vmap(_root)(spread)),
    )


def _log_shares(share: Array, defensive: float | Array) -> Array:
    """Log weights of all components, from the shares of those that learn."""
    kept = jnp.asarray(defensive, share.dtype)
    return jnp.log(jnp.append((1 - kept) * share, kept))


def _root(covariance: Array) -> Array:
    return jnp.asarray(jnp.linalg.cholesky(covariance + RIDGE * jnp.diag(jnp.diag(covariance))))


def _log_student(distance: Array, dimension: int, degrees: int) -> Array:
    """Log density of a standard Student-t by the squared distance from its centre."""
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
