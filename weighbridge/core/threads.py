"""Threads: the same work for several models at the same time, and one call at a time on an object.

JAX releases the interpreter's lock, so that models in several threads share the cores.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from weighbridge.core.errors import ForkError, InUseError
from weighbridge.core.forking import WHAT_TO_DO

Thing = TypeVar("Thing")
Answer = TypeVar("Answer")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# Objects whose calls are running in this context; threads started from it get a copy.
_within: contextvars.ContextVar[tuple[Turns, ...]] = contextvars.ContextVar("within", default=())


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
    function: Callable[[Thing], Answer],
    things: Mapping[str, Thing],
    duration: Callable[[Thing], Any] | None = None,
) -> dict[str, Answer]:
    """Call a function for several arguments at the same time; an error names the argument.

    When this returns or raises, no thread is running any more, but for programs that were left
    (``interrupts.leaving``), which change nothing.

    Args:
        function: called once for each argument.
        things: the arguments by name.
        duration: a number (or a tuple) that is larger if the call may take longer. The longest call
            begins first: if it began last, the other cores would wait for it at the end.

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

    answers: dict[str, Answer] = {}
    order = list(things)
    if duration is not None:
        expected = {name: duration(thing) for name, thing in things.items()}
        order.sort(key=expected.__getitem__, reverse=True)
    with ThreadPoolExecutor(min(len(things), num_cores())) as pool:
        calls = {}
        for name in order:
            calls[name] = pool.submit(call, name)
        try:
            for name in things:
                answers[name] = calls[name].result()
        finally:
            for waiting in calls.values():
                waiting.cancel()
    return answers


class Turns:
    """One call at a time on an object: others wait, and a nested call is refused.

    A copy, also one made by pickling, has turns of its own.

    Args:
        what: name of the object in messages.

    >>> turns = Turns("This run")
    >>> turns.take(sum, [1, 2])
    3
    >>> turns.take(turns.take, sum, [1, 2])
    Traceback (most recent call last):
    weighbridge.core.errors.InUseError: This run was used within a call of its own update(), ...
    """

    def __init__(self, what: str) -> None:
        self._what = what
        # A lock's C code cannot be interrupted half-way by Ctrl-C, unlike a Python context manager.
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return Turns, (self._what,)

    def take(
        self,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Call a function when no other call is running."""
        if self._process != os.getpid():
            # Check before taking the lock: the thread that held it does not exist in this process.
            raise ForkError(
                f"{self._what} was made by process {self._process}, of which this one "
                f"({os.getpid()}) is a fork; its threads were not copied. {WHAT_TO_DO}"
            )
        if self in _within.get():
            raise InUseError(
                f"{self._what} was used within a call of its own update(), add(), result() or "
                "save(), and has no consistent state before that call ends. Call it afterwards."
            )
        context = contextvars.copy_context()
        context.run(_within.set, (*_within.get(), self))
        with self._lock:
            return context.run(function, *args, **kwargs)
