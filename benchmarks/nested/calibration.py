"""``python -m benchmarks.nested.calibration``: are the stated error and the insertion test true?

Many short runs on five problems with exact evidences. The mean and the standard deviation of
z = (estimate - exact) / stated error tell whether the error is true. On good runs the p-values of
the insertion test must be uniform, and runs that are made bad on purpose, with walkers of a single
move, must be flagged. Every run is kept: the command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from scipy import stats

import weighbridge as wb
from benchmarks import report
from benchmarks.nested.problems import CALIBRATED
from benchmarks.nested.runs import Record, column, in_turn, merge_files, run_once

NAME = "nested_calibration"
# The two kinds of runs: their name, and the number of moves of a walk (None: tuned).
KINDS: dict[str, int | None] = {"default": None, "one move": 1}
HEADER = (
    "problem",
    "seeds",
    "mean error",
    "rms error",
    "median stated",
    "mean z",
    "its error",
    "sd of z",
    "its error",
    "flagged",
    "CPU s a run",
)
TEST_HEADER = (
    "problem",
    "seeds",
    "uniform: insertion",
    "below 0.05",
    "uniform: rolling",
    "below 0.05",
    "uniform: spread of runs",
)
BAD_HEADER = ("problem", "seeds", "mean error", "sd of z", "flagged", "flags")


def key(problem: str, kind: str) -> str:
    return f"{problem} | {kind}"


def calibrated(problem: str, runs: list[Record]) -> list[str]:
    """Means and standard deviations of the errors and of z."""
    errors, stated = column(runs, "error"), column(runs, "stated")
    z, count = errors / stated, len(runs)
    warm = runs[1:] or runs
    return [
        problem,
        str(count),
        f"{errors.mean():+.4f}",
        f"{math.sqrt(np.mean(errors**2)):.4f}",
        f"{np.median(stated):.4f}",
        f"{z.mean():+.2f}",
        f"{1 / math.sqrt(count):.2f}",
        f"{z.std():.2f}",
        f"{1 / math.sqrt(2 * count):.2f}",
        f"{np.mean([bool(run['flags']) for run in runs]):.0%}",
        f"{column(warm, 'seconds').mean():.2f}",
    ]


def uniform(problem: str, runs: list[Record]) -> list[str]:
    """P-values of Kolmogorov-Smirnov tests of the runs' p-values."""
    cells = [problem, str(len(runs))]
    for name in ("insertion", "rolling", "spread"):
        values = column(runs, name)
        values = values[np.isfinite(values)]
        cells.append(f"{stats.kstest(values, 'uniform').pvalue:.3g}" if len(values) else "none")
        if name != "spread":
            cells.append(f"{np.mean(values < 0.05):.1%}" if len(values) else "none")
    return cells


def bad(problem: str, runs: list[Record]) -> list[str]:
    """How often runs with one move are flagged, and by what."""
    errors, stated = column(runs, "error"), column(runs, "stated")
    names = sorted({name for run in runs for name in run["flags"]})
    shares = [f"{name} {np.mean([name in run['flags'] for run in runs]):.0%}" for name in names]
    return [
        problem,
        str(len(runs)),
        f"{errors.mean():+.3f}",
        f"{np.std(errors / stated):.2f}",
        f"{np.mean([bool(run['flags']) for run in runs]):.0%}",
        ", ".join(shares),
    ]


def body(known: dict[str, list[Record]]) -> str:
    """The three tables."""
    good = [(name, known.get(key(name, "default"), [])) for name in CALIBRATED]
    good = [(name, runs) for name, runs in good if runs]
    poor = [(name, known.get(key(name, "one move"), [])) for name in CALIBRATED]
    poor = [(name, runs) for name, runs in poor if runs]
    pooled = [run for _, runs in poor for run in runs]
    parts = [
        "## The stated error",
        report.table(HEADER, [calibrated(name, runs) for name, runs in good]),
        "Goal: a standard deviation of z in [0.8, 1.3] and a mean of zero, as far as the seeds "
        "can tell (the columns beside them).",
        "## The insertion test on good runs",
        report.table(TEST_HEADER, [uniform(name, runs) for name, runs in good]),
        "Uniform: the p-value of a Kolmogorov-Smirnov test of the runs' own p-values, with which "
        "each diagnostic claims that its runs are good. A small number means that they are not "
        "uniform. The rolling test is not uniform but should not reject more often than it says.",
        "## Runs that are bad on purpose (`num_moves=1`)",
        report.table(BAD_HEADER, [bad(name, runs) for name, runs in poor]),
    ]
    if pooled:
        share = np.mean([bool(run["flags"]) for run in pooled])
        parts.append(f"Flagged: {share:.0%} of all {len(pooled)} (goal: 95 %).")
    return "\n\n".join(parts)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.nested.calibration", description=__doc__)
    parser.add_argument("--seeds", type=int, default=400, help="most runs of a problem")
    parser.add_argument("--minutes", type=float, default=240.0, help="CPU minutes of all runs")
    parser.add_argument("--share", type=float, default=30.0, help="CPU minutes of one problem")
    parser.add_argument("--live", type=int, default=500, help="live points")
    parser.add_argument("--problems", nargs="+", choices=CALIBRATED, default=CALIBRATED)
    parser.add_argument(
        "--merge", nargs="+", type=Path, default=[], help="folders of other results"
    )
    parser.add_argument("--again", action="store_true", help="forget earlier runs of the problems")
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args(arguments)
    keys = {key(name, kind): (name, kind) for name in options.problems for kind in KINDS}
    known = merge_files(NAME, options.merge, options.output)
    if options.again:
        known = {name: runs for name, runs in known.items() if name not in keys}

    def run(name: str, seed: int) -> Record:
        problem, kind = keys[name]
        method = wb.NestedSampling(num_live=options.live, num_moves=KINDS[kind])
        return run_once(problem, method, seed)

    limits = {"num_seeds": options.seeds, "minutes": options.minutes, "share": options.share}
    for name, found in in_turn(keys, known, run=run, **limits):
        print(f"{name}: seed {found['seed']}, {found['seconds']:.1f} s", flush=True)
        report.save(NAME, known, options.output)  # results survive an interruption
    report.save(NAME, known, options.output)
    report.write(NAME, "Calibration of nested sampling", body(known), options.output)


if __name__ == "__main__":
    main()
