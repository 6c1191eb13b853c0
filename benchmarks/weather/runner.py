"""Sends attacks to a process, and kills it when one of them hangs."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.weather.verdict import Came, Kind

# Seconds to load the library, on a machine that has much else to do.
LOADING = 300.0
# On such a machine time is what a process had of the processor, up to so many times as long.
STRETCHED = 5.0


class Record(NamedTuple):
    """One attack that was made."""

    kind: str
    seed: int
    came: Came
    detail: str
    seconds: float
    mebibytes: float


class Runner:
    """A process that makes attacks; another one takes its place when it was killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, kind: Kind, seed: int) -> Record:
        """Make one attack, in bounded time."""
        if kind.fresh:
            self.close()
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps({"kind": kind.key, "seed": seed}).encode() + b"\n")
        process.stdin.flush()
        began = time.perf_counter()
        line = self._line(kind.seconds)
        taken = time.perf_counter() - began
        if line is None:
            self.close()
            detail = f"killed after {taken:.0f} seconds"
            return Record(kind.key, seed, Came.HANG, detail, taken, float("nan"))
        if not line:
            code = process.wait()
            self.close()
            return Record(kind.key, seed, Came.DIED, f"exit code {code}", taken, float("nan"))
        told: dict[str, Any] = json.loads(line)
        return Record(
            kind.key, seed, Came[told["came"]], told["detail"], told["seconds"], told["mebibytes"]
        )

    def close(self) -> None:
        """End the process, and those that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.weather.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            if self._line(LOADING) != b"ready\n":
                self.close()
                raise RuntimeError("the process that makes attacks does not start")
        return self._process

    def _line(self, seconds: float) -> bytes | None:
        """What the process answers; empty if it is gone, None if it does not answer in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        began, worked = time.monotonic(), _processor_seconds(self._process.pid)
        wait = seconds
        while wait > 0:
            ready, _, _ = select.select([self._process.stdout], [], [], wait)
            if ready:
                return self._process.stdout.readline()
            left = seconds - (_processor_seconds(self._process.pid) - worked)
            wait = min(left, STRETCHED * seconds - (time.monotonic() - began))
        return None


def _processor_seconds(pid: int) -> float:
    """What a process and those that it waited for had of the processor; else the clock's time."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def run_all(kinds: Sequence[Kind], scale: float = 1.0, workers: int = 1) -> Iterator[Record]:
    """All attacks of these kinds; with a scale below 1 fewer of each, but at least one.

    Args:
        kinds: what to try.
        scale: of the number of attacks.
        workers: kinds that are tried at a time, each in a process of its own.
    """
    with ThreadPoolExecutor(workers) as pool:
        for records in pool.map(lambda kind: _run_kind(kind, scale), kinds):
            yield from records


def _run_kind(kind: Kind, scale: float) -> list[Record]:
    runner = Runner()
    try:
        return [runner.run(kind, seed) for seed in range(max(1, round(scale * kind.times)))]
    finally:
        runner.close()
