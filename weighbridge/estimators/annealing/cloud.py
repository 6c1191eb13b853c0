"""Weighted particles of all islands, and their draws from the prior."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from weighbridge.core.compilation import jit_for_few_calls
from weighbridge.core.errors import ModelError
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.resampling import relative_weights
from weighbridge.core.types import Array
from weighbridge.models.model import Model


class Cloud(NamedTuple):
    """Weighted particles of all islands; the mean weight estimates the evidence so far.

    They are NumPy arrays: programs get them as arguments, and everything small is done on the host.

    Attributes:
        position: islands x particles x coordinates.
        log_weight: islands x particles.
        origin: for each particle the index of its ancestor among the first particles of its island.
    """

    position: np.ndarray
    log_weight: np.ndarray
    origin: np.ndarray


def shares(cloud: Cloud) -> np.ndarray:
    """Normalised weights of all particles; all islands have the same total weight.

    They are 0 if no particle has weight.

    >>> shares(Cloud(np.zeros((2, 2, 1)), np.array([[0.0, 0.0], [-9.0, -np.inf]]), None))
    array([0.25, 0.25, 0.5 , 0.  ])
    """
    weight, _ = relative_weights(cloud.log_weight)
    total = weight.sum(axis=1, keepdims=True)
    share = np.where(total > 0, weight / np.where(total > 0, total, 1.0), 0.0).reshape(-1)
    return np.asarray(share / share.sum()) if share.any() else share


def centre(cloud: Cloud) -> np.ndarray:
    """The weighted mean of all particles."""
    share = shares(cloud)
    return np.asarray(share @ cloud.position.reshape(len(share), -1))


def stretched(cloud: Cloud, chain_length: int) -> Cloud:
    """Repeat every particle as often as its chain has states."""
    if chain_length == 1:
        return cloud
    return Cloud(*(np.repeat(leaf, chain_length, axis=1) for leaf in cloud))


def draw_cloud(model: Model, key: Array, islands: np.ndarray, num_particles: int) -> Cloud:
    """Particles from the prior, with weights of 1; each island has its own random stream."""
    high, low = map(int, np.asarray(jax.random.key_data(key)))

    def numbers(island: int) -> np.ndarray:
        drawn = random_numbers(high << 32 | low, Stream.PRIOR_DRAWS, island)
        return drawn.integers(0, 2**32, (num_particles, 2), np.uint32)

    key_data = np.stack([numbers(int(island)) for island in islands])
    position = np.asarray(_draw_positions(model, key_data))
    shape = position.shape[:2]
    if np.isnan(position).any():
        raise ModelError(
            "A draw from the prior is not a number (NaN). Check the parameters of the prior's "
            "distributions, and their method sample if they are your own."
        )
    origin = np.broadcast_to(np.arange(shape[1]), shape)
    return Cloud(position, np.zeros(shape), origin)


@jit_for_few_calls
def _draw_positions(model: Model, key_data: Array) -> Array:
    """Draws from the prior; the keys are made on the host to avoid compilation."""
    keys = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    position: Array = jax.vmap(jax.vmap(model.draw))(keys)
    return position
