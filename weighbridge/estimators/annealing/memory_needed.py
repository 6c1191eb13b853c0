"""The memory that the particles and the mini-batches of a run will need, checked beforehand."""

from __future__ import annotations

import jax
import numpy as np

from weighbridge.core.memory import check_memory_needed
from weighbridge.core.types import PyTree
from weighbridge.data.values import num_rows
from weighbridge.estimators.annealing.moves.adaptive import Adaptive

# Arrays of the size of all particles in memory during a step: positions, gradients, momenta,
# before and after, and copies of the compiler.
PARTICLE_COPIES = 16
# Matrices of parameters x parameters, besides one per island: covariances and their roots.
MATRICES = 8
# Copies of the mini-batches of all islands: of the past and of the chunk, each on the host and in
# the arrays of the compiled program.
BATCH_COPIES = 4


def needs_matrix(mover: object, dimension: int, num_particles: int) -> bool:
    """Whether a mover has a matrix of parameters x parameters, with these particles in all.

    >>> from weighbridge import AdaptiveHMC, AdaptiveWalk, Metropolis
    >>> movers = AdaptiveHMC(), AdaptiveWalk(Metropolis()), AdaptiveHMC(dense=False)
    >>> [needs_matrix(mover, 5000, 1024) for mover in movers]
    [False, True, False]
    """
    return isinstance(mover, Adaptive) and mover.has_matrix(dimension, num_particles)


def bytes_needed(dimension: int, num_islands: int, num_particles: int, *, dense: bool) -> int:
    """The approximate memory for the particles and their metric, without the data.

    ``dense`` is whether the metric is a full matrix (see ``needs_matrix``).

    >>> bytes_needed(5000, 16, 64, dense=True) > 4e9, bytes_needed(5000, 16, 64, dense=False) < 1e9
    (True, True)
    """
    numbers = PARTICLE_COPIES * num_islands * num_particles * dimension
    if dense:
        numbers += (num_islands + MATRICES) * dimension**2
    return 8 * numbers


def check_memory(dimension: int, num_islands: int, num_particles: int, *, dense: bool) -> None:
    """Refuse a run that needs more than the free memory; warn if it needs much memory."""
    what = (
        f"A model of {dimension:,} parameters with {num_islands} islands of {num_particles} "
        "particles"
    )
    fewer = "Use fewer islands or particles (num_islands, num_particles)"
    if dense:
        fewer += ", or a diagonal metric (moves=wb.AdaptiveHMC(dense=False))"
    needed = bytes_needed(dimension, num_islands, num_particles, dense=dense)
    check_memory_needed(needed, what, fewer)


def batch_bytes(num_islands: int, capacity: int, values: PyTree) -> int:
    """The approximate memory for mini-batches: every island has room for ``capacity`` rows.

    >>> batch_bytes(16, 8192, np.zeros((10, 5000))) > 1e10
    True
    """
    row = sum(np.asarray(leaf).nbytes for leaf in jax.tree_util.tree_leaves(values))
    return BATCH_COPIES * num_islands * capacity * row // max(num_rows(values), 1)


def check_batch_memory(num_islands: int, capacity: int, values: PyTree) -> None:
    """Refuse mini-batches that need more than the free memory; warn if they need much memory.

    Args:
        num_islands: each has batches of its own.
        capacity: rows of all batches of an island.
        values: some rows.
    """
    what = f"Room for {capacity:,} rows of mini-batches in each of {num_islands} islands"
    fewer = "Use smaller batches or fewer islands (batch_size, num_islands)"
    check_memory_needed(batch_bytes(num_islands, capacity, values), what, fewer)
