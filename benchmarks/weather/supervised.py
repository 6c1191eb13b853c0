"""A watch that is started again whenever it has ended, as a service manager does."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.weather.week_worker import TYPED

# System calls within the writing of the first checkpoints of a process, about.
CALLS = 60
# Seconds without progress after which a watch is taken to hang.
PATIENCE = 300.0


class Supervised:
    """The process of one watch.

    Args:
        source: what it watches.
        directory: its run directory.
        words: the file that its standard error is appended to.
        luck: for the system call that it kills itself before.
    """

    def __init__(self, source: str, directory: Path, words: Path, luck: random.Random) -> None:
        self.source, self.directory, self.words, self.luck = source, directory, words, luck
        self.counts: Counter[str] = Counter()
        self._process: subprocess.Popen[bytes] | None = None

    def tend(self) -> None:
        """Start it if it is not there; count how it ended."""
        process = self._process
        if process is not None and process.poll() is not None:
            self._count(process.returncode)
            self._process = None
        if self._process is None:
            self._start(0)

    def kill(self) -> None:
        """SIGKILL, at whatever it does now."""
        self.tend()
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.tend()

    def kill_within_checkpoint(self) -> None:
        """Another process, which is killed before a system call of a checkpoint that it writes."""
        self.kill_quietly()
        self._start(self.luck.randint(1, CALLS))

    def kill_quietly(self) -> None:
        """Gone, until it is tended again; counted as a kill if it was there."""
        if self._process is not None:
            self._process.kill()
            self._count(self._process.wait())
            self._process = None

    def stop(self) -> None:
        """Ask it to end, and wait for that."""
        self.tend()
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._count(self._process.wait(timeout=PATIENCE))
        self._process = None

    def finish(self) -> None:
        """Let it read what is there, to the end; it must succeed."""
        self._start(0, "still")
        assert self._process is not None
        code = self._process.wait(timeout=PATIENCE)
        self._process = None
        self._count(code)
        if code:
            raise RuntimeError(f"the last watch ended with {code}: {self.last_words()}")

    def saved_rows(self) -> int:
        """Rows of the newest checkpoint."""
        folder = self.directory / "checkpoints"
        names = os.listdir(folder) if folder.exists() else []
        found = [re.fullmatch(r"checkpoint-(\d+)-(\d+)\.safetensors", name) for name in names]
        return max(((int(m[1]), int(m[2])) for m in found if m), default=(0, 0))[1]

    def wait_until_saved(self, rows: int, meanwhile: Callable[[], None]) -> None:
        """Wait for a checkpoint of so many rows; the process is started again if it ends."""
        end = time.monotonic() + PATIENCE
        before = -1
        while (now := self.saved_rows()) != rows:
            if now > rows:
                raise RuntimeError(f"{now} rows are saved, and only {rows} should count")
            if now != before:
                before, end = now, time.monotonic() + PATIENCE
            if time.monotonic() > end:
                text = f"{now} of {rows} rows are saved, and no more come: {self.last_words()}"
                raise RuntimeError(text)
            self.tend()
            meanwhile()
            time.sleep(0.1)

    def last_words(self) -> str:
        """The end of what it said."""
        return self.words.read_text(errors="replace")[-2000:]

    def _start(self, call: int, *more: str) -> None:
        command = [sys.executable, "-m", "benchmarks.weather.week_worker"]
        command += [self.source, str(self.directory), str(call), *more]
        with open(self.words, "ab") as words:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=words)
        self.counts["started"] += 1

    def _count(self, code: int) -> None:
        names = {-signal.SIGKILL: "killed", TYPED: "ended by a typed error", 0: "ended by itself"}
        self.counts[names.get(code, f"FAULT: ended with {code}")] += 1
