"""Calls on one object take turns, whichever threads they come from."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from weighbridge.core.errors import ForkError, InUseError
from weighbridge.core.forking import WHAT_TO_DO

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# Objects whose calls are running in this context; threads started from it get a copy.
_within: contextvars.ContextVar[tuple[Turns, ...]] = contextvars.ContextVar("within", default=())


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
