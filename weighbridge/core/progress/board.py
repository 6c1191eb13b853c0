"""Rows with a bar each, on a terminal or in a notebook, that appear if a run takes longer."""

from __future__ import annotations

import contextlib
import contextvars
import html
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from weighbridge.core.progress.delayed import Delayed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task, TaskID
    from rich.text import Text

# A run that ends within this many seconds shows nothing.
PATIENCE = 0.3
# Seconds between two drawings in a notebook, since each drawing is sent to the browser.
BETWEEN_DRAWINGS = 0.25


class Row(NamedTuple):
    """What is shown about one model, or one chain.

    Attributes:
        name: its name; may be empty.
        fraction: the fraction done; None if unknown.
        text: further text.
        left: the remaining time, in words; empty if unknown.
    """

    name: str
    fraction: float | None
    text: str
    left: str = ""


class Screen(Protocol):
    """Where rows are drawn."""

    def draw(self, rows: dict[str, Row]) -> None:
        """Show these rows in place of the earlier ones."""
        ...

    def close(self) -> None:
        """Remove all rows."""
        ...


class Board:
    """Rows by key. A timer draws them when a run has lasted for a while."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.rows: dict[str, Row] = {}
        self.is_shown = False
        self._delayed = Delayed()
        self._lock = threading.RLock()

    def put(self, key: str, row: Row, *, at_once: bool = False) -> None:
        """Add a row, or change it."""
        with self._lock:
            self.rows[key] = row
            if self.is_shown:
                self.screen.draw(self.rows)
            elif at_once:
                self._appear()
            elif not self._delayed.is_set:
                # IPython uses the context to find the cell to which an output belongs.
                context = contextvars.copy_context()
                self._delayed.start(PATIENCE, context.run, self._appear_in_time)

    def remove(self, key: str) -> None:
        """Remove one row, if it exists."""
        with self._lock:
            self.rows.pop(key, None)

    def close(self) -> None:
        """Remove all rows."""
        with self._lock:
            self._delayed.cancel()
            if self.is_shown:
                self.screen.close()
            self.rows, self.is_shown = {}, False

    def _appear_in_time(self) -> None:
        with self._lock:
            if self._delayed.is_set and not self.is_shown:  # else the run ended just now
                self._appear()

    def _appear(self) -> None:
        self.screen.draw(self.rows)
        self.is_shown = True


class Terminal:
    """Rows with bars on a terminal, short enough for 80 columns."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._tasks: dict[str, TaskID] = {}
        self.bars: Progress | None = None

    def draw(self, rows: dict[str, Row]) -> None:
        """Show these rows in place of the earlier ones."""
        bars = self.bars = self.bars or self._begin()
        for key in [key for key in self._tasks if key not in rows]:
            bars.remove_task(self._tasks.pop(key))
        for key, row in rows.items():
            # A total of None shows a pulsing bar: the work has no known end.
            told: dict[str, Any] = {
                "description": row.name,
                "total": None if row.fraction is None else 1.0,
                "text": row.text,
                "left": row.left,
            }
            if key not in self._tasks:  # drawn at once, so with what it has to say
                self._tasks[key] = bars.add_task(**told)
            bars.update(self._tasks[key], completed=row.fraction or 0.0, **told)

    def close(self) -> None:
        """Remove the bars, and show the cursor again."""
        if self.bars is not None:
            self.bars.stop()
        self.bars, self._tasks = None, {}

    def _begin(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
        from rich.text import Text

        class Clock(ProgressColumn):
            """The time left, or, while that is unknown, the time passed."""

            def render(self, task: Task) -> Text:
                return Text(task.fields["left"] or f"{task.elapsed or 0.0:.0f} s")

        bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=8),
            TextColumn("{task.fields[text]}", markup=False),
            Clock(),
            console=self._console or Console(stderr=True),
            transient=True,
        )
        bars.start()
        return bars


class Notebook:
    """Rows with bars below a cell, updated in place; no widgets are needed."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._next = 0.0

    def draw(self, rows: dict[str, Row]) -> None:
        """Show these rows in place of the earlier ones."""
        if time.perf_counter() < self._next:
            return
        self._next = time.perf_counter() + BETWEEN_DRAWINGS
        self._send(
            {
                "text/plain": "\n".join(_plain(row) for row in rows.values()),
                "text/html": f"<table>{''.join(_as_html(row) for row in rows.values())}</table>",
            }
        )

    def close(self) -> None:
        """Remove all rows."""
        if self._handle is not None:
            self._send({"text/plain": "", "text/html": ""})
        self._handle = None

    def _send(self, bundle: dict[str, str]) -> None:
        # A failure to display must not stop the run.
        with contextlib.suppress(Exception):
            from IPython.display import display

            if self._handle is None:
                self._handle = display(bundle, raw=True, display_id=True)
            else:
                self._handle.update(bundle, raw=True)


def _plain(row: Row) -> str:
    return "  ".join(filter(None, (row.name, row.text, row.left)))


def _as_html(row: Row) -> str:
    value = "" if row.fraction is None else f' value="{row.fraction:.4f}"'
    cells = (html.escape(row.name), f"<progress{value}></progress>")
    told = (html.escape(text) for text in (row.text, row.left))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in (*cells, *told))}</tr>"


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook."""
    interactive = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    return getattr(shell, "kernel", None) is not None


def choose_screen() -> Screen | None:
    """The screen that can show bars here; None if there is none."""
    if in_notebook():
        return Notebook()
    # A closed or replaced stderr may lack isatty, or raise; then it is not a terminal.
    with contextlib.suppress(Exception):
        if sys.stderr.isatty():
            return Terminal()
    return None
