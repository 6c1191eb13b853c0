"""Run methods on traps in processes of their own, with a limit of processor time for each run."""

from __future__ import annotations

import json
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peers.measure import Limits, OverrunError, ToolError, events
from benchmarks.traps.catalogue import trap

ROOT = Path(__file__).parents[2]
PEERS = ("dynesty", "ultranest", "blackjax")
# Methods that need rows.
BY_ROWS = ("sgais", "ibis", "published", "online_nested", "sequential_sgmcmc")
# A process that does nothing for so many times its limit, in seconds of the clock, is stopped.
PATIENCE = 20
# A peer is stopped after so many times its limit, in seconds of the clock.
BUSY = 3


class Settings(NamedTuple):
    """How to run.

    Attributes:
        limit: processor seconds of a run; of a peer, with its imports.
        tolerance: of ``wb.evidence``.
        core: the processor.
    """

    limit: float
    tolerance: float
    core: int


def known_trap(seed: int) -> dict[str, Any]:
    """What the tables need of a trap; the exact value is computed here."""
    problem = trap(seed)
    return {
        "kind": problem.kind,
        "title": problem.title,
        "dimension": problem.dimension,
        "rows": problem.rows,
        "log_evidence": problem.log_evidence,
        "blind": problem.blind,
    }


def ours(method: str, seeds: Sequence[int], settings: Settings) -> Iterator[dict[str, Any]]:
    """Records of a method of weighbridge, in the order of the seeds."""
    left = list(seeds)
    while left:
        command = [sys.executable, "-m", "benchmarks.traps.worker", method, *map(str, left)]
        command += ["--limit", str(settings.limit), "--tolerance", str(settings.tolerance)]
        command += ["--core", str(settings.core)]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, bufsize=0
            )
            assert process.stdout is not None
            current = left[0]
            try:
                with selectors.DefaultSelector() as ready:
                    ready.register(process.stdout, selectors.EVENT_READ)
                    while ready.select(PATIENCE * settings.limit):
                        line = process.stdout.readline()
                        if not line:
                            break
                        event = json.loads(line)
                        if "began" in event:
                            current = event["began"]
                            continue
                        left.remove(event["seed"])
                        yield event
            finally:
                if not _ended(process):
                    process.kill()
                process.wait()
                process.stdout.close()
            if left:
                stopped = process.returncode in (-signal.SIGPROF, -signal.SIGKILL)
                errors.seek(0)
                lines = errors.read().decode(errors="replace").strip().splitlines()
                left.remove(current)
                yield {
                    "seed": current,
                    "failure": f"over {settings.limit:g} s"
                    if stopped
                    else (lines[-1] if lines else f"exit code {process.returncode}"),
                }


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process that has closed its output ends by itself soon."""
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return False
    return True


def peer(tool: str, seeds: Sequence[int], settings: Settings) -> Iterator[dict[str, Any]]:
    """Records of another tool, one process for each trap."""
    # On a busy machine the clock goes faster than the processor's.
    limits = Limits(BUSY * settings.limit, math.inf, settings.core)
    for seed in seeds:
        record: dict[str, Any] = {"seed": seed, "failure": f"over {settings.limit:g} s"}
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "none.npz"
            np.savez(data)
            try:
                stream = events(tool, f"trap-{seed}", data, 1, Path(folder), limits)
                with closing(stream):
                    for _, event in stream:
                        if "seed" not in event or event["cpu_seconds"] > settings.limit:
                            continue
                        record = {
                            "seed": seed,
                            "log_evidence": event["log_evidence"],
                            "std_error": event["std_error"],
                            "states_none": event["std_error"] is None,
                            "flags": list(event["flags"] or ()),
                            "seconds": event["cpu_seconds"],
                            "calls": event["calls"],
                        }
            except OverrunError:
                pass
            except ToolError as failure:
                record["failure"] = str(failure)
        yield record


def applies(method: str, known: dict[str, Any]) -> bool:
    """Whether a method can weigh a trap at all."""
    return known["rows"] or method not in BY_ROWS


def run(method: str, seeds: Sequence[int], settings: Settings) -> Iterator[dict[str, Any]]:
    """Records of a method or a tool."""
    source = peer if method in PEERS else ours
    for record in source(method, seeds, settings):
        yield record | {"method": method}


def cores() -> list[int]:
    """The processors that may be used, the last one first."""
    return sorted(os.sched_getaffinity(0), reverse=True)
