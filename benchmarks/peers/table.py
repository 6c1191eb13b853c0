"""The tables of the measurements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks import problems, report
from benchmarks.peers.targets import NAMES
from benchmarks.peers.tools import TOOLS

HEADER = (
    "problem (log evidence)",
    "tool",
    "seeds",
    "rms error",
    "mean error",
    "sd over seeds",
    "stated error",
    "beyond 3 stated",
    "flagged",
    "imports s",
    "cold s",
    "cached s",
    "warm s",
    "s to 0.1 nats",
)
GOALS = (
    "problem",
    "rms error (goal 0.1)",
    "warm s",
    "fastest peer warm s",
    "fastest right peer warm s",
    "cold s (goal 8)",
    "fastest JAX peer cold s",
    "fastest NumPy peer cold s",
)
# A higher load before a measurement means that other work was running.
BUSY = 1.5
RIGHT = 0.3


class Summary:
    """The numbers of one tool on one problem; unknown numbers are NaN."""

    def __init__(self, record: dict[str, Any], exact: float) -> None:
        runs = record["runs"]
        self.record = record
        self.errors = np.array([run["log_evidence"] for run in runs]) - exact
        self.stated = np.array(
            [math.nan if run["std_error"] is None else run["std_error"] for run in runs]
        )
        self.rms = float(np.sqrt(np.mean(self.errors**2))) if runs else math.nan
        later = [run["seconds"] for run in runs[1:]]
        self.warm = float(np.median(later)) if later else math.nan
        self.cold = float(record.get("cold", math.nan))

    def cells(self) -> list[str]:
        """The row, without the problem and the tool."""
        record, runs = self.record, self.record["runs"]
        if not runs:
            why = f"over {record['over']:.0f} s" if record["over"] else record["failure"]
            return ["0", *[""] * 6, _number(record.get("imports"), 1), str(why), "", "", ""]
        cut = f", then over {record['over']:.0f} s" if record["over"] else ""
        cut += f", then {record['failure']}" if record["failure"] else ""
        states = np.isfinite(self.stated)
        beyond = int(np.sum(np.abs(self.errors[states]) > 3 * self.stated[states]))
        flagged = sum(bool(run["flags"]) for run in runs)
        tool_flags = any(run["flags"] is not None for run in runs)
        spread = self.errors.std(ddof=1) if len(runs) > 1 else math.nan
        return [
            f"{len(runs)}{cut}",
            _number(self.rms),
            f"{self.errors.mean():+.3f}",
            _number(spread),
            _number(np.median(self.stated[states]) if states.any() else math.nan) or "none",
            f"{beyond} of {states.sum()}" if states.any() else "",
            f"{flagged} of {len(runs)}" if tool_flags else "",
            _number(record.get("imports"), 1),
            _number(self.cold, 1),
            _number(record.get("cached"), 1),
            _number(self.warm),
            _number(self.warm * (self.rms / 0.1) ** 2),
        ]


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def _best(summaries: dict[str, Summary], field: str, names: list[str]) -> str:
    """The fastest of some tools: its time, name and error."""
    known = [name for name in names if math.isfinite(getattr(summaries[name], field))]
    if not known:
        return "none"
    name = min(known, key=lambda name: getattr(summaries[name], field))
    summary = summaries[name]
    return f"{getattr(summary, field):.2f} ({name}, rms error {summary.rms:.2f})"


def body(records: dict[str, Any]) -> str:
    """Everything below the title."""
    rows, goals = [], []
    for problem in NAMES:
        exact = problems.CATALOGUE[problem].build().log_evidence
        title = problems.CATALOGUE[problem].title
        found = {
            name: Summary(records[f"{problem}/{name}"], exact)
            for name in TOOLS
            if f"{problem}/{name}" in records
        }
        for place, (name, summary) in enumerate(found.items()):
            first = f"{title} ({exact:.4f})" if place == 0 else ""
            rows.append([first, TOOLS[name].title, *summary.cells()])
        if "ours" in found:
            goals.append([title, *_goals(found)])
    used = sorted({key.split("/")[1] for key in records}, key=list(TOOLS).index)
    packages = {}
    for key, record in records.items():
        first, *others = (f"{name} {version}" for name, version in record["versions"].items())
        packages[key.split("/")[1]] = first + (f" with {', '.join(others)}" if others else "")
    dates = sorted({record["date"] for record in records.values()})
    machines = sorted({record["machine"] for record in records.values()})
    busy = sorted(key for key, record in records.items() if record["load"] > BUSY)
    notes = [
        f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))} on {', '.join(machines)}, "
        "one core for each process, one process at a time. "
        + "; ".join(packages[name] for name in used)
        + ".",
        NOTES,
        "Settings: " + " ".join(f"{TOOLS[name].title}: {SETTINGS[name]}." for name in used),
    ]
    if busy:
        notes.append(
            f"The load was above {BUSY} before these, whose seconds are too long: "
            + ", ".join(busy)
            + "."
        )
    parts = [report.table(HEADER, rows), "\n\n".join(notes)]
    if goals:
        parts.append("## Goals\n\n" + report.table(GOALS, goals) + "\n\n" + GOAL_NOTES)
    return "\n\n".join(parts)


def _goals(found: dict[str, Summary]) -> list[str]:
    ours = found["ours"]
    peers = [name for name in found if not TOOLS[name].ours]
    right = [name for name in peers if found[name].rms <= max(RIGHT, ours.rms)]
    return [
        _number(ours.rms) or "none",
        _number(ours.warm),
        _best(found, "warm", peers),
        _best(found, "warm", right),
        _number(ours.cold, 1),
        _best(found, "cold", [name for name in peers if TOOLS[name].language == "jax"]),
        _best(found, "cold", [name for name in peers if TOOLS[name].language == "numpy"]),
    ]


NOTES = (
    "Errors are in nats; the stated error is the median over the seeds. Cold is a fresh process "
    "with no compiled code on disk, from its start to its first answer, imports included; cached "
    "is the same once more, for the tools that keep compiled code on disk by default, weighbridge "
    "and PyMC; for the others each process is cold. Warm is a later call in the same process with "
    "another seed, the median of them. The last column is warm times "
    "(rms error / 0.1)^2: what 0.1 nats would cost if more of the same shrank the error as "
    "1/sqrt(time); with three seeds it is good to a factor of two, and for a biased tool it is a "
    "lower bound. A run over the limit was stopped. pocoMC and nessai are left out: they need "
    "PyTorch, a download of gigabytes."
)
SETTINGS = {
    "ours": "`wb.evidence(model, data, wb.SMC(), tolerance=0.1)`",
    "ours_nested": "`wb.NestedSampling()` with its defaults",
    "ours_nested_rounds": "`wb.evidence(model, data, wb.NestedSampling(), tolerance=0.1)`",
    "particles": "`AdaptiveTempering(len_chain=100)`, N=200, as in its documentation; "
    "likelihood vectorised in NumPy",
    "blackjax": "`adaptive_tempered_smc` with 2,000 particles and ten random-walk moves, tuned "
    "from the particles, double precision",
    "blackjax_nested": "`nss` with 500 live points, 50 replaced at once, max(5, 2 d) slice steps, "
    "double precision",
    "pymc": "`sample_smc()` with its defaults (2,000 draws, two chains)",
    "dynesty": "`NestedSampler` with its defaults; it takes one point at a time",
    "ultranest": "`ReactiveNestedSampler(vectorized=True)` with its defaults; from 20 dimensions "
    "with the slice step sampler, 2 d steps",
    "nautilus": "its defaults, likelihood vectorised in NumPy; it refuses one parameter",
    "jaxns": "the defaults of its quick start",
}
GOAL_NOTES = (
    "Right means an rms error of at most 0.3 nats, or that of weighbridge where it is larger; the "
    "column before it has the fastest peer whatever its error."
)
