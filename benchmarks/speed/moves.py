"""Moves of SMC's particles compared: HMC trajectories of several lengths, and random walks.

``python -m benchmarks.speed.moves`` writes results/moves.md. The moves take turns, seed by seed, so
that all of them see the same machine.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import weighbridge as wb
from benchmarks import problems, report

NAME = "moves"
PROBLEMS = ("shells-2", "shells-10", "eggbox", "rosenbrock")
TOLERANCE = 0.1
MOVES = {
    **{f"HMC, up to {count} steps": wb.AdaptiveHMC(decorrelated=0.3, max_leapfrog=count)
       for count in (16, 8, 5)},
    "random walk, up to 10 moves": wb.AdaptiveWalk(
        wb.Metropolis(), decorrelated=0.3, max_moves=10
    ),
}  # fmt: skip
HEADER = ("problem", "moves", "rms error", "rms z", "islands", "warm ms", "s to 0.1 nats")


def measure(name: str, num_seeds: int) -> list[tuple[str, ...]]:
    """Rows of the table for one problem."""
    problem = problems.CATALOGUE[name].build()
    found: dict[str, list[tuple[float, float, float, float]]] = {label: [] for label in MOVES}
    for seed in range(num_seeds + 1):
        for label, moves in MOVES.items():
            began = time.perf_counter()
            result = wb.evidence(
                problem.model,
                problem.data,
                wb.SMC(moves=moves),
                seed=seed,
                tolerance=TOLERANCE,
                progress=False,
            )
            seconds = time.perf_counter() - began
            error = result.log_evidence - problem.log_evidence
            islands = len(result.diagnostics["island_log_evidence"])
            if seed:  # the first run compiles
                found[label].append((seconds, error, error / result.std_error, islands))
    rows = []
    for label, runs in found.items():
        seconds, errors, z, islands = np.array(runs).T
        warm, rms = float(np.median(seconds)), float(np.sqrt(np.mean(errors**2)))
        rows.append((
            problems.CATALOGUE[name].title,
            label,
            f"{rms:.3f}",
            f"{np.sqrt(np.mean(z**2)):.2f}",
            f"{islands.mean():.0f}",
            f"{1e3 * warm:.0f}",
            f"{warm * (rms / TOLERANCE) ** 2:.3f}",
        ))  # fmt: skip
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args(arguments)
    rows = [row for name in options.only for row in measure(name, options.seeds)]
    body = (
        f"`wb.evidence(model, data, wb.SMC(moves=...), tolerance={TOLERANCE})`, {options.seeds} "
        "seeds, the moves in turns. The last column is warm times (rms error / 0.1)^2.\n\n"
        f"{report.table(HEADER, rows)}"
    )
    report.write(NAME, "How particles move", body, options.output)


if __name__ == "__main__":
    main()
