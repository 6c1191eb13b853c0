"""Tables of ``benchmarks.sgais.headline``, from what it measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.sgais.rows import ROWS, TITLES, Row

Record = dict[str, Any]
ANSWER_HEADER = (
    "problem",
    "rows",
    "seeds",
    "reference",
    "answer: rms error (worst)",
    "stated",
    "rms z",
    "path: rms error",
    "stated",
    "rms z",
    "flagged",
    "by the bridge",
    "Laplace's error",
    "first s",
    "warm s",
    "passes",
    "goals",
)
STREAM_HEADER = (
    *ANSWER_HEADER[: ANSWER_HEADER.index("Laplace's error")],
    "MB at rows",
    "ms an update early",
    "late",
    "s in all",
    "goals",
)
COMPARE_HEADER = (
    "problem",
    "method",
    "rows",
    "seeds",
    "log Z per row",
    "rms error (nats)",
    "stated",
    "path: rms error",
    "annealing steps",
    "first s",
    "warm s",
    "flags",
)
# Errors below this (nats) count as this one in the ratio of stated to real error.
NEGLIGIBLE = 1e-3
ABOUT = """Errors are in nats, over seeds, against the references below the table; rms is the root
of the mean square. Stated errors are medians. z = error / stated error (with the
reference's). First s is the first answer of a fresh process with compilation, warm s the median of
the later seeds; passes is warm s over the time of one pass over all rows, log-likelihood and
gradient at one point, measured in the same process. Fresh s, in the goals, is first s with the
imports. Between two orders of the data, the difference of the mean answers counts.""".replace(
    "\n", " "
)


def rms(values: Iterable[float]) -> float:
    """Root mean square; NaN if there are no values."""
    squares = [value**2 for value in values]
    return math.sqrt(sum(squares) / len(squares)) if squares else math.nan


def median(values: Iterable[float | None]) -> float:
    """The median of the known values; NaN if there are none."""
    found = [value for value in values if value is not None]
    return float(np.median(found)) if found else math.nan


def summarise(record: Record) -> dict[str, float]:
    """The numbers of a row, by the names that goals use; unknown numbers are NaN."""
    runs = record["runs"]
    reference = record.get("reference", {})
    value, error = reference.get("value", math.nan), reference.get("error", math.nan)
    answers = [run["answer"] - value for run in runs]
    paths = [run["path"] - value for run in runs]
    warm = median([run["seconds"] for run in runs[1:]])
    stated = median(run["stated"] for run in runs)
    found = {
        "answer": rms(answers),
        "worst": max(map(abs, answers), default=math.nan),
        "stated": stated,
        "stated / real": stated / max(rms(answers), NEGLIGIBLE),
        "path": rms(paths),
        "path stated": median(run["path_stated"] for run in runs),
        "z": rms(_standardised(runs, paths, "path_stated", error)),
        "answer z": rms(_standardised(runs, answers, "stated", error)),
        "flagged": float(np.mean([bool(run["flags"]) for run in runs])) if runs else math.nan,
        "bridge": float(np.mean([run["by"] == "bridge" for run in runs])) if runs else math.nan,
        "first": runs[0]["seconds"] if runs else math.nan,
        "warm": warm,
        "passes": warm / record.get("pass", math.nan),
        "fresh s": record.get("startup", math.nan) + (runs[0]["seconds"] if runs else math.nan),
    }
    laplace = reference.get("laplace")
    found["Laplace"] = math.nan if laplace is None else laplace - value
    found["|Laplace|"] = abs(found["Laplace"])
    if runs and "memory" in runs[0]:
        memory = [megabytes for _, megabytes in runs[0]["memory"]]
        later = runs[1:] or runs  # the first run compiles
        found["early"], found["late"] = (median(r[k] for r in later) for k in ("early", "late"))
        found |= {"memory": memory[-1] / memory[1], "update": found["late"] / found["early"]}
    return found


def _standardised(runs: list[Record], errors: list[float], key: str, error: float) -> list[float]:
    return [e / math.hypot(r[key], error) for r, e in zip(runs, errors) if r[key]]


def orders_apart(records: dict[str, Record]) -> float:
    """Difference of the mean answers in both orders, divided by the combined stated error."""
    both = [records.get(name, {}).get("runs", []) for name in ("seven-1e5", "seven-1e5-shuffled")]
    if not all(both):
        return math.nan
    means = [np.mean([run["answer"] for run in runs]) for runs in both]
    stated = [median(run["stated"] for run in runs) for runs in both]
    return float(abs(means[0] - means[1]) / math.hypot(*stated))


def goals(row: Row, found: dict[str, float]) -> str:
    """Each goal, the measured number, and whether the goal was met."""
    parts = []
    for goal in row.goals:
        measured = found.get(goal.what, math.nan)
        verdict = "met" if goal.is_met(measured) else "MISSED"
        verdict = "not known" if math.isnan(measured) else verdict
        parts.append(f"{goal}: {measured:.3g}, {verdict}")
    return "; ".join(parts)


def number(value: float, digits: int = 3) -> str:
    """A number for a table.

    >>> number(0.12345), number(12345.6), number(0.00002), number(math.nan)
    ('0.123', '12,346', '2e-05', '')
    """
    if math.isnan(value):
        return ""
    if 0 < abs(value) < 10**-digits:
        return f"{value:.0e}"
    return f"{value:.{digits}f}" if abs(value) < 1e4 else f"{value:,.0f}"


def _first_cells(row: Row, record: Record, found: dict[str, float]) -> list[str]:
    reference = record.get("reference", {})
    value, error = reference.get("value"), reference.get("error", 0.0)
    return [
        row.title,
        f"{record['rows']:,}",
        str(len(record["runs"])),
        "" if value is None else f"{value:,.3f}" + (f" +- {error:.3f}" if error else ""),
        "" if value is None else f"{number(found['answer'], 4)} ({number(found['worst'], 4)})",
        number(found["stated"], 4),
        number(found["answer z"], 2),
        number(found["path"]),
        number(found["path stated"]),
        number(found["z"], 2),
        f"{100 * found['flagged']:.0f} %",
        f"{100 * found['bridge']:.0f} %",
    ]


def answer_row(row: Row, record: Record, found: dict[str, float]) -> list[str]:
    """One line of the table of answers."""
    return [
        *_first_cells(row, record, found),
        number(found["Laplace"]),
        *(number(found[name], 1) for name in ("first", "warm")),
        number(found["passes"], 0),
        goals(row, found),
    ]


def stream_row(row: Row, record: Record, found: dict[str, float]) -> list[str]:
    """One line of the table of streams."""
    memory = record["runs"][0]["memory"]
    return [
        *_first_cells(row, record, found),
        ", ".join(f"{megabytes:.0f} at {rows:,}" for rows, megabytes in memory),
        *(number(1000 * found[name], 1) for name in ("early", "late")),
        number(found["warm"] if len(record["runs"]) > 1 else found["first"], 0),
        goals(row, found),
    ]


def compare_row(row: Row, record: Record, found: dict[str, float]) -> list[str]:
    """One line of table 2."""
    runs = record["runs"]
    head = [TITLES[row.problem], row.method_name, f"{record['rows']:,}", str(len(runs))]
    if not runs:
        return [*head, record.get("note", ""), *7 * [""]]
    flags = sorted({flag for run in runs for flag in run["flags"]})
    return [
        *head,
        f"{np.mean([run['answer'] for run in runs]) / record['rows']:.6f}",
        number(found["answer"]),
        number(found["stated"]) or "unknown",
        number(found["path"]),
        f"{median(run['steps'] for run in runs):,.0f}",
        number(found["first"], 1),
        number(found["warm"], 1),
        ", ".join(flags),
    ]


def in_short(row: Row, record: Record) -> str:
    """The results of a row in one line."""
    found = summarise(record)
    note = record.get("note", "")
    return (
        f"{len(record['runs'])} seeds, rms error {found['answer']:.4f}; {goals(row, found)} {note}"
    )


def _note(name: str, record: Record) -> str:
    reference = record.get("reference", {})
    parts = [reference.get("how", "no reference")]
    if "second" in reference:
        other = reference["second"]
        parts.append(f"beside it {other['how']}: {other['value']:,.3f} +- {other['error']:.3f}")
    if "check" in reference:
        check = reference["check"]
        parts.append(
            f"checked at {check['rows']:,} rows: it is {check['difference']:+.3f} "
            f"+- {check['error']:.3f} from {check['how']}"
        )
    if ROWS[name].kind == "answer" and record.get("pass"):
        parts.append(f"one pass {1000 * record['pass']:.1f} ms")
    if "note" in record:
        parts.append(record["note"])
    return f"- {name}: {'; '.join(parts)}."


def body(records: dict[str, Record]) -> str:
    """All tables."""
    parts = [ABOUT]
    kinds = (
        ("answer", "Answers", ANSWER_HEADER, answer_row),
        ("stream", "Streams, chunks of 500, reservoir of 20,000", STREAM_HEADER, stream_row),
        ("compare", "Beside others", COMPARE_HEADER, compare_row),
    )
    for kind, title, header, line in kinds:
        lines: list[list[str]] = []
        notes: list[str] = []
        for name, row in ROWS.items():
            record = records.get(name)
            if row.kind != kind or record is None:
                continue
            if record["runs"] or kind == "compare":
                found = summarise(record)
                if row.shuffled:
                    found["orders apart / combined error"] = orders_apart(records)
                lines.append(line(row, record, found))
            if kind != "compare":
                notes.append(_note(name, record))
        if lines or notes:
            parts += [f"## {title}", report.table(header, lines)]
        if notes:
            parts.append("\n".join(notes))
    return "\n\n".join(parts)
