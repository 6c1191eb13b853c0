"""How a command ends: exit codes, errors with the names of options, and signals."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ParamSpec

import typer

if TYPE_CHECKING:
    import threading

    from weighbridge.core.progress.reporters import Reporter

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
# The library's messages name Python arguments; here they are replaced by the options.
OPTIONS = (
    (r"pass on_bad_row='(skip|quarantine)'", r"use --on-bad-row \1"),
    (r"on_bad_row='(skip|quarantine)'", r"--on-bad-row \1"),
    (r"quarantine=PATH", "--quarantine FILE"),
    (r"schema=\{'([^']*)': (\w+)\}", r"--schema \1=\2"),
    (r"with columns=\[\.\.\.\]", "with --features"),
    (r"^(tolerance) must", r"--\1 must"),
    (r"\btime_limit\b", "--time-limit"),
    (r"\bchunk_size\b", "--chunk-size"),
    (r"\bhalf_life\b", "--half-life"),
    (r"\bfalse_alarm_rate\b", "--false-alarm-rate"),
)

Parameters = ParamSpec("Parameters")


def with_exit_codes(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Turn errors into one line on standard error and an exit code."""

    @functools.wraps(command)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            print("weighbridge: interrupted", file=sys.stderr)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except Exception as error:
            from weighbridge.core.errors import WeighbridgeError

            if not isinstance(error, WeighbridgeError):
                raise
            for text in (str(error), *getattr(error, "__notes__", ())):
                print(f"weighbridge: {_as_options(text)}", file=sys.stderr)
            raise typer.Exit(EXIT_ERROR) from None

    return wrapper


def _as_options(text: str) -> str:
    for argument, option in OPTIONS:
        text = re.sub(argument, option, text)
    return text


@contextlib.contextmanager
def showing_partial_results(reporter: Reporter) -> Iterator[None]:
    """A block in which the first Ctrl-C ends the run early; its results so far are shown.

    The exit code is then 130. Progress is reported, also while modules are loaded.
    """
    from weighbridge.core.interrupts import interruptible
    from weighbridge.core.progress.announcing import announce

    announce(reporter, "loading")
    say = functools.partial(announce, reporter, at_once=True)
    ends_by = signal.getsignal(signal.SIGINT)
    instead_of = stop_at_once if ends_by is stop_at_once else signal.default_int_handler
    try:
        with interruptible(say, instead_of=instead_of) as interruption:
            yield
    finally:
        reporter.close()
    if interruption.is_due():
        raise typer.Exit(EXIT_INTERRUPTED)


@contextlib.contextmanager
def stopping(stop: threading.Event, say: Callable[[str], None]) -> Iterator[None]:
    """A block in which the first signal requests a stop, and the second one stops at once."""

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            stop_at_once()
        stop.set()
        say("stopping; a second signal stops at once")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_at_once(*_: object) -> None:
    """Exit at once on an interrupt.

    No exception is raised: in a callback it would be lost, and in the import of a native module it
    may cause a crash. The only cleaning up is to show the cursor that a progress bar hides.
    """
    show_cursor = b"\x1b[?25h" if os.isatty(2) else b""
    os.write(2, show_cursor + b"weighbridge: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def leave_what_is_at_work() -> None:
    """End the process at once if an abandoned program is still compiling.

    All output has been written by then.
    """
    from weighbridge.core.interrupts import is_at_work

    if is_at_work():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
