"""Ctrl-C: the first one asks a run to stop and return what it has, the second one ends it.

A loop calls ``check`` between two of its steps. Code that has a result worth returning calls
``keep``. The run is identified by the context of the call, so runs in other threads are not
affected.
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
ONCE_MORE = "stopping and returning what there is; press Ctrl-C again to end at once"


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop, and has stopped between two of its steps."""


class Interruption:
    """Whether a run was asked to stop.

    Args:
        asked: an event that is set when the run is asked to stop.
        patience: seconds for which the current step may continue before the run stops.
        anywhere: whether the run may stop between any two programs, because it returns nothing.
        leaves: whether it does not even wait for the program that is compiled or run.

    Attributes:
        has_something: whether there is a result to return.
        ends: whether Ctrl-C should end the run without a result.
        until: when ``time.monotonic()`` reaches this, the run should stop; None: never.
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
        self.until: float | None = None
        self._patience = patience
        self._since: float | None = None

    def is_due(self) -> bool:
        """Whether the run should stop now."""
        if self.until is not None and time.monotonic() >= self.until:
            return True
        if not self.asked.is_set():
            return False
        if self._since is None:
            self._since = time.monotonic()
        return time.monotonic() - self._since >= self._patience


_current: contextvars.ContextVar[Interruption | None] = contextvars.ContextVar(
    "interruption", default=None
)


def is_due() -> bool:
    """Whether the run of this context should stop now."""
    interruption = _current.get()
    return interruption is not None and interruption.is_due()


def check() -> None:
    """Stop here if the run of this context should stop."""
    _end_if_asked()
    if is_due():
        raise Interrupted


def _end_if_asked() -> None:
    """End here if Ctrl-C should have ended the run but its exception was lost."""
    interruption = _current.get()
    in_main_thread = threading.current_thread() is threading.main_thread()
    if interruption is not None and interruption.ends and in_main_thread:
        raise KeyboardInterrupt


def check_anywhere() -> None:
    """Stop here, before or during the tracing of a program, if the run may stop anywhere."""
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
    """Call a pure function in a thread; stop waiting for it if the run is to stop.

    The compiler cannot be interrupted, so the thread continues, and its result is dropped.

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

    # Not a daemon thread: Python must not exit while the compiler runs, except by os._exit.
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
    """Record that the run of this context now has a result to return."""
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
    """A block in which the first Ctrl-C only asks to stop, once there is a result to keep.

    Before there is one, and at the second Ctrl-C, the usual handler runs. The block changes nothing
    outside the main thread (other threads get no signals), or where SIGINT is ignored or has
    another handler. A block inside another one is part of the outer block.

    Args:
        say: is called with a message at the first Ctrl-C.
        instead_of: the handler of SIGINT that this block may replace.

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
            # Python drops exceptions raised while objects are cleaned up; the next check then ends
            # the run.
            interruption.ends = True
            instead_of(number, frame)
            return
        interruption.asked.set()
        if say is not None:
            with contextlib.suppress(RuntimeError):  # another line is being written
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
def ended_after(seconds: float | None) -> Iterator[None]:
    """A block in which the run of this context is asked to stop after so many seconds.

    After the block it may go on, unless Ctrl-C asked it to stop.

    >>> with interruptible():
    ...     with ended_after(0.0):
    ...         is_due()
    ...     is_due()
    True
    False
    """
    interruption = _current.get()
    if seconds is None or interruption is None:
        yield
        return
    before, interruption.until = interruption.until, time.monotonic() + seconds
    try:
        yield
    finally:
        interruption.until = before


@contextlib.contextmanager
def stopped_by(asked: threading.Event, patience: float, *, leaves: bool = False) -> Iterator[None]:
    """A block that stops after an event: at the next program after ``patience`` seconds.

    The code that runs in the block has to undo what it has done by then.

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
