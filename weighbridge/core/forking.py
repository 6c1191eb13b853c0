"""Forked processes: they lack the threads of JAX, so a JAX program would wait for ever."""

from __future__ import annotations

import os
import sys

from weighbridge.core.errors import ForkError

WHAT_TO_DO = (
    "Start processes with multiprocessing.get_context('spawn') or 'forkserver', and make models "
    "and runs within them; to hand a run over, save() it and load() it there."
)

_lost_threads = False


def _note_fork() -> None:
    global _lost_threads
    _lost_threads = _lost_threads or _has_begun()


def _has_begun() -> bool:
    """Whether JAX has been initialised in this process; True if this cannot be found out."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is None:
        return "jax" in sys.modules
    begun = getattr(bridge, "backends_are_initialized", None)
    return True if begun is None else bool(begun())


def check() -> None:
    """Refuse to run a program in a process that was forked after JAX was initialised."""
    if _lost_threads:
        raise ForkError(
            "This process was forked after its parent had started to use JAX: a program would "
            f"never end here. {WHAT_TO_DO}"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
