"""How far a long run has come: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

# Tempering says nothing for so many seconds, and prints no more than a line in so many.
PATIENCE = 0.5
BETWEEN_LINES = 1.0


class Reporter(Protocol):
    """Told about every chunk of a run over rows, or about every step of a tempered one."""

    def start(self, total: int | None) -> None:
        """A run over rows begins, of this many if that is known."""
        ...

    def update(
        self, rows: int, log_evidence: float, annealing_steps: float, label: str = ""
    ) -> None:
        """So many rows have been absorbed, by the model of this label if there are several."""
        ...

    def temper(
        self,
        power: float,
        log_evidence: float,
        steps: int,
        label: str = "",
        island_round: int = 0,
    ) -> None:
        """All the data have come to this power; rounds of islands count from 1, if they do."""
        ...

    def close(self) -> None:
        """The run has ended, well or not."""
        ...


class Silent:
    """Reports nothing."""

    def start(self, total: int | None) -> None:
        """Say nothing."""

    def update(
        self, rows: int, log_evidence: float, annealing_steps: float, label: str = ""
    ) -> None:
        """Say nothing."""

    def temper(
        self,
        power: float,
        log_evidence: float,
        steps: int,
        label: str = "",
        island_round: int = 0,
    ) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Say nothing."""


class Lines:
    """One plain line per chunk, or per second of tempering, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total: int | None = None
        self._began = time.perf_counter()
        self._next_line: float | None = None

    def start(self, total: int | None) -> None:
        """Remember the total."""
        self._total, self._began = total, time.perf_counter()

    def update(
        self, rows: int, log_evidence: float, annealing_steps: float, label: str = ""
    ) -> None:
        """Print one line."""
        of_total = f" of {self._total:,}" if self._total else ""
        self._print(label, f"{rows:,}{of_total} rows", log_evidence, f"{annealing_steps:.0f}")

    def temper(
        self,
        power: float,
        log_evidence: float,
        steps: int,
        label: str = "",
        island_round: int = 0,
    ) -> None:
        """Print one line, unless there was one just now."""
        now = time.perf_counter()
        if self._next_line is None:
            self._began, self._next_line = now, now + PATIENCE
        if steps and now >= self._next_line:
            self._next_line = now + BETWEEN_LINES
            self._print(_named(label, island_round), f"power {power:.3g}", log_evidence, str(steps))

    def close(self) -> None:
        """Nothing to tidy up."""

    def _print(self, label: str, done: str, log_evidence: float, steps: str) -> None:
        print(
            f"{label}{': ' if label else ''}{done}  log evidence {log_evidence:.2f}  "
            f"annealing steps {steps}  {time.perf_counter() - self._began:.1f} s",
            file=self._stream,
            flush=True,
        )


def _named(label: str, island_round: int) -> str:
    """A model and its round of islands, as far as there are several."""
    return ", ".join(filter(None, [label, f"round {island_round}" if island_round else ""]))


class Bar:
    """Rich progress bars, one per model: how far, log evidence, annealing steps, time."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._total: int | None = None
        # What tempering has to say until it is shown; a timer shows it, also amid a compilation.
        self._waiting: dict[str, dict[str, Any]] = {}
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()

    def start(self, total: int | None) -> None:
        """Show the bar; a run that starts again begins a new one."""
        self.close()
        self._total = total
        self._show(has_end=total is not None)
        nothing_yet = {"done": self._of_total(0), "log_evidence": "...", "steps": ""}
        self._add("", total, nothing_yet)

    def update(
        self, rows: int, log_evidence: float, annealing_steps: float, label: str = ""
    ) -> None:
        """Move the bar of this model."""
        if self._bars is None:
            return
        fields: dict[str, Any] = {
            "completed": rows,
            "done": self._of_total(rows),
            "log_evidence": f"{log_evidence:.2f}",
            "steps": f"{annealing_steps:.0f} steps",
        }
        if label in self._tasks:
            self._bars.update(self._tasks[label], **fields)
            return
        if "" in self._tasks:  # what stood for all models until the first had a name
            self._bars.remove_task(self._tasks.pop(""))
        self._add(label, self._total, fields)

    def temper(
        self,
        power: float,
        log_evidence: float,
        steps: int,
        label: str = "",
        island_round: int = 0,
    ) -> None:
        """Move the bar of this model, which appears when the run has lasted for a while."""
        fields: dict[str, Any] = {
            "description": _named(label, island_round),
            "completed": power,
            "done": f"power {power:.3g}",
            "log_evidence": f"{log_evidence:.2f}" if steps else "...",
            "steps": f"{steps} steps" if steps else "",
        }
        with self._lock:
            if self._bars is None:
                self._waiting[label] = fields
                if self._timer is None:
                    self._timer = threading.Timer(PATIENCE, self._appear)
                    self._timer.daemon = True
                    self._timer.start()
            elif label in self._tasks:
                self._bars.update(self._tasks[label], **fields)
            else:
                self._add(label, 1.0, fields)

    def close(self) -> None:
        """Take the bars away."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._bars is not None:
                self._bars.stop()
            self._bars, self._timer = None, None
            self._tasks, self._waiting = {}, {}

    def _appear(self) -> None:
        with self._lock:
            if self._timer is None:  # the run ended just now
                return
            self._show(has_end=False)
            for label, fields in self._waiting.items():
                self._add(label, 1.0, fields)

    def _show(self, *, has_end: bool) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        # Short enough, all told, for a terminal of 80 columns.
        clock: list[ProgressColumn] = [TimeElapsedColumn()]
        if has_end:
            clock = [TimeRemainingColumn(compact=True), TextColumn("left")]
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=8),
            TextColumn("{task.fields[done]}"),
            TextColumn("log evidence {task.fields[log_evidence]}"),
            TextColumn("{task.fields[steps]}"),
            *clock,
            console=self._console or Console(stderr=True),
            transient=True,
        )
        self._bars.start()

    def _add(self, label: str, total: float | None, fields: dict[str, Any]) -> None:
        assert self._bars is not None
        first = {"description": label, "total": total, **fields}
        self._tasks[label] = self._bars.add_task(**first)

    def _of_total(self, rows: int) -> str:
        return f"{rows:,}{'' if self._total is None else f'/{self._total:,}'} rows"


def choose_reporter(progress: bool | Reporter | None) -> Reporter:
    """The reporter for a ``progress`` argument: None shows a bar on a terminal only."""
    if progress is None:
        return Bar() if sys.stderr.isatty() else Silent()
    if isinstance(progress, bool):
        if not progress:
            return Silent()
        return Bar() if sys.stderr.isatty() else Lines(sys.stderr)
    return progress


class ChainReporter(Protocol):
    """Told about every block of steps of a chain."""

    def update(self, chain: int, done: int, total: int, warming: bool, divergent: int) -> None:
        """A chain has done so many of its steps of warm-up, or of its draws."""
        ...

    def close(self) -> None:
        """The chains have ended, well or not."""
        ...


class SilentChains:
    """Reports nothing."""

    def update(self, chain: int, done: int, total: int, warming: bool, divergent: int) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Say nothing."""


