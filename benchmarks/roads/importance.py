"""``python -m benchmarks.roads.importance``: is the stated error of importance sampling true?

z = (estimate - exact) / std_error over seeds, for the default proposal and others, on posteriors
that are nearly normal, skewed, of several modes, and too hard for importance sampling (these must
be flagged). Rows are kept in the result's JSON file; ``--merge`` adds to them.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import weighbridge as wb
from benchmarks import problems, report
from benchmarks.roads.laplace import gamma_variance, hierarchy, logistic

NAME = "roads_importance"
HEADER = (
    "problem",
    "proposal",
    "seeds",
    "mean error",
    "rms error",
    "median stated",
    "mean z",
    "sd of z",
    "largest size of z",
    "flagged",
    "unflagged, z above 3",
    "median k-hat",
    "efficiency",
    "evaluations",
    "s a run",
)


class Row(NamedTuple):
    """A problem and a method."""

    build: Callable[[], problems.Problem]
    title: str
    method: wb.Importance = wb.Importance()
    called: str = "Laplace, adaptive"


PLAIN = wb.Importance(adaptive=False)
PRIOR = wb.Importance("prior")
ROWS: dict[str, Row] = {
    "gaussian": Row(problems.gaussian, "Gaussian-Gaussian, 100 rows"),
    "gaussian-prior": Row(
        problems.gaussian, "Gaussian-Gaussian, 100 rows", PRIOR, "prior, adaptive"
    ),
    "beta-bernoulli": Row(problems.beta_bernoulli, "Beta-Bernoulli, 50 of 100"),
    "normal-in-box": Row(problems.normal_in_box, "3-D normal in a box"),
    "linear": Row(problems.linear, "linear regression, 1,000 rows"),
    "linear-plain": Row(
        problems.linear, "linear regression, 1,000 rows", PLAIN, "Laplace, not adaptive"
    ),
    "gamma": Row(gamma_variance, "inverse-gamma variance, 20 rows"),
    "logistic": Row(logistic, "logistic regression, 60 rows, skewed"),
    "logistic-plain": Row(
        logistic, "logistic regression, 60 rows, skewed", PLAIN, "Laplace, not adaptive"
    ),
    "logistic-prior": Row(
        logistic, "logistic regression, 60 rows, skewed", PRIOR, "prior, adaptive"
    ),
    "schools": Row(
        functools.partial(hierarchy, centred=False), "eight groups, non-centred, skewed"
    ),
    "schools-centred": Row(functools.partial(hierarchy, centred=True), "eight groups, centred"),
    "softmax": Row(problems.softmax, "softmax regression, 44 parameters"),
    "softmax-plain": Row(
        problems.softmax, "softmax regression, 44 parameters", PLAIN, "Laplace, not adaptive"
    ),
    "mixture": Row(problems.mixture, "mixture of 3, 1-D, 200 rows"),
    "log-gamma": Row(problems.log_gamma, "LogGamma, 10-D, 4 modes"),
    "rosenbrock": Row(problems.rosenbrock, "Rosenbrock, 2-D"),
    "shells": Row(problems.shells, "shells, 2-D"),
    "funnel": Row(problems.funnel, "funnel, 10-D"),
}


def measure(row: Row, num_seeds: int) -> list[str]:
    """The cells of a row, without its names."""
    problem = row.build()
    wb.evidence(problem.model, problem.data, row.method, seed=0, progress=False)
    began = time.process_time()
    results = [
        wb.evidence(problem.model, problem.data, row.method, seed=seed, progress=False)
        for seed in range(1, num_seeds + 1)
    ]
    seconds = (time.process_time() - began) / num_seeds
    errors = np.array([r.log_evidence for r in results]) - problem.log_evidence
    stated = np.array([r.claimed_error for r in results])
    flagged = np.array([bool(r.flags) for r in results])
    z = errors / stated
    known = np.isfinite(z)
    told = {n: [r.diagnostics[n] for r in results] for n in ("pareto_k", "efficiency")}
    evaluations = np.mean([r.diagnostics["num_evaluations"] for r in results])
    return [
        str(num_seeds),
        f"{errors.mean():.4f}",
        f"{math.sqrt(np.mean(errors**2)):.4f}",
        f"{np.nanmedian(stated):.4f}" if known.any() else "unknown",
        f"{z[known].mean():.2f}" if known.any() else "",
        f"{z[known].std():.2f}" if known.any() else "",
        f"{np.abs(z[known]).max():.1f}" if known.any() else "",
        f"{flagged.mean():.0%}",
        str(int(np.sum((np.abs(z) > 3) & ~flagged))),
        f"{np.median(told['pareto_k']):.2f}",
        f"{np.mean(told['efficiency']):.2f}",
        f"{evaluations:,.0f}",
        f"{seconds:.2f}",
    ]


def main() -> None:
    """Measure the rows that are asked for, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(ROWS), help="these rows alone")
    parser.add_argument("--merge", action="store_true", help="add to the rows of earlier runs")
    parser.add_argument("--seeds", type=int, default=100)
    asked = parser.parse_args()
    found = report.load(NAME) if asked.merge else {}
    for name in asked.only or ROWS:
        cells = measure(ROWS[name], asked.seeds)
        found[name] = cells
        print(name, *cells, flush=True)
        report.save(NAME, found)
    rows = [[ROWS[name].title, ROWS[name].called, *found[name]] for name in ROWS if name in found]
    body = (
        f"{report.table(HEADER, rows)}\n\n"
        "z is over the runs that state an error. Efficiency is the effective share of the draws "
        "of the answer; evaluations are those of the likelihood, the search for modes and the "
        "adaptation included. Seconds are those of one processor, without compilation. The "
        "references of softmax and mixture have errors of their own (`benchmarks.references`)."
    )
    report.write(NAME, "Importance sampling: calibration of the stated error", body)


if __name__ == "__main__":
    main()
