"""The same work for several models, in threads: JAX releases the interpreter's lock."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Thing = TypeVar("Thing")
Answer = TypeVar("Answer")


def num_cores() -> int:
    """The number of processor cores that this process may use.

    >>> num_cores() >= 1
    True
    """
    # Only Linux knows which cores a process is bound to.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(
    function: Callable[[Thing], Answer], things: Mapping[str, Thing]
) -> dict[str, Answer]:
    """Call a function for several arguments at the same time; an error names the argument.

    When this returns or raises, no thread is running any more, but for programs that were left
    (``interrupts.leaving``), which change nothing.

    >>> in_threads(len, {"a": [1, 2], "b": []})
    {'a': 2, 'b': 0}
    """

    # Each thread gets a copy of this thread's context, for example the request to stop.
    contexts = {name: contextvars.copy_context() for name in things}

    def call(name: str) -> Answer:
        try:
            return contexts[name].run(function, things[name])
        except Exception as error:
            if len(things) > 1:
                error.add_note(f"This was in {name!r}.")
            raise

    with ThreadPoolExecutor(min(len(things), num_cores())) as pool:
        return dict(zip(things, pool.map(call, things)))
