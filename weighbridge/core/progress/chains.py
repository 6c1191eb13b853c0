"""Progress of chains: bars on a terminal and in notebooks, log lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import Protocol, TextIO

from weighbridge.core.progress import board
from weighbridge.core.progress.board import Board, Row, Screen, Terminal, choose_screen
from weighbridge.core.progress.log_lines import LineLog
from weighbridge.core.progress.pace import Pace, in_words

COMPILING = "compiling ..."


class ChainReporter(Protocol):
    """Gets the progress of every block of steps of a chain."""

    def update(self, chain: int, done: int, total: int, warming: bool, divergent: int) -> None:
        """A chain has done this many of its warm-up steps, or of its draws."""
        ...

    def say(self, text: str) -> None:
        """Show a message."""
        ...

    def close(self) -> None:
        """The chains have ended, with or without an error."""
        ...


class SilentChains:
    """Reports nothing."""

    def update(self, chain: int, done: int, total: int, warming: bool, divergent: int) -> None:
        """Say nothing."""

    def say(self, text: str) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Say nothing."""


class ChainLines:
    """Plain log lines, at growing intervals.

    Args:
        stream: where the lines are written.
        unasked: whether nobody asked for them; then only a long run writes lines.
    """

    def __init__(self, stream: TextIO, *, unasked: bool = False) -> None:
        self._log = LineLog(stream, unasked=unasked)
        self._lock = threading.Lock()
        self._has_begun = False

    def update(self, chain: int, done: int, total: int, warming: bool, divergent: int) -> None:
        """Print one line, if it is time for one."""
        with self._lock:
            if not done and not self._has_begun and not self._log.is_waiting:
                self._log.later(COMPILING)
            if not done:
                return
            self._log.hush()
            self._has_begun = True
            if self._log.passed < board.PATIENCE or not self._log.is_due():
                return
        text = _words(done, total, warming, divergent)
        self.say(f"chain {chain + 1}: {text}  {self._log.passed:.1f} s")

    def say(self, text: str) -> None:
        """Print one line."""
        self._log.write(text)

    def close(self) -> None:
        """Cancel the scheduled line."""
        self._log.hush()


class ChainBars:
    """A row with a bar for each chain, after they have run for a while."""

    def __init__(self, screen: Screen | None = None) -> None:
        self.board = Board(Terminal() if screen is None else screen)
        self._paces: dict[tuple[int, bool], Pace] = {}
        self._lock = threading.Lock()

    def update(self, chain: int, done: int, total: int, warming: bool, divergent: int) -> None:
        """Move the bar of this chain."""
        name = f"chain {chain + 1}"
        text = _words(done, total, warming, divergent)
        if not done:
            self.board.put(name, Row(name, None, COMPILING if warming else text))
            return
        with self._lock:
            pace = self._paces.setdefault((chain, warming), Pace())
            left = pace.left(done, total, time.perf_counter())
        self.board.put(name, Row(name, done / total, text, in_words(left)))

    def say(self, text: str) -> None:
        """Show a message in a row of its own."""
        self.board.put("", Row("", None, text), at_once=True)

    def close(self) -> None:
        """Remove the bars."""
        self.board.close()


def _words(done: int, total: int, warming: bool, divergent: int) -> str:
    phase = "warm-up" if warming else "draws"
    said = f", {divergent} divergent" if divergent else ""
    return f"{done:,}/{total:,} {phase}{said}"


def choose_chain_reporter(progress: bool | None) -> ChainReporter:
    """The reporter of chains for ``progress``, like ``core.progress.reporters.choose_reporter``."""
    if progress is False:
        return SilentChains()
    screen = choose_screen()
    if screen is not None:
        return ChainBars(screen)
    # A program without a console (for example pythonw) has no stderr.
    return (
        SilentChains() if sys.stderr is None else ChainLines(sys.stderr, unasked=progress is None)
    )
