"""Announcements of work that has no numbers to show yet: reading, compiling, waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Announcer(Protocol):
    """A reporter or a display that can also announce what is being done."""

    def announce(self, text: str, *, at_once: bool = False) -> None:
        """Announce what is being done; it may be shown later if it takes long, or ``at_once``."""
        ...


def announce(listener: Any, text: str, *, at_once: bool = False) -> None:
    """Announce what is being done, if the reporter or display can show announcements."""
    if isinstance(listener, Announcer):
        listener.announce(text, at_once=at_once)


@contextlib.contextmanager
def announced(listener: Any, text: str) -> Iterator[None]:
    """A block that is announced; if it raises, the listener is closed."""
    announce(listener, text)
    try:
        yield
    except BaseException:
        listener.close()
        raise
