"""The first answer of a fresh process, imports included: with an empty cache, a full one, and warm.

``python -m benchmarks.speed.cold_start`` writes results/cold_start.md. Each try is a fresh process
with an empty compilation cache ("cold"), and then one more with what the first has left there
("cached"), which answers a second time on other data of the same kind ("warm"). Tries of all
problems are interleaved, so that a change of the machine's load touches all of them alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import report

METHODS = ("smc", "sgais")
STATES = ("cold", "cached", "warm")
PROGRAM = """
import json, sys, time
import weighbridge as wb
room, rows, method, calls = getattr(wb.zoo, sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
for seed in range(1, int(calls) + 1):
    model, data = room.model(), room.simulate(rows, seed=seed)
    began, used = time.perf_counter(), time.process_time()
    wb.evidence(model, data, method, seed=seed, progress=False)
    call = time.perf_counter() - began, time.process_time() - used
    print(json.dumps({"call": call, "used": time.process_time()}), flush=True)
"""


class Case(NamedTuple):
    """A problem: a model of the zoo with its defaults, its rows, and the seconds to reach.

    Attributes:
        title: for the table.
        room: module of the zoo.
        rows: rows of the data.
        cold: goal with an empty cache.
        cached: goal with a full cache.
        above_warm: whether the goals count from the time of a warm call.
    """

    title: str
    room: str
    rows: int
    cold: float
    cached: float
    above_warm: bool


CASES = {
    "gaussian": Case("Gaussian mean, 100 rows", "gaussian", 100, 3.5, 2.0, False),
    "linear": Case("linear regression, 1,000 rows", "linear", 1_000, 4.5, 2.5, False),
    "softmax": Case("softmax, 44 parameters, 1,000 rows", "logistic", 1_000, 5.0, 2.5, True),
    "mixture": Case("mixture of five, 1,000 rows", "mixture", 1_000, 5.0, 2.5, True),
}


class Spent(NamedTuple):
    """Seconds by the clock, and of the processors."""

    clock: float
    processor: float


def timed(case: Case, method: str, cache: Path, calls: int) -> list[Spent]:
    """What a fresh process needs until its first answer, imports included; then for the next."""
    command = [sys.executable, "-c", PROGRAM, case.room, str(case.rows), method, str(calls)]
    environment = os.environ | {"WEIGHBRIDGE_COMPILATION_CACHE": str(cache)}
    began = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        answers = [(time.perf_counter() - began, json.loads(line)) for line in process.stdout]
    if process.returncode or len(answers) != calls:
        raise RuntimeError(f"{' '.join(command[3:])} ended with {process.returncode}.")
    clock, first = answers[0]
    return [Spent(clock, first["used"]), *(Spent(*answer["call"]) for _, answer in answers[1:])]


def measure(
    cases: list[str], methods: list[str], repeats: int
) -> dict[tuple[str, str], dict[str, list[Spent]]]:
    """All tries, by problem and method, and then by state."""
    found = {
        (name, method): {state: list[Spent]() for state in STATES}
        for name in cases
        for method in methods
    }
    for _ in range(repeats):
        for (name, method), tries in found.items():
            with tempfile.TemporaryDirectory() as folder:
                cold = timed(CASES[name], method, Path(folder), 1)
                again = timed(CASES[name], method, Path(folder), 2)
            for state, spent in zip(STATES, cold + again, strict=True):
                tries[state].append(spent)
            print(name, method, *(f"{spent.clock:.1f}" for spent in cold + again), flush=True)
    return found


def line(name: str, method: str, tries: dict[str, list[Spent]]) -> list[str]:
    """The cells of a problem and a method: medians beside the goals.

    >>> tries = {"cold": [Spent(3.0, 2.0)], "cached": [Spent(2.5, 2.0)], "warm": [Spent(0.5, 0.5)]}
    >>> line("softmax", "smc", tries)[2:]
    ['3.0', '5.5', '2.0', '2.5', '3.0', '2.0', '0.50', '0.50', 'both']
    >>> line("gaussian", "smc", tries)[-1]
    'cold'
    """
    case = CASES[name]
    middle = {
        state: Spent(*(statistics.median(column) for column in zip(*spent)))
        for state, spent in tries.items()
    }
    base = middle["warm"].clock if case.above_warm else 0.0
    goals = {"cold": base + case.cold, "cached": base + case.cached}
    met = [state for state, goal in goals.items() if middle[state].clock <= goal]
    cells = [case.title, method]
    for state, goal in goals.items():
        cells += [
            f"{middle[state].clock:.1f}",
            f"{goal:.1f}",
            f"{middle[state].processor:.1f}",
        ]
    cells += [f"{middle['warm'].clock:.2f}", f"{middle['warm'].processor:.2f}"]
    return [*cells, "both" if len(met) == 2 else (met or ["none"])[0]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.speed.cold_start", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes of each kind")
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    found = measure(options.only, options.methods, options.repeats)
    header = (
        "problem", "method", "cold s", "goal", "cold CPU s", "cached s", "goal", "cached CPU s",
        "warm s", "warm CPU s", "goals met",
    )  # fmt: skip
    body = report.table(header, [line(*key, tries) for key, tries in found.items()])
    body += (
        "\n\nThe first call of `wb.evidence` in a fresh process with default settings, from the "
        "start of the process to the answer, imports included: cold with an empty compilation "
        "cache, cached with a full one. Warm is a second call in the same process, on other data "
        "of the same kind. CPU s: seconds of the process on all cores. The goals of softmax and of "
        f"the mixture are the warm time and 5 or 2.5 s. Medians of {options.repeats} processes. "
        f"Load of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after (one process "
        "by itself makes 1 to 2); the goals are for a machine with no other load."
    )
    report.write("cold_start", "The first answer of a fresh process", body, options.output)


if __name__ == "__main__":
    main()
