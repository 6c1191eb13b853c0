"""Compile and run time of SMC with several settings of the compiler.

``python -m benchmarks.speed.compilation`` writes results/compilation.md;
``weighbridge.core.compilation`` has the
settings. Each measurement is a process of its own with nothing in its cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np

from benchmarks import report
from weighbridge.core import compilation

REPEATS = 3
PROBLEMS = {"gaussian": 100, "linear": 1000, "logistic": 300}
SETTINGS: dict[str, compilation.Options] = {
    "usual": {},
    "to run": compilation.QUICK_TO_RUN,
    "to compile": compilation.QUICK_TO_COMPILE,
}
COMPILED = "/jax/core/compile/backend_compile_duration"


def weigh(problem: str, settings: str) -> dict[str, float]:
    """Seconds of compilation, of the whole first run, and of a second run."""
    # The settings must be made before modules with compiled programs are imported.
    compilation.QUICK_TO_COMPILE = compilation.QUICK_TO_RUN = SETTINGS[settings]
    import weighbridge as wb

    seconds: list[float] = []

    def listen(name: str, duration: float, **details: Any) -> None:
        if name == COMPILED:
            seconds.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    zoo = getattr(wb.zoo, problem)
    model, data = zoo.model(), zoo.simulate(PROBLEMS[problem], seed=1)
    runs, answers = [], []
    for _ in range(2):
        began = time.perf_counter()
        answers.append(wb.evidence(model, data, wb.SMC(), seed=1).log_evidence)
        runs.append(time.perf_counter() - began)
    assert answers[0] == answers[1]
    return {"compile": sum(seconds), "first": runs[0], "second": runs[1], "answer": answers[0]}


def in_a_process(problem: str, settings: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.speed.compilation", problem, settings]
    environment = os.environ | {"WEIGHBRIDGE_COMPILATION_CACHE": "0"}
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return dict(json.loads(found.stdout))


def _listed(settings: str) -> str:
    return ", ".join(f"{name} = {value}" for name, value in SETTINGS[settings].items())


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(weigh(*sys.argv[1:])))
        return
    table = []
    for problem, num_rows in PROBLEMS.items():
        found: dict[str, list[dict[str, float]]] = {name: [] for name in SETTINGS}
        for _ in range(REPEATS):  # in turns, so that other work on the machine slows all of them
            for name in SETTINGS:
                found[name].append(in_a_process(problem, name))
        for name, runs in found.items():
            times = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
            table.append(
                [f"{problem}, {num_rows:,} rows", name]
                + [f"{times[key]:.2f}" for key in ("compile", "first", "second")]
                + [f"{times['answer']:.6f}"]
            )
            print(" | ".join(table[-1]), flush=True)
    header = ("model", "settings", "compile s", "first run s", "second run s", "log evidence")
    body = report.table(header, table)
    body += (
        f"\n\nMedians of {REPEATS} fresh processes, in turns; all programs of a process have the "
        f"same settings. To run: {_listed('to run')}. To compile: {_listed('to compile')}. "
        "weighbridge compiles chains, and the steps of SGAIS, of IBIS and of tempering on many "
        "rows, to run fast, and all else to compile fast."
    )
    report.write("compilation", "Settings of the compiler", body)


if __name__ == "__main__":
    main()
