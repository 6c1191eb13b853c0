"""How far a long run has come: a bar on a terminal, a plain line per chunk elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class Reporter(Protocol):
    """Told about every chunk of a run."""

    def start(self, total: int | None) -> None:
        """A run begins, of this many rows if that is known."""
        ...

    def update(
        self, rows: int, log_evidence: float, annealing_steps: float, label: str = ""
    ) -> None:
        """So many rows have been absorbed, by the model of this label if there are several."""
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

    def close(self) -> None:
        """Say nothing."""


class Lines:
    """One plain line per chunk, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total: int | None = None
        self._began = time.perf_counter()

    def start(self, total: int | None) -> None:
        """Remember the total."""
        self._total, self._began = total, time.perf_counter()

    def update(
        self, rows: int, log_evidence: float, annealing_steps: float, label: str = ""
    ) -> None:
        """Print one line."""
        of_total = f" of {self._total:,}" if self._total else ""
        print(
            f"{label}{': ' if label else ''}{rows:,}{of_total} rows  "
            f"log evidence {log_evidence:.2f}  "
            f"annealing steps {annealing_steps:.0f}  {time.perf_counter() - self._began:.1f} s",
            file=self._stream,
            flush=True,
        )

    def close(self) -> None:
        """Nothing to tidy up."""


class Bar:
    """Rich progress bars, one per model: rows, log evidence, annealing steps, time left."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._total: int | None = None

    def start(self, total: int | None) -> None:
        """Show the bar; a run that starts again begins a new one."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.close()
        self._total = total
        # Short enough, all told, for a terminal of 80 columns.
        clock: list[ProgressColumn] = [TimeElapsedColumn()]
        if total is not None:
            clock = [TimeRemainingColumn(compact=True), TextColumn("left")]
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),
            TextColumn("{task.fields[rows]}"),
            TextColumn("log evidence {task.fields[log_evidence]}"),
            TextColumn("{task.fields[steps]}"),
            *clock,
            console=self._console or Console(stderr=True),
            transient=True,
        )
        self._tasks = {}
        self._add("")
        self._bars.start()

    def update(
        self, rows: int, log_evidence: float, annealing_steps: float, label: str = ""
    ) -> None:
        """Move the bar of this model."""
        if self._bars is None:
            return
        if label not in self._tasks:
            if "" in self._tasks:  # what stood for all models until the first had a name
                self._bars.remove_task(self._tasks.pop(""))
            self._add(label)
        self._bars.update(
            self._tasks[label],
            completed=rows,
            rows=self._of_total(rows),
            log_evidence=f"{log_evidence:.2f}",
            steps=f"{annealing_steps:.0f} steps",
        )

    def close(self) -> None:
        """Take the bars away."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _add(self, label: str) -> None:
        assert self._bars is not None
        self._tasks[label] = self._bars.add_task(
            label, total=self._total, rows=self._of_total(0), log_evidence="...", steps=""
        )

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
