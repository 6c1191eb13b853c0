"""How much memory is left, and a word before a run takes much of it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from weighbridge.core.errors import MethodError, WeighbridgeWarning

# Memory (bytes) from which on a run says what it is going to take.
WORTH_A_WORD = 2 << 30
# Settings of the machine, and of a container, that tell what may be taken.
MEMORY = Path("/proc/meminfo")
LIMIT, USED = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))


def bytes_available() -> int | None:
    """What the machine, or the container, has left; None where it does not say."""
    found = []
    if MEMORY.exists():
        lines = (line.split() for line in MEMORY.read_text().splitlines())
        found += [1024 * int(words[1]) for words in lines if words[0] == "MemAvailable:"]
    elif "SC_AVPHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if LIMIT.exists() and USED.exists() and (limit := LIMIT.read_text().strip()).isdigit():
        found.append(max(int(limit) - int(USED.read_text()), 0))
    return min(found) if found else None


def tell_memory(needed: int, what: str, remedy: str) -> None:
    """Refuse a run that is larger than the memory there is; warn of one that takes much of it.

    Args:
        needed: bytes, about.
        what: the run, as a message begins.
        remedy: how to make it smaller.

    >>> tell_memory(1 << 20, "A small run", "Use less")
    """
    if needed < WORTH_A_WORD:
        return
    available = bytes_available()
    about = f"{what} takes about {_gigabytes(needed)} of memory"
    if available is not None and needed > available:
        raise MethodError(f"{about}, and {_gigabytes(available)} are left. {remedy}.")
    warnings.warn(f"{about}. {remedy}, if that is too much.", WeighbridgeWarning, stacklevel=2)


def _gigabytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
