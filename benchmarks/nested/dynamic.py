"""Does allocation help? The error of log Z and the effective posterior draws, at equal cost."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

import weighbridge as wb
from benchmarks import problems, report
from benchmarks.nested.problems import normal_in_box

NUM_LIVE = 400
# Fixed, so that a walk costs the same with and without a goal.
NUM_MOVES = {"10-D normal in a box": 50}
OTHERS = 25
GOALS = (None, "evidence", "posterior")
PROBLEMS: dict[str, Callable[[], problems.Problem]] = {
    "3-D normal in a box": lambda: normal_in_box(3),
    "10-D normal in a box": lambda: normal_in_box(10),
    "linear regression, 1,000 rows": problems.linear,
}
HEADER = (
    "problem",
    "goal",
    "seeds",
    "calls a run",
    "mean error",
    "its standard error",
    "mean stated",
    "sd of z",
    "effective draws",
    "flagged",
)


def effective_draws(result: wb.Evidence) -> float:
    """Effective sample size of the weighted points."""
    return float(1.0 / np.sum(np.exp(2.0 * result.log_weights)))


def measure(name: str, goal: str | None, num_seeds: int) -> list[str]:
    """One row of the table."""
    problem, num_moves = PROBLEMS[name](), NUM_MOVES.get(name, OTHERS)
    method = wb.NestedSampling(num_live=NUM_LIVE, num_moves=num_moves, goal=goal)
    results = [
        wb.evidence(problem.model, problem.data, method, seed=seed, progress=False)
        for seed in range(1, num_seeds + 1)
    ]
    errors = np.array([r.log_evidence - problem.log_evidence for r in results])
    stated = np.array([r.claimed_error for r in results])
    return [
        goal or "none",
        str(num_seeds),
        f"{np.mean([r.diagnostics['num_evaluations'] for r in results]):,.0f}",
        f"{errors.mean():.3f}",
        f"{errors.std(ddof=1) / np.sqrt(num_seeds):.3f}",
        f"{stated.mean():.4f}",
        f"{(errors / stated).std(ddof=1):.2f}",
        f"{np.mean([effective_draws(r) for r in results]):,.0f}",
        f"{100 * np.mean([bool(r.flags) for r in results]):.0f} %",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    options = parser.parse_args()
    for name in options.problems:
        for goal in GOALS:
            row = measure(name, goal, options.seeds)
            print(name, *row, sep=" | ", flush=True)
            known = report.load("nested_dynamic")
            known[f"{name}, {goal}"] = row
            report.save("nested_dynamic", known)  # results survive an interruption
            keys = [(n, f"{n}, {g}") for n in PROBLEMS for g in GOALS]
            write([[n, *known[key]] for n, key in keys if key in known])


def write(rows: list[list[str]]) -> None:
    """Write the table so far, and how to read it."""
    body = (
        report.table(HEADER, rows) + f"\n\nnum_live={NUM_LIVE}, num_moves={OTHERS} (50 in 10-D). "
        "z = (estimate - exact) / stated error. With n seeds its standard deviation has a "
        "standard error of 1/sqrt(2n). Rows may be of different runs of this command."
    )
    report.write("nested_dynamic", "Nested sampling: points allocated towards a goal", body)


if __name__ == "__main__":
    main()
