"""How far a long run has come: a bar on a terminal, a plain line per chunk elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
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
    """A rich progress bar with rows, log evidence, annealing steps and the time left."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def start(self, total: int | None) -> None:
        """Show the bar."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(
                "rows, log evidence {task.fields[log_evidence]}, "
                "{task.fields[steps]} annealing steps"
            ),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=total, log_evidence="...", steps="...")
        self._bar.start()

    def update(
        self, rows: int, log_evidence: float, annealing_steps: float, label: str = ""
    ) -> None:
        """Move the bar."""
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=rows,
                description=label,
                log_evidence=f"{log_evidence:.2f}",
                steps=f"{annealing_steps:.0f}",
            )

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


def choose_reporter(progress: bool | Reporter | None) -> Reporter:
    """The reporter for a ``progress`` argument: None shows a bar on a terminal only."""
    if progress is None:
        return Bar() if sys.stderr.isatty() else Silent()
    if isinstance(progress, bool):
        if not progress:
            return Silent()
        return Bar() if sys.stderr.isatty() else Lines(sys.stderr)
    return progress
