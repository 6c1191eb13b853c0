"""The first minute of a new user: seconds until something is on the screen, and until the answer.

``python -m benchmarks.speed.first_minute`` writes results/first_minute.md. Each try is a fresh
process on 100 rows, with an empty compilation cache ("cold") and then once more with what that one
has left there ("cached"). What other work the machine had stands beside it.
"""

from __future__ import annotations

import argparse
import os
import pty
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import report

# Texts that the process prints before the call, and with the answer.
CALLING, ANSWERED = "calling", "log evidence"
PROGRAM = """
import numpy as np, numpyro.distributions as dist
import weighbridge as wb
rng = np.random.default_rng(0)
x = rng.normal(size=(100, 2))
y = x @ [1.0, -1.0] + rng.normal(size=100)
model = wb.Model(
    prior={"w": dist.Normal(0, 1).expand([2]).to_event(1), "b": dist.Normal(0, 1)},
    log_likelihood=lambda p, row: dist.Normal(row["x"] @ p["w"] + p["b"], 1.0).log_prob(row["y"]),
)
print("calling", flush=True)
print(wb.evidence(model, {"x": x, "y": y}%s, seed=0), flush=True)
"""


class Way(NamedTuple):
    """How a user runs the program: on a terminal or not, and with which arguments."""

    terminal: bool
    arguments: str


WAYS = {
    "terminal": Way(True, ""),
    "terminal, SMC": Way(True, ', "smc"'),
    "pipe, progress=True": Way(False, ", progress=True"),
    "pipe": Way(False, ""),
}


class Seconds(NamedTuple):
    """Times of one process: of the import, from the call to the first output, to the answer."""

    importing: float
    first: float
    answer: float


def timed(way: Way, cache: Path) -> Seconds:
    """Run one process, and measure when its outputs appear."""
    begun = time.perf_counter()
    seen: list[tuple[float, str]] = []
    environment = os.environ | {"WEIGHBRIDGE_COMPILATION_CACHE": str(cache), "TERM": "xterm"}
    reading, writing = pty.openpty() if way.terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM % way.arguments],
        stdout=subprocess.PIPE, stderr=writing, env=environment,
    )  # fmt: skip
    os.close(writing)
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout.fileno(), selectors.EVENT_READ, "answers")
        selector.register(reading, selectors.EVENT_READ, "screen")
        while selector.get_map():
            for key, _ in selector.select():
                try:
                    found = os.read(key.fd, 4096)
                except OSError:  # the terminal's program has ended
                    found = b""
                if not found:
                    selector.unregister(key.fd)
                elif key.data == "screen":
                    seen.append((time.perf_counter() - begun, "screen"))
                else:
                    seen.append((time.perf_counter() - begun, found.decode()))
    os.close(reading)
    if process.wait():
        raise RuntimeError(f"The process ended with {process.returncode}.")
    return _seconds(seen)


def _seconds(seen: list[tuple[float, str]]) -> Seconds:
    """The times from the outputs and when they appeared; the answer is an output too.

    >>> _seconds([(2.0, "calling\\n"), (2.5, "screen"), (9.0, "log evidence -1 +- 0.1")])
    Seconds(importing=2.0, first=0.5, answer=7.0)
    """
    call = next(when for when, text in seen if CALLING in text)
    answer = next(when for when, text in seen if ANSWERED in text)
    first = next(when for when, text in seen if when > call and text.strip())
    return Seconds(call, first - call, answer - call)


def _median(tries: list[Seconds]) -> list[str]:
    return [f"{statistics.median(column):.1f}" for column in zip(*tries)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    before = os.getloadavg()[0]
    table = []
    for name, way in WAYS.items():
        found: dict[str, list[Seconds]] = {"cold": [], "cached": []}
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                for state, tries in found.items():
                    tries.append(timed(way, Path(folder)))
                    print(name, state, tries[-1], flush=True)
        table += [[name, state, *_median(tries)] for state, tries in found.items()]
    header = ("user", "compiled before", "import s", "first sign s", "answer s")
    body = report.table(header, table)
    body += (
        f"\n\nLinear regression of 100 rows and two features by `wb.evidence`, by default SGAIS. "
        f"Medians of {repeats} fresh processes; the last two columns count from the call. Load "
        f"of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after (one process by "
        "itself makes 1 to 2). Without a terminal, unless progress=True, only a run of more than "
        "10 s says something; else the answer is the first sign."
    )
    report.write("first_minute", "The first minute", body)


if __name__ == "__main__":
    main()
