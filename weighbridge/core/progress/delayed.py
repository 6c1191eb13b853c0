"""An action that happens after a delay, unless it is cancelled before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Delayed:
    """One action at a time, in a thread of its own that does not keep the program alive.

    >>> heard = []
    >>> delayed = Delayed()
    >>> delayed.start(60.0, heard.append, "too late")
    >>> delayed.is_set
    True
    >>> delayed.cancel()
    >>> delayed.is_set, heard
    (False, [])
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    @property
    def is_set(self) -> bool:
        """Whether an action was started and not cancelled; it may have happened by now."""
        return self._timer is not None

    def start(self, seconds: float, action: Callable[..., Any], *arguments: Any) -> None:
        """Do this after some seconds; it replaces an earlier request."""
        self.cancel()
        self._timer = threading.Timer(seconds, action, arguments)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Do not do it, if it has not happened yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
