"""``python -m benchmarks.nested.accuracy``: nested sampling against known evidences.

z = (estimate - exact) / stated error. Every run is kept in results/nested_accuracy.json, so the
command goes on where it stopped, and results of several machines can be merged (``--merge``).
Seed 1 of a problem also compiles its programs, so its seconds are left out of the mean.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import weighbridge as wb
from benchmarks import report
from benchmarks.nested.problems import BUILDERS
from benchmarks.nested.runs import Record, column, in_turn, merge_files, run_once

NAME = "nested_accuracy"
HEADER = (
    "problem",
    "seeds",
    "mean error",
    "median stated",
    "mean z",
    "sd of z",
    "within 3",
    "within 5",
    "right and flagged",
    "wrong, no flag",
    "calls a run",
    "moves a walk",
    "CPU s a run",
)
# Goals of the table.
WITHIN, FLAGGED = 0.99, 0.05


class Counted:
    """How often runs are right, and how often they say so."""

    def __init__(self, runs: list[Record]) -> None:
        self.z = column(runs, "error") / column(runs, "stated")
        flagged = np.array([bool(run["flags"]) for run in runs], bool)
        # A result that is not a number is wrong.
        within = np.abs(self.z) <= 3
        self.size = len(runs)
        self.right = int(within.sum())
        self.within_5 = int(np.sum(np.abs(self.z) <= 5))
        self.right_flagged = int(np.sum(within & flagged))
        self.wrong_unflagged = int(np.sum(~within & ~flagged))
        self.far_unflagged = int(np.sum(~(np.abs(self.z) <= 5) & ~flagged))

    def cells(self) -> list[str]:
        return [
            f"{self.right} of {self.size}",
            f"{self.within_5} of {self.size}",
            f"{self.right_flagged} of {self.right}",
            str(self.wrong_unflagged),
        ]


def row(name: str, runs: list[Record]) -> list[str]:
    """One row of the table."""
    counted, warm = Counted(runs), runs[1:] or runs
    return [
        name,
        str(len(runs)),
        f"{column(runs, 'error').mean():+.3f}",
        f"{np.median(column(runs, 'stated')):.3f}",
        f"{counted.z.mean():+.2f}",
        f"{counted.z.std():.2f}",
        *counted.cells(),
        f"{column(runs, 'calls').mean():,.0f}",
        f"{np.median(column(runs, 'moves')):.0f}",
        f"{column(warm, 'seconds').mean():.2f}",
    ]


def flagged_runs(known: dict[str, list[Record]]) -> str:
    """All runs beyond three stated errors, with their seeds and flags."""
    lines = []
    for name, runs in known.items():
        for run in runs:
            if not abs(run["error"]) <= 3 * run["stated"]:
                flags = ", ".join(run["flags"]) or "no flag"
                lines.append(
                    f"- {name}, seed {run['seed']}: {run['error']:+.3f}, stated "
                    f"{run['stated']:.3f} ({flags})"
                )
    return "\n".join(["Runs beyond three stated errors:", "", *lines]) if lines else ""


def body(known: dict[str, list[Record]], settings: str) -> str:
    """The table, its pooled row, and the goals."""
    ordered = {name: known[name] for name in BUILDERS if known.get(name)}
    pooled = [run for runs in ordered.values() for run in runs]
    counted = Counted(pooled)
    total = ["all", str(len(pooled)), "", "", f"{counted.z.mean():+.2f}", f"{counted.z.std():.2f}"]
    rows = [row(name, runs) for name, runs in ordered.items()]
    rows.append([*total, *counted.cells(), "", "", ""])
    share, flagged = counted.right / counted.size, counted.right_flagged / max(counted.right, 1)
    parts = [
        settings,
        report.table(HEADER, rows),
        f"Within 3 stated errors: {share:.1%} of all runs (goal: at least {WITHIN:.0%}). Right and "
        f"flagged: {flagged:.1%} (goal: at most {FLAGGED:.0%}). Beyond 5 without a flag: "
        f"{counted.far_unflagged} (goal: none).",
        "z = (estimate - exact) / stated error. With n seeds its mean has a standard error of "
        "1/sqrt(n) and its standard deviation one of 1/sqrt(2n). Errors are in nats. Right means "
        "within 3 stated errors. Seconds are CPU seconds of warm runs.",
        flagged_runs(ordered),
    ]
    return "\n\n".join(part for part in parts if part)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.nested.accuracy", description=__doc__)
    parser.add_argument("--seeds", type=int, default=40, help="most runs of a problem")
    parser.add_argument("--minutes", type=float, default=600.0, help="CPU minutes of all runs")
    parser.add_argument("--share", type=float, default=20.0, help="CPU minutes of one problem")
    parser.add_argument("--live", type=int, default=500, help="live points")
    parser.add_argument("--problems", nargs="+", choices=BUILDERS, default=list(BUILDERS))
    parser.add_argument(
        "--merge", nargs="+", type=Path, default=[], help="folders of other results"
    )
    parser.add_argument("--again", action="store_true", help="forget earlier runs of the problems")
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args(arguments)
    method = wb.NestedSampling(num_live=options.live)
    known = merge_files(NAME, options.merge, options.output)
    if options.again:
        known = {name: runs for name, runs in known.items() if name not in options.problems}
    for name, run in in_turn(
        options.problems,
        known,
        num_seeds=options.seeds,
        minutes=options.minutes,
        share=options.share,
        run=lambda name, seed: run_once(name, method, seed),
    ):
        z, flags = run["error"] / run["stated"], ", ".join(run["flags"])
        print(
            f"{name}: seed {run['seed']}, z {z:+.2f}, {run['seconds']:.1f} s, {flags}", flush=True
        )
        report.save(NAME, known, options.output)  # results survive an interruption
    report.save(NAME, known, options.output)
    settings = f"`wb.evidence(model, data, wb.NestedSampling(num_live={options.live}))`"
    title = "Nested sampling against known evidences"
    report.write(NAME, title, body(known, settings), options.output)


if __name__ == "__main__":
    main()
