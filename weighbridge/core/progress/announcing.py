"""What is done before there are numbers to show: reading, compiling, waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Announcer(Protocol):
    """A reporter or a display that also takes what is done now."""

    def announce(self, text: str, *, at_once: bool = False) -> None:
        """This is being done now; it need not be shown before it lasts, unless ``at_once``."""
        ...


def announce(listener: Any, text: str, *, at_once: bool = False) -> None:
    """Tell a reporter or a display what is done now, if it is one that wants to know."""
    if isinstance(listener, Announcer):
        listener.announce(text, at_once=at_once)


@contextlib.contextmanager
def announced(listener: Any, text: str) -> Iterator[None]:
    """A block of which a listener is told; if it fails, that is the end of what is listened to."""
    announce(listener, text)
    try:
        yield
    except BaseException:
        listener.close()
        raise
