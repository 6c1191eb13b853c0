"""Ctrl-C: the first one asks a run to stop and give back what it has, the second one ends it.

A loop asks between two of its steps (``check``), and whoever holds something that is worth giving
back says so (``keep``). Which run is asked is known by the context of the call, so that a run in
another thread, or none at all, is not meant.
"""

from __future__ import annotations

import contextlib
import contextvars
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

Result = TypeVar("Result")

# Seconds between two looks whether a program is to be left.
BETWEEN_LOOKS = 0.1
ONCE_MORE = "stopping, with what there is; Ctrl-C once more ends it at once"


class Interrupted(KeyboardInterrupt):
    """A run that was asked to stop has stopped between two of its steps."""


class Interruption:
    """Whether a run was asked to stop.

    Args:
        asked: is set when it is.
        patience: seconds that the step under way is given to end by itself.
        anywhere: whether it may stop between any two programs, as nothing of it is given back.
        leaves: whether it does not even wait for the program that is compiled or run.

    Attributes:
        has_something: whether there is anything to give back.
        ends: whether Ctrl-C is to end the run, with nothing to give back.
    """

    def __init__(
        self,
        asked: threading.Event | None = None,
        patience: float = 0.0,
        *,
        anywhere: bool = False,
        leaves: bool = False,
    ) -> None:
        self.asked = threading.Event() if asked is None else asked
        self.anywhere = anywhere
        self.leaves = leaves
        self.has_something = False
        self.ends = False
        self._patience = patience
        self._since: float | None = None

    def is_due(self) -> bool:
        """Whether the run is to stop now."""
        if not self.asked.is_set():
            return False
        if self._since is None:
            self._since = time.monotonic()
        return time.monotonic() - self._since >= self._patience


_current: contextvars.ContextVar[Interruption | None] = contextvars.ContextVar(
    "interruption", default=None
)


def is_due() -> bool:
    """Whether the run of this context is to stop now."""
    interruption = _current.get()
    return interruption is not None and interruption.is_due()


def check() -> None:
    """Stop here if the run of this context is to stop."""
    _end_if_asked()
    if is_due():
        raise Interrupted


def _end_if_asked() -> None:
    """End here if Ctrl-C should have ended the run, and the exception was lost."""
    interruption = _current.get()
    in_main_thread = threading.current_thread() is threading.main_thread()
    if interruption is not None and interruption.ends and in_main_thread:
        raise KeyboardInterrupt


def check_anywhere() -> None:
    """Stop here, before a program runs or amid its tracing, if that may be anywhere."""
    _end_if_asked()
    interruption = _current.get()
    if interruption is not None and interruption.anywhere:
        check()


_left: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def may_leave() -> bool:
    """Whether the run of this context does not wait for the program that is compiled or run."""
    interruption = _current.get()
    return interruption is not None and interruption.leaves


def leaving(call: Callable[[], Result]) -> Result:
    """Call a pure function, and leave it to itself if the run of this context is to stop meanwhile.

    The compiler cannot be interrupted. So it works in a thread of its own, which goes on after this
    one has stopped waiting for it; what comes of it is dropped.

    >>> leaving(lambda: 1 + 1)
    2
    """
    context: contextvars.Context = contextvars.copy_context()
    found: Future[Result] = Future()

    def work() -> None:
        try:
            found.set_result(context.run(call))
        except BaseException as error:
            found.set_exception(error)

    # Not a daemon: Python must not end amid what the compiler does, unless by os._exit.
    thread = threading.Thread(target=work, name="weighbridge-program", daemon=False)
    thread.start()
    while not wait([found], BETWEEN_LOOKS).done:
        if is_due():
            _left.add(thread)
            raise Interrupted
    return found.result()


def is_at_work() -> bool:
    """Whether a program that was left is still at work; Python would wait for it at its end."""
    return any(thread.is_alive() for thread in _left)


def keep() -> None:
    """From now on the run of this context has something to give back."""
    _end_if_asked()
    interruption = _current.get()
    if interruption is not None:
        interruption.has_something = True


@contextlib.contextmanager
def interruptible(
    say: Callable[[str], None] | None = None,
    *,
    instead_of: Callable[..., Any] = signal.default_int_handler,
) -> Iterator[Interruption]:
    """A block in which the first Ctrl-C only asks to stop, as soon as there is something to keep.

    Before that, and at the second one, what happens is what would happen without the block. It
    changes nothing outside the main thread, which gets no signals, nor where SIGINT is ignored or
    is someone else's; and a block within another one is part of it.

    Args:
        say: is told at the first one.
        instead_of: the handler of SIGINT that this one may stand in for.

    >>> with interruptible() as interruption:
    ...     keep()
    ...     interruption.asked.set()  # as the first Ctrl-C does
    ...     interruption.is_due()
    True
    """
    outer = _current.get()
    if outer is not None:
        yield outer
        return
    interruption = Interruption()
    in_main_thread = threading.current_thread() is threading.main_thread()
    is_ours = in_main_thread and signal.getsignal(signal.SIGINT) is instead_of

    def handle(number: int, frame: Any) -> None:
        if interruption.asked.is_set() or not interruption.has_something:
            # Python drops what is raised amid a clean-up of objects: then the next check ends it.
            interruption.ends = True
            instead_of(number, frame)
            return
        interruption.asked.set()
        if say is not None:
            with contextlib.suppress(RuntimeError):  # amid a line that is being written
                say(ONCE_MORE)

    if is_ours:
        signal.signal(signal.SIGINT, handle)
    token = _current.set(interruption)
    try:
        yield interruption
    finally:
        _current.reset(token)
        if is_ours:
            signal.signal(signal.SIGINT, instead_of)


@contextlib.contextmanager
def stopped_by(asked: threading.Event, patience: float, *, leaves: bool = False) -> Iterator[None]:
    """A block that an event stops, at the next program after some seconds of patience.

    Whatever it has done by then has to be taken back by those who did it.

    Args:
        asked: is set to stop it.
        patience: seconds that it is given to end by itself.
        leaves: whether to leave the program under way, such as one that takes long to compile; a
            thread for each costs a third of a millisecond.

    >>> event = threading.Event()
    >>> with stopped_by(event, patience=0.0):
    ...     check()
    ...     event.set()
    ...     is_due()
    True
    """
    token = _current.set(Interruption(asked, patience, anywhere=True, leaves=leaves))
    try:
        yield
    finally:
        _current.reset(token)
