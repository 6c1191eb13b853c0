"""How many moves does a walk of nested sampling need? Bias and error as their number goes down.

``python -m benchmarks.nested.moves`` writes results/nested_moves.md. The floor and the aim in
``weighbridge/estimators/nested/tuning.py`` and the least number of moves that is not flagged come
from it.
"""

from __future__ import annotations

import argparse

import numpy as np

import weighbridge as wb
from benchmarks import problems, report
from benchmarks.nested.problems import BUILDERS

# Numbers of moves for each coordinate; None: tuned.
MOVES_FOR_EACH = (0.5, 1.0, 2.0, 4.0, None)
CHOSEN = (
    "Gaussian-Gaussian, 100 rows",
    "3-D normal in a box",
    "10-D normal in a box",
    "shells, 2-D",
    "eggbox",
    "Rosenbrock, 2-D",
    "LogGamma, 10-D",
    "linear regression, 1,000 rows",
)
HEADER = (
    "problem",
    "moves",
    "seeds",
    "mean error",
    "its error",
    "mean z",
    "sd of z",
    "memory",
    "p < 0.01",
    "flagged",
    "calls a run",
    "calls x variance",
)


def measure(problem: problems.Problem, num_moves: int | None, num_seeds: int) -> list[str]:
    """One row: runs of one number of moves."""
    method = wb.NestedSampling(num_moves=num_moves)
    results = [
        wb.evidence(problem.model, problem.data, method, seed=seed, progress=False)
        for seed in range(1, num_seeds + 1)
    ]
    found = [r.diagnostics for r in results]
    errors = np.array([r.log_evidence - problem.log_evidence for r in results])
    z = errors / np.array([r.claimed_error for r in results])
    calls = np.mean([d["num_evaluations"] for d in found])
    moves = np.median([d["moves_per_walk"] for d in found])
    return [
        f"{moves:.0f}" + (" (tuned)" if num_moves is None else ""),
        str(num_seeds),
        f"{errors.mean():+.3f}",
        f"{errors.std(ddof=1) / np.sqrt(num_seeds):.3f}",
        f"{z.mean():+.2f}",
        f"{z.std(ddof=1):.2f}",
        f"{np.mean([d['remembered'] for d in found]):.2f}",
        f"{100 * np.mean([d['insertion_p_value'] < 0.01 for d in found]):.0f} %",
        f"{100 * np.mean([bool(r.flags) for r in results]):.0f} %",
        f"{calls:,.0f}",
        f"{calls * errors.var(ddof=1):,.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--problems", nargs="+", choices=CHOSEN, default=list(CHOSEN))
    options = parser.parse_args()
    known = report.load("nested_moves")
    for name in options.problems:
        problem, rows = BUILDERS[name](), []
        for each in MOVES_FOR_EACH:
            moves = None if each is None else max(1, round(each * problem.model.dimension))
            if [moves] in [row[:1] for row in rows]:
                continue
            rows.append([moves, *measure(problem, moves, options.seeds)])
            print(name, *rows[-1][1:], sep=" | ", flush=True)
        known[name] = [row[1:] for row in rows]
        report.save("nested_moves", known)  # results survive an interruption
        write(known)


def write(known: dict[str, list[list[str]]]) -> None:
    """Write the table so far."""
    rows = [[name, *row] for name in CHOSEN if name in known for row in known[name]]
    body = (
        report.table(HEADER, rows)
        + "\n\nMemory: rank correlation between the likelihoods at the starts and the ends of "
        "walks. p: of the insertion test. Calls x variance: what an error of 1 nat costs."
    )
    report.write("nested_moves", "Moves of a walk of nested sampling", body)


if __name__ == "__main__":
    main()
