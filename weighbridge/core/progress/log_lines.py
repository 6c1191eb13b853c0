"""Log lines about a run: what it is doing, then numbers at growing intervals."""

from __future__ import annotations

import contextlib
import time
from typing import TextIO

from weighbridge.core.progress import board
from weighbridge.core.progress.delayed import Delayed
from weighbridge.core.progress.pace import Sparse

# If nobody asked for lines, the first one comes after this many seconds, and each further line
# after twice the time of the line before.
UNASKED = 10.0
DOUBLING = 1.0


class LineLog:
    """Lines on a stream, at growing intervals.

    Args:
        stream: where the lines are written.
        unasked: whether nobody asked for them. They then start late, begin with the name of the
            library, share one schedule for all models, and errors of the stream are ignored.
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
        """Whether a line is scheduled."""
        return self._delayed.is_set

    def later(self, text: str) -> None:
        """Write this line after a while, unless another line is written before."""
        self.hush()
        wait = board.PATIENCE
        if self._unasked:
            wait = max(wait, self._sparse.wait("", time.perf_counter()))
        self._delayed.start(wait, self._in_time, text)

    def hush(self) -> None:
        """Cancel the scheduled line."""
        self._delayed.cancel()

    def is_due(self, name: str = "") -> bool:
        """Whether a line about this model should be written now; if so it counts as written."""
        return self._sparse.is_due("" if self._unasked else name, time.perf_counter())

    def write(self, text: str) -> None:
        """Write one line at once."""
        if not self._unasked:
            print(text, file=self._stream, flush=True)
            return
        with contextlib.suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
            print(f"weighbridge: {text}", file=self._stream, flush=True)

    def _in_time(self, text: str) -> None:
        if self._unasked:
            self.is_due()  # it counts as written
        self.write(text)
