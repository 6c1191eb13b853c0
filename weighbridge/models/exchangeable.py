"""Exchangeable components: the same labelling for all particles.

The posterior of a mixture does not change when its components are permuted, so it has K! copies of
every mode. Permuting the components of a particle does not change its density. If all particles get
the same labelling, a single mode remains, which one anchor and one Gaussian can describe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.constants import MEDIAN_TO_DEVIATION
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array
from weighbridge.models.model import Model, unravel_positions

MAX_ROUNDS = 5
# Lower bound on the spread of a component, as a share of the spread of all components together.
LEAST_SPREAD = 0.02
# The largest relative error of permuted parameters after the inverse transform.
EXACT_BACK = 1e-6
# Scaled distances are clipped: particles from a wide prior may be extremely far away.
FARTHEST = 1e6
# Labels are distinguishable if swapping two of them costs more than SWAP_COSTS for all but a share
# FEW_NEAR of the particles. This holds for components that are three spreads apart.
SWAP_COSTS = 6.0
FEW_NEAR = 0.1


class Reference(NamedTuple):
    """Typical features of each component: medians and spreads, components x features."""

    middle: np.ndarray
    spread: np.ndarray

    def assign(self, components: np.ndarray) -> np.ndarray:
        r"""Which component of each particle gets each label: particles x labels.

        The permutation with the smallest cost, where features are independent normals:

        .. math:: \sum_k \sum_f (x_{\pi(k) f} - m_{kf})^2 / s_{kf}^2

        Stephens (2000), J. R. Stat. Soc. B 62:795-809.
        """
        # Imported here: it takes a tenth of a second, and most models do not need it.
        from scipy.optimize import linear_sum_assignment

        return np.array([linear_sum_assignment(cost)[1] for cost in self.costs(components)])

    def costs(self, components: np.ndarray) -> np.ndarray:
        """The cost of each label for each component: particles x labels x components."""
        apart = (components[:, None, :, :] - self.middle[:, None, :]) / self.spread[:, None, :]
        return np.asarray(np.sum(np.clip(apart, -FARTHEST, FARTHEST) ** 2, axis=-1))

    def is_distinct(self, components: np.ndarray) -> bool:
        """Whether almost all particles, with these labels, are far from any other labelling."""
        costs = self.costs(components)
        own = np.diagonal(costs, axis1=1, axis2=2)
        swapped = costs + costs.transpose(0, 2, 1) - own[:, :, None] - own[:, None, :]
        pairs = np.triu_indices(costs.shape[1], 1)
        nearest = np.min(swapped[:, *pairs], axis=1, initial=np.inf)
        return bool(np.mean(nearest < SWAP_COSTS) < FEW_NEAR)


@partial(register_dataclass, data_fields=["middle", "spread", "standing"], meta_fields=[])
@dataclass(frozen=True)
class Walls:
    r"""The cell of one labelling, which moves must not leave.

    Moves that use the particles' covariance treat components by their labels. Letting a particle
    leave the cell and relabelling it would cause a bias, because the reverse move is different.
    Moves within the walls have the target density K! f on the cell, and leave it invariant.

    Args:
        middle: median features of each component, components x features; see ``Reference``.
        spread: spread of the features, with the same shape.
        standing: 1 if the walls are in use, else 0; a leaf, so that a change compiles nothing.
    """

    middle: Array | np.ndarray
    spread: Array | np.ndarray
    standing: Array | np.ndarray | float

    def allow(self, model: Model, position: Array) -> Array:
        r"""Whether a position is in the cell, or the walls are not in use.

        The labelling is the best one if no cycle of exchanges is cheaper: with
        w_{ij} = c_{ij} - c_{ii}, no closed walk has a negative sum (Floyd 1962, CACM 5:345).
        """
        parameters = model.transform(position)[0]
        pieces = []
        for name, axis in model.exchangeable:
            values = jnp.moveaxis(parameters[name], axis, 0)
            pieces.append(values.reshape(values.shape[0], -1))
        components = jnp.concatenate(pieces, axis=-1)
        middle, spread = jnp.asarray(self.middle), jnp.asarray(self.spread)
        apart = (components - middle[:, None, :]) / spread[:, None, :]
        costs = jnp.sum(jnp.clip(apart, -FARTHEST, FARTHEST) ** 2, axis=-1)
        extra = costs - jnp.diagonal(costs)[:, None]

        def through(middle: Array, walks: Array) -> Array:
            return jnp.minimum(walks, walks[:, middle, None] + walks[None, middle, :])

        walks = jax.lax.fori_loop(0, len(extra), through, extra)
        # A difference within rounding is not a better labelling.
        rounding = 1e-9 * (1 + jnp.trace(costs))
        return (jnp.min(jnp.diagonal(walks)) >= -rounding) | (jnp.asarray(self.standing) < 1)

    @staticmethod
    def down(model: Model) -> Walls:
        """Walls that are not in use, with the right shapes."""
        shape = features(model, np.zeros((1, model.dimension))).shape[1:]
        return Walls(np.zeros(shape), np.ones(shape), 0.0)


def features(model: Model, position: np.ndarray) -> np.ndarray:
    """The features by which components are labelled: particles x components x features."""
    parameters = unravel_positions(model, position)
    pieces = []
    for name, axis in model.exchangeable:
        values = np.moveaxis(np.asarray(parameters[name]), axis + 1, 1)
        pieces.append(values.reshape(*values.shape[:2], -1))
    return np.concatenate(pieces, axis=-1)


def find_reference(model: Model, position: np.ndarray, example: int | None = None) -> Reference:
    """The labelling on which the particles agree best.

    Args:
        model: a model with exchangeable parameters.
        position: particles x coordinates.
        example: a particle whose labelling is the first guess; if None, the particles' own labels
            are.
    """
    found = features(model, position)
    scale = _spread(found, (0, 1))
    scale = np.where(scale > 0, scale, 1.0)
    if example is not None:
        alike = np.broadcast_to(scale, found[example].shape)
        found = _permuted(found, Reference(found[example], alike).assign(found))
    for _ in range(MAX_ROUNDS):
        # Medians: priors have heavy tails, and a few particles may still have other labels.
        spread = np.maximum(_spread(found, 0), LEAST_SPREAD * scale)
        reference = Reference(np.median(found, axis=0), spread)
        order = reference.assign(found)
        if _in_order(order).all():
            break
        found = _permuted(found, order)
    return reference


def relabelled(model: Model, position: np.ndarray, reference: Reference) -> np.ndarray:
    """The particles with their components in the order of the reference."""
    return _reordered(model, position, reference.assign(features(model, position)))


def shuffled(model: Model, position: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The particles, each with its components in a random order: a move that costs no likelihood.

    Prior and likelihood are the same for every order. So this leaves the prior, the posterior and
    the prior above a contour unchanged.
    """
    num_components = features(model, position[:1]).shape[1]
    order = np.tile(np.arange(num_components), (len(position), 1))
    return _reordered(model, position, generator.permuted(order, axis=1))


