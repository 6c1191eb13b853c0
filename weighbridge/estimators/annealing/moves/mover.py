"""The protocol of movers, which move particles at one power of a path; diverged moves."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np

from weighbridge.core.types import Array
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.path import Path, chunk_log_likelihoods

# A move that lowers the log density by more than this many nats has diverged, as in Stan.
DIVERGENCE = 1000.0


class Moved(NamedTuple):
    """The outcome of moves at one power.

    Attributes:
        position: of all particles of all islands, after the moves.
        info: of the moves, averaged over particles.
        mover: the mover, tuned for the next power.
        stable: which particles did not diverge; None if all moves had an accept/reject test.
    """

    position: np.ndarray
    info: Any
    mover: Any
    stable: np.ndarray | None = None


@runtime_checkable
class Mover(Protocol):
    """Moves the particles at one power; a pytree that contains its tuning.

    ``move`` runs on the host, and calls a compiled program for what is heavy. A mover that can keep
    every state of its chains, for waste-free resampling, also has a method ``chain`` (see
    ``adaptive.Adaptive``).
    """

    def move(self, key_data: np.ndarray, cloud: Cloud, path: Path, power: float) -> Moved:
        """Move the particles of all islands; ``key_data`` is one raw key for each island."""
        ...


def stable_moves(path: Path, power: Array, before: Array, after: Array) -> Array:
    """Which particles did not diverge in their moves; for use in a compiled program."""
    # The density of an unstable integrator falls far long before its numbers overflow.
    fall = power * (chunk_log_likelihoods(path, before) - chunk_log_likelihoods(path, after))
    return jnp.all(jnp.isfinite(after), axis=-1) & (fall < DIVERGENCE)


def settle(start: Cloud, moved: np.ndarray, stable: np.ndarray | None) -> tuple[Cloud, np.ndarray]:
    """Accept the moves of particles with weight, and undo those that diverged.

    Returns the particles, and how many were undone in each island.
    """
    usable = np.isfinite(start.log_weight)
    diverged = np.zeros_like(usable) if stable is None else usable & ~stable
    position = np.where((usable & ~diverged)[..., None], moved, start.position)
    return start._replace(position=position), diverged.sum(axis=1)
