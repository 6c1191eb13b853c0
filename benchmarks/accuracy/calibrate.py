"""``make calibrate``: are stated errors right? z = (estimate - exact) / std_error over seeds."""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

import weighbridge as wb
from benchmarks import problems, report

PROBLEMS = {
    "Gaussian-Gaussian, 100 rows": problems.gaussian(),
    "Beta-Bernoulli, 50 of 100": problems.beta_bernoulli(),
    "3-D normal in a box": problems.normal_in_box(),
    "shells, 2-D": problems.shells(2),
    "linear regression, 1,000 rows": problems.linear(),
}
METHODS = {
    "SMC": wb.SMC(),
    "AIS": wb.AIS(),
    "thermodynamic": wb.Thermodynamic(),
    "stepping stones": wb.Thermodynamic(rule="stepping_stones"),
    "IBIS": wb.IBIS(),
    "SMC, random walk": wb.SMC(moves="random_walk"),
    "SMC, waste-free": wb.SMC(num_particles=512, waste_free=True),
    "prior sampling": wb.PriorSampling(),
    "AIS, SGHMC": wb.AIS(moves=wb.SGHMC()),
    "sequential SG-MCMC": wb.SequentialSGMCMC(),
    "SGAIS": wb.SGAIS(),
    "SGAIS as published, 16 islands": wb.PublishedSGAIS(chunk_size=100, batch_size=100),
}
HEADER = (
    "problem",
    "method",
    "seeds",
    "mean error",
    "rms error",
    "median stated",
    "mean z",
    "sd of z",
    "flagged",
    "s a run",
)


def measure(problem: problems.Problem, method: object, num_seeds: int) -> dict[str, list[str]]:
    """Rows of the table: the answers, and the paths alone if a bridge may be the answer."""
    wb.evidence(problem.model, problem.data, method, seed=0, progress=False)
    began = time.perf_counter()
    results = [
        wb.evidence(problem.model, problem.data, method, seed=seed, progress=False)
        for seed in range(1, num_seeds + 1)
    ]
    seconds = (time.perf_counter() - began) / num_seeds
    flagged = np.mean([bool(r.flags) for r in results])
    answers = np.array([(r.log_evidence, r.claimed_error) for r in results])
    rows = {"": summary(answers, problem.log_evidence, flagged, seconds)}
    if any("bridge_log_evidence" in r.diagnostics for r in results):
        known = ("path_log_evidence", "path_error")
        paths = np.array([[r.diagnostics[name] for name in known] for r in results])
        rows[", path alone"] = summary(paths, problem.log_evidence, flagged, seconds)
    return rows


def summary(found: np.ndarray, exact: float, flagged: float, seconds: float) -> list[str]:
    """The cells of a row, from estimates and their stated errors."""
    errors, stated = found[:, 0] - exact, found[:, 1]
    z = errors / stated
    return [
        str(len(found)),
        f"{errors.mean():.4f}",
        f"{math.sqrt(np.mean(errors**2)):.4f}",
        f"{np.median(stated):.4f}",
        f"{z.mean():.2f}",
        f"{z.std():.2f}",
        f"{100 * flagged:.0f} %",
        f"{seconds:.3f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for each row")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--merge", action="store_true", help="keep rows that were measured before")
    parser.add_argument("--again", action="store_true", help="with --merge: also what is there")
    options = parser.parse_args()
    known = report.load("calibration") if options.merge else {}
    for name in options.problems:
        problem = PROBLEMS[name]
        for method_name in options.only:
            method = METHODS[method_name]
            by_rows = isinstance(
                method, wb.SGAIS | wb.PublishedSGAIS | wb.IBIS | wb.SequentialSGMCMC
            )
            there = f"{name} | {method_name}" in known and not options.again
            if there or (by_rows and problem.data is None):
                continue
            once = wb.evidence(problem.model, problem.data, method, seed=0, progress=False)
            once = wb.evidence(problem.model, problem.data, method, seed=0, progress=False)
            num_seeds = int(min(options.seeds, max(options.budget / once.elapsed, 20)))
            for suffix, row in measure(problem, method, num_seeds).items():
                known[f"{name} | {method_name}{suffix}"] = row
                print(f"{name} | {method_name}{suffix}", *row, sep=" | ", flush=True)
            report.save("calibration", known)  # results survive an interruption
            write([[*key.split(" | "), *row] for key, row in known.items()])


def write(rows: list[list[str]]) -> None:
    """Write the table so far, and how to read it."""
    num_tests = 2 * len(rows)
    body = (
        report.table(HEADER, rows)
        + "\n\nz = (estimate - exact) / stated error. Calibrated means a standard deviation of z "
        "in [0.8, 1.3] and a mean within 0.2 of zero, beyond what the seeds allow: with n seeds "
        "the mean has a standard error of 1/sqrt(n), the standard deviation of 1/sqrt(2n). Over "
        f"the {num_tests} comparisons of this table a bound of 3.5 of those errors has a "
        f"family-wise false-alarm rate of about {1 - (1 - 4.7e-4) ** num_tests:.1%}.\n\n"
        "Fewer seeds were run where one run takes long (a time budget for each row). Prior "
        "sampling cannot be calibrated where the likelihood is peaked (linear regression), and "
        "its status says so. The moves of SGAIS as published are not adjusted: its mean error is "
        "heating, which is in its stated error as measured from the particles' temperature. Where "
        "the posterior is a Gaussian the bridge is exact to rounding, and its z means nothing: "
        "there the rows of the path alone tell."
    )
    report.write("calibration", "Calibration of the stated error", body)


if __name__ == "__main__":
    main()
