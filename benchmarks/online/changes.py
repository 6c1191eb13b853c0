"""Change points: false alarms against the stated rate, power, the shift demo, annotated series.

``python -m benchmarks.online.changes`` writes results/changes.json and results/changes.md.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from scipy import stats

import weighbridge as wb
from benchmarks import report
from benchmarks.online import turing
from weighbridge.cli import demo

SMALL = wb.SGAIS(num_islands=4, num_particles=16, chunk_size=25)
NUM_STREAMS, STREAM_ROWS, CHUNK = 200, 1000, 25
RATES = (0.01, 0.001)
POWER_STREAMS, ROWS_BEFORE, ROWS_AFTER = 20, 500, 1000
SHIFTS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "mean + 0.25": lambda numbers, n: numbers.normal(2.25, 1, n),
    "mean + 0.5": lambda numbers, n: numbers.normal(2.5, 1, n),
    "mean + 1": lambda numbers, n: numbers.normal(3.0, 1, n),
    "noise x 1.5": lambda numbers, n: numbers.normal(2.0, 1.5, n),
    "noise x 0.5": lambda numbers, n: numbers.normal(2.0, 0.5, n),
}
DEMO_ROWS = 2_500


def pieces(data: Any, size: int) -> Iterable[Any]:
    """Chunks of an array, or of a dict of arrays."""
    count = len(data["y"]) if isinstance(data, dict) else len(data)
    for start in range(0, count, size):
        part = slice(start, start + size)
        yield {k: v[part] for k, v in data.items()} if isinstance(data, dict) else data[part]


def false_alarms() -> dict[str, Any]:
    """Alarms on stationary streams; those at the smaller rate are among those at the larger."""
    gaussian, linear = wb.zoo.gaussian.model(), wb.zoo.linear.model()
    changes = wb.Changes(false_alarm_rate=max(RATES))
    problems = {
        "Gaussian": (gaussian, lambda seed: wb.zoo.gaussian.simulate(STREAM_ROWS, seed=seed)),
        "linear regression": (linear, lambda seed: wb.zoo.linear.simulate(STREAM_ROWS, seed=seed)),
    }
    found: dict[str, Any] = {}
    for name, (model, simulate) in problems.items():
        tests, p_values = 0, []
        armed = max(changes.min_rows, 10 * model.dimension)
        for seed in range(NUM_STREAMS // len(problems)):
            online = wb.Online(model, SMALL, seed=seed, changes=changes)
            last = 0  # the first row of the reference
            for number, chunk in enumerate(pieces(simulate(seed), CHUNK)):
                tests += number * CHUNK - last >= armed
                for change in online.update(chunk).changes:
                    p_values.append(change.p_value)
                    last = change.row
        alarms = {str(rate): int(np.sum(np.array(p_values) <= rate)) for rate in RATES}
        found[name] = {"streams": NUM_STREAMS // len(problems), "tests": tests, "alarms": alarms}
    return found


def power() -> dict[str, Any]:
    """Rows from a change to its alarm, by the kind of change."""
    model, found = wb.zoo.gaussian.model(), {}
    for name, draw in SHIFTS.items():
        delays, misplaced, early = [], [], 0
        for seed in range(POWER_STREAMS):
            numbers = np.random.default_rng([7, seed])
            before = numbers.normal(2.0, 1.0, ROWS_BEFORE)
            data = np.concatenate([before, draw(numbers, ROWS_AFTER)])
            online = wb.Online(model, SMALL, seed=seed, changes=wb.Changes())
            delay = None
            for chunk in pieces(data, CHUNK):
                for change in online.update(chunk).changes:
                    if change.chunk_end <= ROWS_BEFORE:
                        early += 1
                    elif delay is None:
                        delay = change.chunk_end - ROWS_BEFORE
                        misplaced.append(abs(change.row - ROWS_BEFORE))
                if delay is not None:
                    break
            if delay is not None:
                delays.append(delay)
        found[name] = {
            "streams": POWER_STREAMS,
            "found": len(delays),
            "median_delay": statistics.median(delays) if delays else None,
            "median_misplaced": statistics.median(misplaced) if misplaced else None,
            "early": early,
        }
    return found


def shift_demo(seed: int = 0) -> dict[str, list[int]]:
    """Changes in the stream of the demonstration, and in the same rows shuffled."""
    stream = demo.simulate(DEMO_ROWS, seed)
    shuffled = np.random.default_rng(seed).permutation(stream)
    models = {f"mixture:{k}": wb.zoo.mixture.model(k) for k in demo.COMPONENTS}
    found = {}
    for name, rows in (("as it is", stream), ("shuffled", shuffled)):
        online = wb.OnlineComparison(models, demo.METHOD, seed, changes=demo.CHANGES)
        for chunk in demo.chunks(rows):
            online.update(chunk)
        found[name] = [change.row for change in online.changes]
    return found


def alarm_table(found: dict[str, Any]) -> str:
    rows = []
    for name, entry in found.items():
        for rate in RATES:
            count, tests = entry["alarms"][str(rate)], entry["tests"]
            interval = stats.binomtest(count, tests).proportion_ci(0.95, "exact")
            rows.append(
                [
                    name,
                    str(entry["streams"]),
                    f"{tests:,}",
                    f"{rate}",
                    str(count),
                    f"{count / tests:.4f}",
                    f"{interval.low:.4f} to {interval.high:.4f}",
                ]
            )
    header = ("model", "streams", "chunks tested", "stated rate", "alarms", "rate", "95 % interval")
    return report.table(header, rows)


def power_table(found: dict[str, Any]) -> str:
    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:g}"

    rows = [
        [
            name,
            f"{entry['found']} of {entry['streams']}",
            cell(entry["median_delay"]),
            cell(entry["median_misplaced"]),
            str(entry["early"]),
        ]
        for name, entry in found.items()
    ]
    header = ("change", "found", "rows until the alarm", "rows misplaced", "false alarms before")
    return report.table(header, rows)


def body(found: dict[str, Any]) -> str:
    """The tables, with descriptions of the measurements."""
    sections: Sequence[str] = (
        "## False alarms on stationary streams\n\n"
        f"{STREAM_ROWS:,} rows a stream in chunks of {CHUNK}, SGAIS with 4 islands of 16 "
        'particles, the policy "keep". Only chunks that have enough rows before them are '
        "tested.\n\n" + alarm_table(found["false alarms"]),
        "## Power\n\n"
        f"{ROWS_BEFORE} rows of N(2, 1), then {ROWS_AFTER:,} of another distribution; the model "
        "knows the noise and not the mean; chunks of 25 rows, false-alarm rate 0.001. The delay is "
        "to the end of the chunk that raised the alarm.\n\n" + power_table(found["power"]),
        "## The shift demonstration\n\n"
        f"Mixtures of 2, 3 and 5 Gaussians on {DEMO_ROWS:,} rows that change at "
        f"{demo.CHANGE_POINTS}, in chunks that grow: changes at "
        f"{found['demo']['as it is']}; in the same rows, shuffled, at {found['demo']['shuffled']}.",
        turing.section(found["turing"]),
        f"{found['seconds']:.0f} s in all.",
    )
    return "\n\n".join(sections)


def main() -> None:
    began = time.perf_counter()
    found: dict[str, Any] = {}
    for name, measure in (
        ("turing", turing.measure),
        ("power", power),
        ("demo", shift_demo),
        ("false alarms", false_alarms),
    ):
        found[name] = measure()
        print(name, found[name], f"{time.perf_counter() - began:.0f} s", flush=True)
    found["seconds"] = time.perf_counter() - began
    report.save("changes", found)
    report.write("changes", "Change points", body(found))


if __name__ == "__main__":
    main()
