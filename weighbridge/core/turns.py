"""Calls on one object that take turns, from whichever thread they come."""

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

# Those that the call of this context is within; threads that it starts have a copy of it.
_within: contextvars.ContextVar[tuple[Turns, ...]] = contextvars.ContextVar("within", default=())


class Turns:
    """One call at a time on an object: others wait, and one within another is refused.

    A copy, also one by way of a pickle, has turns of its own.

    Args:
        what: names the object in messages.

    >>> turns = Turns("This run")
    >>> turns.take(sum, [1, 2])
    3
    >>> turns.take(turns.take, sum, [1, 2])
    Traceback (most recent call last):
    weighbridge.core.errors.InUseError: This run was used within a call of its own update(), ...
    """

    def __init__(self, what: str) -> None:
        self._what = what
        # Its C code cannot be left half-way by a Ctrl-C, as a context manager in Python can.
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
        """Call a function when no other call is under way."""
        if self._process != os.getpid():
            # Before the lock is asked for: the thread that held it is not in this process.
            raise ForkError(
                f"{self._what} was made by process {self._process}, of which this one "
                f"({os.getpid()}) is a fork; what it needs did not come along. {WHAT_TO_DO}"
            )
        if self in _within.get():
            raise InUseError(
                f"{self._what} was used within a call of its own update(), add(), result() or "
                "save(), and has no state to tell before that ends. Call it afterwards."
            )
        context = contextvars.copy_context()
        context.run(_within.set, (*_within.get(), self))
        with self._lock:
            return context.run(function, *args, **kwargs)
