"""How much memory the particles of a run will take, told before it takes it."""

from __future__ import annotations

from weighbridge.core.memory import tell_memory

# Arrays as large as all particles that a step holds at a time: positions, gradients, momenta,
# before and after, and what the compiler keeps of them.
PARTICLE_COPIES = 16
# Matrices of all parameters by all, beside one for each island: covariances and their roots.
MATRICES = 8


def bytes_needed(dimension: int, num_islands: int, num_particles: int, *, dense: bool) -> int:
    """About what the particles and their metric take, whatever the data do.

    >>> bytes_needed(5000, 16, 64, dense=True) > 4e9, bytes_needed(50, 16, 64, dense=True) < 1e8
    (True, True)
    """
    numbers = PARTICLE_COPIES * num_islands * num_particles * dimension
    if dense:
        numbers += (num_islands + MATRICES) * dimension**2
    return 8 * numbers


def check_memory(dimension: int, num_islands: int, num_particles: int, *, dense: bool) -> None:
    """Refuse a run that is larger than the memory there is; tell of one that takes much of it."""
    what = (
        f"A model of {dimension:,} parameters with {num_islands} islands of {num_particles} "
        "particles"
    )
    fewer = "Use fewer islands or particles (num_islands, num_particles)"
    if dense:
        fewer += ", or a metric that is no matrix (moves=wb.AdaptiveHMC(dense=False))"
    tell_memory(bytes_needed(dimension, num_islands, num_particles, dense=dense), what, fewer)