def _reordered(model: Model, position: np.ndarray, order: np.ndarray) -> np.ndarray:
    changed = ~_in_order(order)
    if not changed.any():
        return position
    parameters = dict(unravel_positions(model, position))
    for name, axis in model.exchangeable:
        values = np.moveaxis(np.asarray(parameters[name]), axis + 1, 1)
        parameters[name] = np.moveaxis(_permuted(values, order), 1, axis + 1)
    moved = np.asarray(_flatten(model, parameters))
    # At the edge of the prior the inverse transform is undefined or inexact (for example simplex
    # entries of 1e-15): such a particle is left unchanged.
    usable = changed & np.isfinite(moved).all(axis=1)
    again = unravel_positions(model, np.where(usable[:, None], moved, position))
    for name, _ in model.exchangeable:
        wanted, found = (np.asarray(p[name]).reshape(len(moved), -1) for p in (parameters, again))
        with np.errstate(invalid="ignore"):  # infinities count as not close
            usable &= (np.abs(found - wanted) <= EXACT_BACK * np.abs(wanted)).all(axis=1)
    return np.where(usable[:, None], moved, position)


def in_cell(model: Model, position: np.ndarray, reference: Reference) -> np.ndarray:
    """Which particles have the labelling of the reference: one of K! copies of the space."""
    return _in_order(reference.assign(features(model, position)))


def log_num_labellings(model: Model) -> float:
    """log K! for K exchangeable components; 0 for a model without exchangeable components."""
    if not model.exchangeable:
        return 0.0
    name, axis = model.exchangeable[0]
    shape = next(site.shape for site in model.sites if site.name == name)
    return math.lgamma(shape[axis] + 1)


def _spread(values: np.ndarray, axis: int | tuple[int, int]) -> np.ndarray:
    away = np.abs(values - np.median(values, axis=axis))
    return np.asarray(MEDIAN_TO_DEVIATION * np.median(away, axis=axis))


def _in_order(order: np.ndarray) -> np.ndarray:
    return np.asarray((order == np.arange(order.shape[1])).all(axis=1))


def _permuted(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    index = order.reshape(*order.shape, *(1 for _ in values.shape[2:]))
    return np.take_along_axis(values, index, axis=1)


_flatten = jax.jit(lambda model, parameters: jax.vmap(model.flatten)(parameters))
