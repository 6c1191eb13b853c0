"""One measurement: a tool on a problem in its own processes, on one core, with a time limit."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.tools import TOOLS, Tool

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv-peers"


class Limits(NamedTuple):
    """Limits of a measurement.

    Attributes:
        run: seconds for one run, imports and compilation included.
        budget: seconds after which no further seed is started.
        core: the processor to run on.
    """

    run: float
    budget: float
    core: int


def interpreter(tool: Tool) -> Path:
    """The Python interpreter of the tool's environment."""
    if not tool.environment:
        return Path(sys.executable)
    return ENVIRONMENTS / tool.environment / "bin" / "python"


def variables(cache: Path) -> dict[str, str]:
    """Environment of a process: one thread, and every cache of compiled code in one folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "XLA_", "PYTENSOR", "NUMBA", "WEIGHBRIDGE"))
    }
    one = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")
    return kept | {
        **{f"{name}_NUM_THREADS": "1" for name in one},
        "JAX_PLATFORMS": "cpu",
        "WEIGHBRIDGE_COMPILATION_CACHE": str(cache / "weighbridge"),
        "PYTENSOR_FLAGS": f"base_compiledir={cache / 'pytensor'}",
        "NUMBA_CACHE_DIR": str(cache / "numba"),
    }


class OverrunError(Exception):
    """A run exceeded its time limit."""


class ToolError(Exception):
    """A process ended with an error; the text is its last line."""


def events(
    name: str,
    problem: str,
    data: Path,
    seeds: int,
    cache: Path,
    limits: Limits,
    effort: float | None = None,
) -> Generator[tuple[float, dict[str, Any]], None, None]:
    """The events of a worker, each with the seconds since its start; closing ends the worker.

    The effort of a nested sampler is a factor of its number of live points.
    """
    command = [str(interpreter(TOOLS[name])), "-m", "benchmarks.peers.worker"]
    command += [name, problem, str(data), "--seeds", str(seeds), "--core", str(limits.core)]
    command += [] if effort is None else ["--effort", repr(effort)]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=variables(cache),
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            with selectors.DefaultSelector() as ready:
                ready.register(process.stdout, selectors.EVENT_READ)
                run_began = began
                while True:
                    if not ready.select(max(run_began + limits.run - time.perf_counter(), 0)):
                        raise OverrunError
                    line = process.stdout.readline()
                    now = time.perf_counter()
                    if not line:
                        break
                    event = json.loads(line)
                    if "seed" in event:
                        run_began = now
                    yield now - began, event
            if process.wait():
                errors.seek(0)
                lines = errors.read().decode(errors="replace").strip().splitlines()
                raise ToolError(lines[-1] if lines else f"exit code {process.returncode}")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def measure(name: str, problem: str, data: Path, seeds: int, limits: Limits) -> dict[str, Any]:
    """A record of one tool on one problem: its answers, and its cold, cached and warm seconds."""
    record: dict[str, Any] = {"runs": [], "over": None, "failure": None}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        try:
            with closing(events(name, problem, data, seeds, cache, limits)) as stream:
                for elapsed, event in stream:
                    if "imported" in event:
                        record["imports"] = elapsed
                        continue
                    record["runs"].append(event)
                    record.setdefault("cold", elapsed)
                    if elapsed > limits.budget:
                        break
            if TOOLS[name].keeps_compiled and record["runs"]:
                for elapsed, _ in events(name, problem, data, 1, cache, limits):
                    record["cached"] = elapsed
        except OverrunError:
            record["over"] = limits.run
        except ToolError as failure:
            record["failure"] = str(failure)
    return record


def warm_up(name: str, limits: Limits) -> str | None:
    """Import a tool once, to load its files into memory; returns the error, or None."""
    if not interpreter(TOOLS[name]).exists():
        return f"{interpreter(TOOLS[name])} does not exist: make .venv-peers/.installed installs it"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(interpreter(TOOLS[name])), "-c", f"import benchmarks.peers.{name}"],
            cwd=ROOT,
            env=variables(Path(folder)),
            capture_output=True,
            text=True,
        )
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


def versions(name: str) -> dict[str, str]:
    """Versions of the packages of a tool, in its own environment."""
    code = "import importlib.metadata as m, json, sys; print(json.dumps("
    code += "{name: m.version(name) for name in sys.argv[1:]}))"
    command = [str(interpreter(TOOLS[name])), "-c", code, *TOOLS[name].packages]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))
