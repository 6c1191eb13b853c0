"""The free memory, and a check before a run uses much of it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from weighbridge.core.errors import MethodError, WeighbridgeWarning

# A run that needs more memory than this (bytes) is checked, and announced by a warning.
WARN_ABOVE = 2 << 30
# Files of the system and of a container that give the available memory.
MEMORY = Path("/proc/meminfo")
LIMIT, USED = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))


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


def check_memory_needed(needed: int, what: str, remedy: str) -> None:
    """Refuse a run that needs more than the free memory; warn if it needs much memory.

    Args:
        needed: approximate number of bytes.
        what: the run; the message begins with it.
        remedy: how to make it smaller.

    >>> check_memory_needed(1 << 20, "A small run", "Use less")
    """
    if needed < WARN_ABOVE:
        return
    available = bytes_available()
    about = f"{what} takes about {_gigabytes(needed)} of memory"
    if available is not None and needed > available:
        raise MethodError(f"{about}, and {_gigabytes(available)} are free. {remedy}.")
    warnings.warn(f"{about}. {remedy}, if that is too much.", WeighbridgeWarning, stacklevel=2)


def _gigabytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
