"""The memory that the particles of a run will need, checked before it starts."""

from __future__ import annotations

from weighbridge.core.islands import has_few_particles
from weighbridge.core.memory import check_memory_needed

# Arrays of the size of all particles in memory during a step: positions, gradients, momenta,
# before and after, and copies of the compiler.
PARTICLE_COPIES = 16
# Matrices of parameters x parameters, besides one per island: covariances and their roots.
MATRICES = 8


def bytes_needed(dimension: int, num_islands: int, num_particles: int, *, dense: bool) -> int:
    """The approximate memory for the particles and their metric, without the data.

    A full matrix is used only if there are enough particles for it (see ``has_few_particles``).

    >>> bytes_needed(5000, 16, 64, dense=True) < 1e9
    True
    >>> bytes_needed(5000, 16, 2000, dense=True) > 2e10
    True
    """
    numbers = PARTICLE_COPIES * num_islands * num_particles * dimension
    if dense and not has_few_particles(dimension, num_islands * num_particles):
        numbers += (num_islands + MATRICES) * dimension**2
    return 8 * numbers


def check_memory(dimension: int, num_islands: int, num_particles: int, *, dense: bool) -> None:
    """Refuse a run that needs more than the free memory; warn if it needs much memory."""
    what = (
        f"A model of {dimension:,} parameters with {num_islands} islands of {num_particles} "
        "particles"
    )
    fewer = "Use fewer islands or particles (num_islands, num_particles)"
    if dense and not has_few_particles(dimension, num_islands * num_particles):
        fewer += ", or a diagonal metric (moves=wb.AdaptiveHMC(dense=False))"
    needed = bytes_needed(dimension, num_islands, num_particles, dense=dense)
    check_memory_needed(needed, what, fewer)
