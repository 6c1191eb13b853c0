"""The display of a running watch: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from weighbridge.core.progress.delayed import Delayed
from weighbridge.results.trust import NOT_TRUSTED, is_decided
from weighbridge.results.wording import error_or_trust, with_bound, with_trust

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

# Seconds between two lines without a terminal.
BETWEEN_LINES = 5.0
# Without a terminal, an activity is announced only if it lasts this long (seconds).
PATIENCE = 0.5
# The rate is computed over this many recent chunks.
RECENT = 20


class State(NamedTuple):
    """The state of a watch, as shown after a chunk.

    Attributes:
        rows: number of rows so far.
        log_evidences: by model.
        std_errors: by model.
        probabilities: by model.
        last_change: text about the last change point; empty if there was none.
        bad_rows: text about bad rows that were left out; empty if there were none.
        flags: text with the names of flagged models; empty if there are none.
        probability_errors: by model.
        trust: by model: what grave flags make of its log evidence.
    """

    rows: int
    log_evidences: dict[str, float]
    std_errors: dict[str, float]
    probabilities: dict[str, float]
    last_change: str = ""
    bad_rows: str = ""
    flags: str = ""
    probability_errors: Mapping[str, float] = MappingProxyType({})
    trust: Mapping[str, str] = MappingProxyType({})

    @property
    def is_decided(self) -> bool:
        """Whether no grave flag leaves the order of the models uncertain."""
        leader = max(self.log_evidences, key=self.log_evidences.__getitem__, default="")
        return is_decided(leader, self.trust)

    def evidence(self, name: str) -> str:
        """The log evidence of a model with its error, or with what to think of it."""
        error = error_or_trust(self.std_errors[name], "")
        return with_trust(f"{self.log_evidences[name]:.2f}", error, self.trust.get(name, ""))

    def probability(self, name: str) -> str:
        """The probability of a model, with its error if that is known and not negligible."""
        error = self.probability_errors.get(name, math.nan)
        shown = f" +- {error:.2g}" if error >= 5e-5 else ""
        shown = shown if self.is_decided else f", {NOT_TRUSTED}"
        return f"{self.probabilities[name]:.4f}{shown}"


class Display(Protocol):
    """Shows the state after every chunk, and messages."""

    def show(self, state: State) -> None:
        """Show the state after a chunk."""
        ...

    def say(self, text: str) -> None:
        """Show a message."""
        ...

    def close(self) -> None:
        """End the display; the watch has ended, with or without an error."""
        ...


class Rate:
    """Rows per second over the recent chunks."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=RECENT)

    def after(self, rows: int, now: float | None = None) -> float:
        """The rate after so many rows; NaN at the first call.

        >>> rate = Rate()
        >>> rate.after(0, now=0.0), rate.after(500, now=2.0)
        (nan, 250.0)
        """
        self._seen.append((time.perf_counter() if now is None else now, rows))
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if ended > began else math.nan


class Quiet:
    """Shows messages only."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream

    def show(self, state: State) -> None:
        """Does nothing."""

    def say(self, text: str) -> None:
        """Print a message on one line."""
        print(f"weighbridge: {text}", file=self._stream, flush=True)

    def close(self) -> None:
        """Does nothing."""


class Lines(Quiet):
    """A line every few seconds, for logs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._rate = Rate()
        self._next = 0.0
        self._announced: set[str] = set()
        self._delayed = Delayed()

    def announce(self, text: str, *, at_once: bool = False) -> None:
        """Print the current activity if it lasts; each text is printed only once."""
        self._delayed.cancel()
        if text in self._announced:
            return
        self._delayed.start(0.0 if at_once else PATIENCE, self._tell, text)

    def close(self) -> None:
        """Cancel a pending announcement."""
        self._delayed.cancel()

    def _tell(self, text: str) -> None:
        self._announced.add(text)
        self.say(f"{text} ...")

    def show(self, state: State) -> None:
        """Print a line, unless the last one was less than five seconds ago."""
        self._delayed.cancel()
        rate = self._rate.after(state.rows)
        if time.perf_counter() < self._next:
            return
        self._next = time.perf_counter() + BETWEEN_LINES
        models = "; ".join(
            f"{name} {state.evidence(name)} ({state.probability(name)})"
            for name in state.log_evidences
        )
        extra = "".join(f"; {text}" for text in (state.last_change, state.bad_rows) if text)
        self.say(f"{state.rows:,} rows{_speed(rate)}: {models}{extra}")


class OnTerminal(Quiet):
    """A table that is redrawn after every chunk, with the current activity below it."""

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
        """Show the current activity below the table."""
        if text != self._doing:
            self._doing = text
            self._draw()

    def show(self, state: State) -> None:
        """Redraw the table."""
        self._parts = [_table(state, self._rate.after(state.rows))]
        self._draw()

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._live.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        """Leave the last table on the screen, and show the cursor again."""
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
    """The rate as text; empty while it is unknown."""
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
    leading = leading if state.is_decided else ""
    for name, value in state.log_evidences.items():
        word = state.trust.get(name, "")
        cells = (
            with_bound(f"{value:,.2f}", word),
            error_or_trust(state.std_errors[name], word),
            f"{value - best:.2f}",
            state.probability(name),
        )
        table.add_row(Text(name), *map(Text, cells), style="bold" if name == leading else None)
    return table


def choose_display(quiet: bool, stream: Any = None) -> Display:
    """A table on a terminal, lines elsewhere, only messages if ``quiet``."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        return Quiet(stream)
    return OnTerminal(stream) if stream.isatty() else Lines(stream)
