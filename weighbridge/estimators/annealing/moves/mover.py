"""What moves particles at one power of a path, and which of their moves count."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp

from weighbridge.core.types import Array
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.path import Path, chunk_log_likelihoods

# A move that lowers the log density by more than this many nats has diverged, as in Stan.
DIVERGENCE = 1000.0


@runtime_checkable
class Mover(Protocol):
    """How particles are moved at one power; a pytree that carries its own tuning.

    A mover whose moves all have an accept test says so by a class attribute ``adjusted``: they
    need no check for runaways. One that can keep every state of its chains, for waste-free
    resampling, has a method ``chain`` too (see ``adaptive.Adaptive``).
    """

    def move(self, keys: Array, cloud: Cloud, path: Path, power: Array) -> tuple[Array, Any, Any]:
        """New positions of all islands, info averaged over particles, and the mover tuned."""
        ...


def stable_moves(path: Path, power: Array, before: Array, after: Array) -> Array:
    """Which particles are still in a sensible place after their moves."""
    # An unstable integrator runs away long before its numbers overflow.
    fall = power * (chunk_log_likelihoods(path, before) - chunk_log_likelihoods(path, after))
    return jnp.all(jnp.isfinite(after), axis=-1) & (fall < DIVERGENCE)


def settle(start: Cloud, moved: Array, stable: Array | None) -> tuple[Cloud, Array, Array]:
    """Take the moves of particles that have weight, and undo those that ran away.

    Returns the particles, which of them have moved, and how many were undone in each island.
    """
    usable = jnp.isfinite(start.log_weight)
    diverged = jnp.zeros_like(usable) if stable is None else usable & ~stable
    kept = usable & ~diverged
    position = jnp.where(kept[..., None], moved, start.position)
    return start._replace(position=position), kept, jnp.sum(diverged, axis=1)
