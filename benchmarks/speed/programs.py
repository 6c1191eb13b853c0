"""The programs that a first answer compiles, for each method, in a fresh process.

``python -m benchmarks.speed.programs`` writes results/programs.md. Each method has a process of its
own with an empty compilation cache. ``python -m benchmarks.speed.programs smc`` lists the programs
of one method by name, in this process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks import report

ROWS = {"gaussian": 100, "linear": 1000}
# Name: the problem, and what is called first with the library, a model and data.
CASES: dict[str, tuple[str, Callable[[Any, Any, Any], Any]]] = {
    "smc": ("gaussian", lambda wb, model, data: wb.evidence(model, data, "smc")),
    "sgais": ("gaussian", lambda wb, model, data: wb.evidence(model, data, "sgais")),
    "smc-linear": ("linear", lambda wb, model, data: wb.evidence(model, data, "smc")),
    "sgais-linear": ("linear", lambda wb, model, data: wb.evidence(model, data, "sgais")),
    "ibis": ("gaussian", lambda wb, model, data: wb.evidence(model, data, "ibis")),
    "thermodynamic": (
        "gaussian",
        lambda wb, model, data: wb.evidence(model, data, "thermodynamic"),
    ),
    "nested": ("gaussian", lambda wb, model, data: wb.evidence(model, data, "nested")),
    "nuts": ("gaussian", lambda wb, model, data: wb.sample(model, data, kernel=wb.NUTS())),
    "online": ("gaussian", lambda wb, model, data: _online(wb, model, data)),
}


def _online(wb: Any, model: Any, data: Any) -> Any:
    online = wb.Online(model)
    online.update(data)
    return online.result()


# What JAX reports about each program, and our names for it.
PARTS = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}


class Spent(NamedTuple):
    """What a first call has spent.

    Attributes:
        importing: seconds of the imports that the call adds to those of JAX and NumPyro.
        first: seconds of the first call, without imports.
        second: seconds of a second call.
        programs: for each program its name, and the seconds to trace, lower and compile it.
    """

    importing: float
    first: float
    second: float
    programs: list[tuple[str, dict[str, float]]]


def measure(case: str) -> Spent:
    """Make the first call of this process, and a second one."""
    import jax
    import numpyro.distributions  # noqa: F401  (a user's model has imported it)

    parts: dict[str, dict[str, float]] = {}
    order: list[str] = []

    def listen(name: str, seconds: float, **details: Any) -> None:
        if name in PARTS:
            program = str(details.get("fun_name")).removeprefix("jit(").removesuffix(")")
            if PARTS[name] == "lower":
                order.append(program)
            spent = parts.setdefault(program, dict.fromkeys(PARTS.values(), 0.0))
            spent[PARTS[name]] += seconds

    began = time.perf_counter()
    import weighbridge as wb

    problem, call = CASES[case]
    zoo = getattr(wb.zoo, problem)
    _ = wb.evidence, wb.sample, wb.Online  # names are loaded when they are first used
    importing = time.perf_counter() - began
    jax.monitoring.register_event_duration_secs_listener(listen)
    seconds = []
    for seed in (1, 2):
        model, data = zoo.model(), zoo.simulate(ROWS[problem], seed=seed)
        began = time.perf_counter()
        call(wb, model, data)
        seconds.append(time.perf_counter() - began)
        if seed == 1:
            # Programs of one name are summed; a function without a program is traced inside others.
            found = [(name, parts[name]) for name in dict.fromkeys(order)]
            names = [(name, spent | {"count": order.count(name)}) for name, spent in found]
    return Spent(importing, seconds[0], seconds[1], names)


def in_a_process(case: str) -> Spent:
    """The same in a fresh process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run(
            [sys.executable, "-m", "benchmarks.speed.programs", case, "--json"],
            env=os.environ | {"WEIGHBRIDGE_COMPILATION_CACHE": folder},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    return Spent(*json.loads(found.stdout))


def line(spent: Spent) -> list[str]:
    """The numbers of a first call, as the cells of a table.

    >>> parts = {"trace": 0.5, "lower": 0.25, "compile": 1.0, "count": 2}
    >>> line(Spent(0.25, 2.0, 0.125, [("step", parts)]))
    ['2', '0.25', '0.50', '0.25', '1.00', '2.00', '0.12']
    """
    programs = [parts for _, parts in spent.programs]
    sums = [sum(parts[name] for parts in programs) for name in PARTS.values()]
    count = round(sum(parts["count"] for parts in programs))
    seconds = (spent.importing, *sums, spent.first, spent.second)
    return [str(count), *(f"{value:.2f}" for value in seconds)]


def main() -> None:
    if sys.argv[2:] == ["--json"]:
        print(json.dumps(measure(sys.argv[1])))
        return
    if len(sys.argv) == 2:
        spent = measure(sys.argv[1])
        for name, parts in spent.programs:
            times = ", ".join(f"{part} {parts[part]:.3f} s" for part in PARTS.values())
            print(f"{name:30} {round(parts['count'])} x  {times}")
        print(" | ".join(line(spent)))
        return
    before = os.getloadavg()[0]
    table = []
    for case, (problem, _) in CASES.items():
        spent = in_a_process(case)
        largest = max(spent.programs, key=lambda named: named[1]["compile"])
        table.append([case, problem, *line(spent), f"{largest[0]} {largest[1]['compile']:.2f} s"])
        print(" | ".join(table[-1]), flush=True)
    header = (
        "call", "problem", "programs", "import s", "trace s", "lower s", "compile s",
        "first call s", "second call s", "longest to compile",
    )  # fmt: skip
    body = report.table(header, table)
    body += (
        "\n\nOne fresh process with an empty cache for each line. Imports are those that the call "
        "adds to JAX and NumPyro; the second call is on other data. Gaussian mean with 100 rows, "
        f"linear regression with 1,000. Load of the machine: {before:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after (one process by itself makes 1 to 2)."
    )
    report.write("programs", "Programs of a first answer", body)


if __name__ == "__main__":
    main()
