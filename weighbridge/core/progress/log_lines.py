"""Lines about a run for logs and pipes: what is done if it lasts, then ever fewer with numbers."""

from __future__ import annotations

import contextlib
import time
from typing import TextIO

from weighbridge.core.progress import board
from weighbridge.core.progress.delayed import Delayed
from weighbridge.core.progress.pace import Sparse

# Nobody asked for lines: only a run of so many seconds tells that it is alive, and then when it
# has lasted for twice as long as at the line before.
UNASKED = 10.0
DOUBLING = 1.0


class LineLog:
    """Sparse lines on a stream.

    Args:
        stream: where they go.
        unasked: whether nobody asked for them: they then come late, say who speaks, are about
            whichever model is at work, and a stream that cannot be written to does no harm.
    """

    def __init__(self, stream: TextIO, *, unasked: bool = False) -> None:
        self._stream = stream
        self._unasked = unasked
        self._began = time.perf_counter()
        self._sparse = Sparse(self._began, UNASKED, DOUBLING) if unasked else Sparse(self._began)
        self._delayed = Delayed()

    @property
    def passed(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    @property
    def is_waiting(self) -> bool:
        """Whether a line may still come by itself."""
        return self._delayed.is_set

    def later(self, text: str) -> None:
        """Write this by itself if it lasts: if nothing else is said meanwhile."""
        self.hush()
        wait = board.PATIENCE
        if self._unasked:
            wait = max(wait, self._sparse.wait("", time.perf_counter()))
        self._delayed.start(wait, self._in_time, text)

    def hush(self) -> None:
        """Do not write what was to come later."""
        self._delayed.cancel()

    def is_due(self, name: str = "") -> bool:
        """Whether a line about this model is to be written now; if so it counts as written."""
        return self._sparse.is_due("" if self._unasked else name, time.perf_counter())

    def write(self, text: str) -> None:
        """One line, at once."""
        if not self._unasked:
            print(text, file=self._stream, flush=True)
            return
        with contextlib.suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
            print(f"weighbridge: {text}", file=self._stream, flush=True)

    def _in_time(self, text: str) -> None:
        if self._unasked:
            self.is_due()  # it counts as written
        self.write(text)
