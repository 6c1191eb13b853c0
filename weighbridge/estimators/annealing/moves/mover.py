"""The protocol of movers, which move particles at one power of a path; diverged moves."""

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
    """Moves the particles at one power; a pytree that contains its tuning.

    A mover whose moves all have an accept/reject test has the class attribute ``adjusted = True``:
    its moves need no check for divergence. A mover that can keep every state of its chains, for
    waste-free resampling, also has a method ``chain`` (see ``adaptive.Adaptive``).
    """

    def move(self, keys: Array, cloud: Cloud, path: Path, power: Array) -> tuple[Array, Any, Any]:
        """New positions of all islands, info averaged over particles, and the tuned mover."""
        ...


def stable_moves(path: Path, power: Array, before: Array, after: Array) -> Array:
    """Which particles did not diverge in their moves."""
    # The density of an unstable integrator falls far long before its numbers overflow.
    fall = power * (chunk_log_likelihoods(path, before) - chunk_log_likelihoods(path, after))
    return jnp.all(jnp.isfinite(after), axis=-1) & (fall < DIVERGENCE)


def settle(start: Cloud, moved: Array, stable: Array | None) -> tuple[Cloud, Array, Array]:
    """Accept the moves of particles with weight, and undo those that diverged.

    Returns the particles, which of them have moved, and how many were undone in each island.
    """
    usable = jnp.isfinite(start.log_weight)
    diverged = jnp.zeros_like(usable) if stable is None else usable & ~stable
    kept = usable & ~diverged
    position = jnp.where(kept[..., None], moved, start.position)
    return start._replace(position=position), kept, jnp.sum(diverged, axis=1)
