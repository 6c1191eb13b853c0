"""What a watch shows while it runs: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

# Seconds between two lines, where there is no terminal.
BETWEEN_LINES = 5.0
# The rate is that of so many chunks of late.
RECENT = 20


class State(NamedTuple):
    """What there is to show.

    Attributes:
        rows: seen so far.
        log_evidences: by model.
        std_errors: likewise.
        probabilities: likewise.
        last_change: in words; empty if there was none.
        bad_rows: left out, in words; empty if there were none.
        flags: models that ask for caution, in words.
    """

    rows: int
    log_evidences: dict[str, float]
    std_errors: dict[str, float]
    probabilities: dict[str, float]
    last_change: str = ""
    bad_rows: str = ""
    flags: str = ""


class Display(Protocol):
    """Told the state after every chunk, and what else should be said."""

    def show(self, state: State) -> None:
        """A chunk was absorbed."""
        ...

    def say(self, text: str) -> None:
        """Something happened."""
        ...

    def close(self) -> None:
        """The watch has ended, well or not."""
        ...


class Rate:
    """Rows a second, of late."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=RECENT)

    def after(self, rows: int, now: float | None = None) -> float:
        """The rate when so many rows have been seen; NaN at first.

        >>> rate = Rate()
        >>> rate.after(0, now=0.0), rate.after(500, now=2.0)
        (nan, 250.0)
        """
        self._seen.append((time.perf_counter() if now is None else now, rows))
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if ended > began else math.nan


class Quiet:
    """Shows nothing but what must be said."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream

    def show(self, state: State) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """One line."""
        print(f"weighbridge: {text}", file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing to tidy up."""


class Lines(Quiet):
    """A line every few seconds, for logs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._rate = Rate()
        self._next = 0.0

    def show(self, state: State) -> None:
        """A line, unless there was one just now."""
        rate = self._rate.after(state.rows)
        if time.perf_counter() < self._next:
            return
        self._next = time.perf_counter() + BETWEEN_LINES
        models = "; ".join(
            f"{name} {value:.2f} +- {state.std_errors[name]:.2g} ({state.probabilities[name]:.3f})"
            for name, value in state.log_evidences.items()
        )
        extra = "".join(f"; {text}" for text in (state.last_change, state.bad_rows) if text)
        self.say(f"{state.rows:,} rows{_speed(rate)}: {models}{extra}")


class OnTerminal(Quiet):
    """A table that is drawn anew after every chunk."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.live import Live

        self._rate = Rate()
        self._live: Live = Live(console=Console(file=self._stream), refresh_per_second=4)
        self._live.start()

    def show(self, state: State) -> None:
        """The table as it is now."""
        self._live.update(_table(state, self._rate.after(state.rows)))

    def say(self, text: str) -> None:
        """A line above the table."""
        self._live.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        """Leave the last table, and give the cursor back."""
        self._live.stop()


def _speed(rate: float) -> str:
    """The rate in words; nothing before it is known."""
    return "" if math.isnan(rate) else f", {rate:,.0f} rows/s"


def _table(state: State, rate: float) -> Table:
    from rich.table import Table
    from rich.text import Text

    told = [text for text in (state.last_change, state.bad_rows, state.flags) if text]
    table = Table(title=f"{state.rows:,} rows{_speed(rate)}", caption="\n".join(told) or None)
    table.add_column("model")
    for heading in ("log evidence", "+-", "log Bayes factor", "probability"):
        table.add_column(heading, justify="right")
    best = max(state.log_evidences.values(), default=0.0)
    leading = max(state.probabilities, key=state.probabilities.__getitem__, default="")
    for name, value in state.log_evidences.items():
        error = state.std_errors[name]
        cells = (
            f"{value:,.2f}",
            "unknown" if math.isnan(error) else f"{error:.2g}",
            f"{value - best:.2f}",
            f"{state.probabilities[name]:.4f}",
        )
        table.add_row(Text(name), *map(Text, cells), style="bold" if name == leading else None)
    return table


def choose_display(quiet: bool, stream: Any = None) -> Display:
    """A table on a terminal, lines elsewhere, nothing if so asked."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        return Quiet(stream)
    return OnTerminal(stream) if stream.isatty() else Lines(stream)