class ChainLines:
    """A plain line a second, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next_line = time.perf_counter() + PATIENCE
        self._lock = threading.Lock()

    def update(self, chain: int, done: int, total: int, warming: bool, divergent: int) -> None:
        """Print one line, unless there was one just now."""
        with self._lock:
            now = time.perf_counter()
            if not done or now < self._next_line:
                return
            self._next_line = now + BETWEEN_LINES
        print(_chain_line(chain, done, total, warming, divergent), file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing to tidy up."""


class ChainBars:
    """A bar for each chain, once they have run for a while."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._tasks: dict[int, TaskID] = {}
        self._appear = time.perf_counter() + PATIENCE
        self._lock = threading.RLock()

    def update(self, chain: int, done: int, total: int, warming: bool, divergent: int) -> None:
        """Move the bar of this chain."""
        with self._lock:
            if time.perf_counter() < self._appear:
                return
            if self._bars is None:
                self._bars = self._show()
            text = _chain_line(chain, done, total, warming, divergent)
            if chain not in self._tasks:
                self._tasks[chain] = self._bars.add_task(text, total=total)
            self._bars.update(self._tasks[chain], description=text, completed=done, total=total)

    def close(self) -> None:
        """Take the bars away."""
        with self._lock:
            if self._bars is not None:
                self._bars.stop()
            self._bars, self._tasks = None, {}

    def _show(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            TimeRemainingColumn(compact=True),
            console=self._console or Console(stderr=True),
            transient=True,
        )
        bars.start()
        return bars


def _chain_line(chain: int, done: int, total: int, warming: bool, divergent: int) -> str:
    phase = "warm-up" if warming else "draws"
    said = f", {divergent} divergent" if divergent else ""
    return f"chain {chain + 1}: {done:,}/{total:,} {phase}{said}"


def choose_chain_reporter(progress: bool | None) -> ChainReporter:
    """The reporter of chains for a ``progress`` argument: None shows bars on a terminal only."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return SilentChains()
    return ChainBars() if sys.stderr.isatty() else ChainLines(sys.stderr)
