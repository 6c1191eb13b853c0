"""The memory that a run will need, checked before it starts."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from weighbridge.core.errors import MethodError, WeighbridgeWarning

# A run that needs more memory than this (bytes) is checked, and announced by a warning.
WARN_ABOVE = 2 << 30
# Arrays of the size of all particles in memory during a step: positions, gradients, momenta,
# before and after, and copies of the compiler.
PARTICLE_COPIES = 16
# Matrices of parameters x parameters, besides one for each island: covariances and their roots.
MATRICES = 8
# Files of the system and of a container that give the available memory.
MEMORY = Path("/proc/meminfo")
LIMIT, USED = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))


def bytes_needed(dimension: int, num_islands: int, num_particles: int, *, dense: bool) -> int:
    """Approximate bytes of the particles and their metric, without the data.

    >>> bytes_needed(5000, 16, 64, dense=True) > 4e9, bytes_needed(50, 16, 64, dense=True) < 1e8
    (True, True)
    """
    numbers = PARTICLE_COPIES * num_islands * num_particles * dimension
    if dense:
        numbers += (num_islands + MATRICES) * dimension**2
    return 8 * numbers


def bytes_available() -> int | None:
    """Free memory of the machine or of the container; None if it is unknown."""
    found = []
    if MEMORY.exists():
        lines = (line.split() for line in MEMORY.read_text().splitlines())
        found += [1024 * int(words[1]) for words in lines if words[0] == "MemAvailable:"]
    elif "SC_AVPHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if LIMIT.exists() and USED.exists() and (limit := LIMIT.read_text().strip()).isdigit():
        found.append(max(int(limit) - int(USED.read_text()), 0))
    return min(found) if found else None


def check_memory(dimension: int, num_islands: int, num_particles: int, *, dense: bool) -> None:
    """Refuse a run that needs more than the free memory; warn if it needs much memory."""
    needed = bytes_needed(dimension, num_islands, num_particles, dense=dense)
    if needed < WARN_ABOVE:
        return
    available = bytes_available()
    about = (
        f"A model of {dimension:,} parameters with {num_islands} islands of {num_particles} "
        f"particles takes about {_gigabytes(needed)} of memory"
    )
    fewer = "Use fewer islands or particles (num_islands, num_particles)"
    if dense:
        fewer += ", or a diagonal metric (moves=wb.AdaptiveHMC(dense=False))"
    if available is not None and needed > available:
        raise MethodError(f"{about}, and {_gigabytes(available)} are free. {fewer}.")
    warnings.warn(f"{about}. {fewer}, if that is too much.", WeighbridgeWarning, stacklevel=2)


def _gigabytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
