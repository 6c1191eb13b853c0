"""What a watch shows while it runs: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from weighbridge.core.progress.delayed import Delayed

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

# Seconds between two lines, where there is no terminal.
BETWEEN_LINES = 5.0
# What is done is told if it lasts so long (seconds), where there is no terminal.
PATIENCE = 0.5
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
        probability_errors: by model.
    """

    rows: int
    log_evidences: dict[str, float]
    std_errors: dict[str, float]
    probabilities: dict[str, float]
    last_change: str = ""
    bad_rows: str = ""
    flags: str = ""
    probability_errors: Mapping[str, float] = MappingProxyType({})

    def probability(self, name: str) -> str:
        """The probability of a model with its error, where that is known and shows."""
        error = self.probability_errors.get(name, math.nan)
        shown = f" +- {error:.2g}" if error >= 5e-5 else ""
        return f"{self.probabilities[name]:.4f}{shown}"


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
        self._announced: set[str] = set()
        self._delayed = Delayed()

    def announce(self, text: str, *, at_once: bool = False) -> None:
        """What is done now, if it lasts: a line for the first time."""
        self._delayed.cancel()
        if text in self._announced:
            return
        self._delayed.start(0.0 if at_once else PATIENCE, self._tell, text)

    def close(self) -> None:
        """Say nothing more."""
        self._delayed.cancel()

    def _tell(self, text: str) -> None:
        self._announced.add(text)
        self.say(f"{text} ...")

    def show(self, state: State) -> None:
        """A line, unless there was one just now."""
        self._delayed.cancel()
        rate = self._rate.after(state.rows)
        if time.perf_counter() < self._next:
            return
        self._next = time.perf_counter() + BETWEEN_LINES
        models = "; ".join(
            f"{name} {value:.2f} +- {state.std_errors[name]:.2g} ({state.probability(name)})"
            for name, value in state.log_evidences.items()
        )
        extra = "".join(f"; {text}" for text in (state.last_change, state.bad_rows) if text)
        self.say(f"{state.rows:,} rows{_speed(rate)}: {models}{extra}")


class OnTerminal(Quiet):
    """A table that is drawn anew after every chunk, and below it what is done now."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.live import Live

        self._rate = Rate()
        self._parts: list[Any] = []
        self._doing = ""
        self._live: Live = Live(console=Console(file=self._stream), refresh_per_second=4)
        self._live.start()

    def announce(self, text: str, *, at_once: bool = False) -> None:
        """What is done now, below the table."""
        if text != self._doing:
            self._doing = text
            self._draw()

    def show(self, state: State) -> None:
        """The table as it is now."""
        self._parts = [_table(state, self._rate.after(state.rows))]
        self._draw()

    def say(self, text: str) -> None:
        """A line above the table."""
        self._live.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        """Leave the last table, and give the cursor back."""
        self._doing = ""
        self._draw()
        self._live.stop()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.text import Text

        now = [Spinner("line", Text(f"{self._doing} ..."))] if self._doing else []
        self._live.update(Group(*self._parts, *now))


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
            state.probability(name),
        )
        table.add_row(Text(name), *map(Text, cells), style="bold" if name == leading else None)
    return table


def choose_display(quiet: bool, stream: Any = None) -> Display:
    """A table on a terminal, lines elsewhere, nothing if so asked."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        return Quiet(stream)
    return OnTerminal(stream) if stream.isatty() else Lines(stream)
