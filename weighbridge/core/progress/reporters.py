"""Progress of a long run: bars on a terminal and in notebooks, log lines elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from typing import Protocol, TextIO

from weighbridge.core.progress import board
from weighbridge.core.progress.announcing import announce
from weighbridge.core.progress.board import Board, Row, Screen, Terminal, choose_screen
from weighbridge.core.progress.log_lines import LineLog
from weighbridge.core.progress.pace import Pace, in_words

COMPILING = "compiling"
CHECKING = "checking"
# The first update also compiles.
WEIGHING = "weighing new rows (the first time also compiling)"


class Reporter(Protocol):
    """Gets the progress of a run: its rows, its powers, or the words of a method with neither.

    A reporter overrides the methods that it needs; the others do nothing.
    """

    def start(self, total: int | None) -> None:
        """A run over rows begins; the total number of rows is None if unknown."""
        return

    def update(
        self, rows: int, log_evidence: float, annealing_steps: float, label: str = ""
    ) -> None:
        """This many rows have been absorbed; the label names the model if there are several."""
        return

    def temper(
        self,
        power: float,
        log_evidence: float,
        steps: int,
        label: str = "",
        island_round: int = 0,
    ) -> None:
        """All the data have reached this power; rounds of islands count from 1 (0: no rounds)."""
        return

    def advance(
        self,
        share: float | None,
        done: str,
        log_evidence: float,
        steps: int,
        label: str = "",
        island_round: int = 0,
    ) -> None:
        """A method that neither takes rows nor tempers has come this far.

        Args:
            share: fraction done, between 0 and 1; None if unknown.
            done: how far it is, in its own words, such as "2,000 live points replaced".
            log_evidence: estimate so far; NaN if there is none yet.
            steps: number of its steps; 0 when it begins.
            label: name of the model; empty if it is the only one.
            island_round: number of the round of islands from 1; 0 if there is only one.
        """
        return

    def close(self) -> None:
        """The run has ended, with or without an error."""
        return


class Silent(Reporter):
    """Reports nothing."""


class Forecast:
    """The fraction done and the remaining time, for each part of a run.

    Powers grow by about the same factor in every step, so progress is linear in their logarithm:
    the fraction done is 1 - log(power) / log(first power).

    >>> forecast = Forecast()
    >>> [forecast.of_power("", power, now) for now, power in enumerate((0.01, 0.1, 1.0))][1]
    (0.5, nan)
    """

    def __init__(self) -> None:
        self._paces: dict[str, Pace] = {}
        self._first: dict[str, float] = {}

    def begin(self, name: str) -> None:
        """Forget the speed of this part, because it starts again."""
        self._paces.pop(name, None)
        self._first.pop(name, None)

    def of_rows(self, name: str, rows: int, total: int, now: float) -> tuple[float, float]:
        """The fraction done, and the seconds left."""
        return rows / total, self._pace(name).left(rows, total, now)

    def of_power(self, name: str, power: float, now: float) -> tuple[float, float]:
        """The fraction done, and the seconds left, for a path of powers."""
        log_power = math.log(power) if power > 0 else -math.inf
        if not math.isfinite(log_power):
            return 0.0, math.nan
        first = self._first.setdefault(name, log_power)
        share = 1.0 if log_power >= 0 else 1.0 - log_power / first
        return share, self._pace(name).left(log_power, 0.0, now)

    def of_share(self, name: str, share: float | None, now: float) -> float:
        """The seconds left, if the fraction done is known; else NaN."""
        return math.nan if share is None else self._pace(name).left(share, 1.0, now)

    def _pace(self, name: str) -> Pace:
        return self._paces.setdefault(name, Pace())


class ProgressLines:
    """Plain log lines: what the run is doing, then numbers at growing intervals.

    Args:
        stream: where the lines are written.
        unasked: whether nobody asked for them; then only a long run writes lines.
    """

    def __init__(self, stream: TextIO, *, unasked: bool = False) -> None:
        self.unasked = unasked
        self._log = LineLog(stream, unasked=unasked)
        self._total: int | None = None
        self._forecast = Forecast()

    def announce(self, text: str, *, at_once: bool = False) -> None:
        """Print what is being done, if it takes more than a moment."""
        if at_once:
            self._log.hush()
            self._log.write(text)
        else:
            self._log.later(f"{text} ...")

    def start(self, total: int | None) -> None:
        """Remember the total."""
        self._total = total
        self._forecast = Forecast()
        self.announce(COMPILING)

    def update(
        self, rows: int, log_evidence: float, annealing_steps: float, label: str = ""
    ) -> None:
        """Print one line, if it is time for one."""
        self._log.hush()
        left, of_total = math.nan, ""
        if self._total:
            of_total = f" of {self._total:,}"
            now = time.perf_counter()
            left = self._forecast.of_rows(label, rows, self._total, now)[1]
        if self._log.is_due(label):
            done = f"{rows:,}{of_total} rows"
            self._print(label, done, log_evidence, f"{annealing_steps:.0f}", left)

    def temper(
        self,
        power: float,
        log_evidence: float,
        steps: int,
        label: str = "",
        island_round: int = 0,
    ) -> None:
        """Print one line, if it is time for one."""
        self._log.hush()
        name = _named(label, island_round)
        if not steps:
            self._forecast.begin(label)
            if island_round <= 1:
                self.announce(_labelled(name, COMPILING))
            return
        left = self._forecast.of_power(label, power, time.perf_counter())[1]
        if self._log.passed >= board.PATIENCE and self._log.is_due(label):
            self._print(name, f"power {power:.3g}", log_evidence, str(steps), left)
        if power >= 1:
            self.announce(_labelled(name, CHECKING))

    def advance(
        self,
        share: float | None,
        done: str,
        log_evidence: float,
        steps: int,
        label: str = "",
        island_round: int = 0,
    ) -> None:
        """Print one line, if it is time for one."""
        self._log.hush()
        name = _named(label, island_round)
        if not steps:
            self._forecast.begin(label)
            self.announce(_labelled(name, COMPILING))
            return
        left = self._forecast.of_share(label, share, time.perf_counter())
        if self._log.passed >= board.PATIENCE and self._log.is_due(label):
            self._print(name, done, log_evidence, str(steps), left, "steps")

    def close(self) -> None:
        """Cancel the scheduled line."""
        self._log.hush()

    def _print(
        self,
        name: str,
        done: str,
        log_evidence: float,
        steps: str,
        left: float,
        kind: str = "annealing steps",
    ) -> None:
        told = ", ".join(filter(None, (f"{self._log.passed:.1f} s", in_words(left))))
        found = "" if math.isnan(log_evidence) else f"  log evidence {log_evidence:.2f}"
        text = f"{done}{found}  {kind} {steps}  {told}"
        self._log.write(_labelled(name, text))


def _named(label: str, island_round: int) -> str:
    """The name of a model and its round of islands, as far as there are several."""
    return ", ".join(filter(None, [label, f"round {island_round}" if island_round else ""]))


def _labelled(name: str, text: str) -> str:
    return f"{name}: {text}" if name else text


class Bar:
    """A row with a bar for each model: progress, log evidence, annealing steps, time left."""

    def __init__(self, screen: Screen | None = None) -> None:
        self.board = Board(Terminal() if screen is None else screen)
        self._total: int | None = None
        self._forecast = Forecast()

    def announce(self, text: str, *, at_once: bool = False) -> None:
        """Show what is being done, in a row that the first named row replaces."""
        self.board.put("", Row("", None, text if at_once else f"{text} ..."), at_once=at_once)

    def start(self, total: int | None) -> None:
        """A run begins, or begins again."""
        self._total, self._forecast = total, Forecast()
        for key in list(self.board.rows):
            self.board.remove(key)
        self.announce(COMPILING)

    def update(
        self, rows: int, log_evidence: float, annealing_steps: float, label: str = ""
    ) -> None:
        """Move the bar of this model."""
        share: float | None = None
        left, done = math.nan, f"{rows:,} rows"
        if self._total:
            done = f"{rows:,}/{self._total:,} rows"
            share, left = self._forecast.of_rows(label, rows, self._total, time.perf_counter())
        self._move(label, label, share, done, log_evidence, f"{annealing_steps:.0f}", left)

    def temper(
        self,
        power: float,
        log_evidence: float,
        steps: int,
        label: str = "",
        island_round: int = 0,
    ) -> None:
        """Move the bar of this model."""
        name = _named(label, island_round)
        if not steps:
            self._forecast.begin(label)
            waiting = f"{COMPILING} ..." if island_round <= 1 else "power 0"
            self._move_begun(label, name, waiting)
            return
        share, left = self._forecast.of_power(label, power, time.perf_counter())
        if power >= 1:  # a bridge and a second look may follow; their time is unknown
            self._move(label, name, None, CHECKING, log_evidence, str(steps), math.nan)
        else:
            done = f"power {power:.3g}"
            self._move(label, name, share, done, log_evidence, str(steps), left)

    def advance(
        self,
        share: float | None,
        done: str,
        log_evidence: float,
        steps: int,
        label: str = "",
        island_round: int = 0,
    ) -> None:
        """Move the bar of this model."""
        name = _named(label, island_round)
        if not steps:
            self._forecast.begin(label)
            self._move_begun(label, name, f"{COMPILING} ...")
            return
        left = self._forecast.of_share(label, share, time.perf_counter())
        self._move(label, name, share, done, log_evidence, str(steps), left)

    def close(self) -> None:
        """Remove the bars."""
        self.board.close()

    def _move_begun(self, label: str, name: str, waiting: str) -> None:
        """Show the row of a model that begins, and mark the models before it as done."""
        self._finish_others(label)
        if label:
            self.board.remove("")
        self.board.put(label, Row(name, None, waiting))

    def _move(
        self,
        label: str,
        name: str,
        share: float | None,
        done: str,
        log_evidence: float,
        steps: str,
        left: float,
    ) -> None:
        if label:
            self.board.remove("")  # the row used before the first model has a name
        found = "" if math.isnan(log_evidence) else f" log Z {log_evidence:.2f}"
        text = f"{done}{found} {steps} steps"
        self.board.put(label, Row(name, share, text, in_words(left)))

    def _finish_others(self, label: str) -> None:
        """Mark models as done when the next begins: they are tempered one after the other."""
        for key, row in list(self.board.rows.items()):
            if key not in ("", label) and row.text.startswith(CHECKING):
                text = row.text.replace(CHECKING, "done", 1)
                self.board.put(key, Row(row.name, 1.0, text, " "))


def choose_reporter(progress: bool | Reporter | None) -> Reporter:
    """The reporter for a ``progress`` argument.

    None shows bars where possible; elsewhere only a long run writes something, in a few lines.
    """
    if progress is not None and not isinstance(progress, bool):
        return progress
    if progress is False:
        return Silent()
    screen = choose_screen()
    if screen is not None:
        return Bar(screen)
    # A program without a console (for example pythonw) has no stderr.
    return Silent() if sys.stderr is None else ProgressLines(sys.stderr, unasked=progress is None)


@contextlib.contextmanager
def telling(progress: bool | Reporter | None, text: str) -> Iterator[None]:
    """A block of work that is announced; if it ends at once, nothing is shown."""
    reporter = choose_reporter(progress)
    announce(reporter, text)
    try:
        yield
    finally:
        reporter.close()


def is_watched(reporter: Reporter) -> bool:
    """Whether somebody asked for progress or sees a screen; remarks are then printed at once.

    >>> is_watched(ProgressLines(sys.stderr)), is_watched(ProgressLines(sys.stderr, unasked=True))
    (True, False)
    """
    return not isinstance(reporter, Silent) and not (
        isinstance(reporter, ProgressLines) and reporter.unasked
    )
