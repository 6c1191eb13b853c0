"""Remaining time of a run from its recent speed, and the times at which a log gets a line."""

from __future__ import annotations

import math
from collections import deque

# The speed is measured over this many recent steps; with fewer than the least it is unknown.
RECENT, LEAST = 12, 3
# Seconds between two log lines at first; later this share of the elapsed time.
BETWEEN_LINES = 2.0
GROWTH = 0.5


class Pace:
    """The recent speed of a task with a known end.

    >>> pace = Pace()
    >>> [pace.left(position, end=100.0, now=now) for now, position in enumerate((10.0, 20.0, 30.0))]
    [nan, nan, 7.0]
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=RECENT)

    def left(self, position: float, end: float, now: float) -> float:
        """Seconds from this position to the end; NaN as long as this is unknown."""
        self._seen.append((now, position))
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        if len(self._seen) < LEAST or not last > first or not ended > began:
            return math.nan
        return (end - last) / (last - first) * (ended - began)


def in_words(seconds: float) -> str:
    """The remaining time, rounded, as text; empty if it is unknown.

    >>> [in_words(seconds) for seconds in (0.2, 44.0, 200.0, 20_000.0, math.nan)]
    ['about 1 s left', 'about 44 s left', 'about 3 min left', 'about 6 h left', '']
    """
    if math.isnan(seconds):
        return ""
    units = (("s", 1.0), ("min", 60.0))
    unit, size = next((u for u in units if seconds < 90 * u[1]), ("h", 3600.0))
    return f"about {max(round(seconds / size), 1)} {unit} left"


class Sparse:
    """When the next log line is due: soon at first, then at growing intervals.

    A run of one hour has about twenty lines, a run of one day about thirty.

    Args:
        began: time at which the run began.
        first: seconds before the first line.
        growth: time between two lines, as a share of the elapsed time at the first of them.

    >>> sparse = Sparse(began=0.0)
    >>> [second for second in range(60) if sparse.is_due("linear", float(second))]
    [0, 2, 4, 6, 9, 14, 21, 32, 48]
    >>> late = Sparse(began=0.0, first=10.0, growth=1.0)
    >>> [second for second in range(60) if late.is_due("linear", float(second))]
    [10, 20, 40]
    """

    def __init__(self, began: float, first: float = 0.0, growth: float = GROWTH) -> None:
        self._began = began
        self._first = began + first
        self._growth = growth
        self._next: dict[str, float] = {}

    def wait(self, name: str, now: float) -> float:
        """Seconds until a line with this name is due; 0 or less if it is due.

        >>> Sparse(began=0.0, first=10.0).wait("linear", 4.0)
        6.0
        """
        return self._next.get(name, self._first) - now

    def is_due(self, name: str, now: float) -> bool:
        """Whether a line with this name should be written now; if so it counts as written."""
        if self.wait(name, now) > 0:
            return False
        self._next[name] = now + max(BETWEEN_LINES, self._growth * (now - self._began))
        return True
