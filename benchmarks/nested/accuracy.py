"""Is nested sampling right, and is its stated error true? z = (estimate - exact) / error."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import weighbridge as wb
from benchmarks import problems, report

HALF = 10.0


def _normal(p: dict[str, jnp.ndarray]) -> jnp.ndarray:
    return jnp.sum(dist.Normal(0.0, 1.0).log_prob(p["x"]))


def normal(dimension: int) -> problems.Problem:
    """A standard normal likelihood in a box of +- 10."""
    prior = {"x": dist.Uniform(-HALF, HALF).expand([dimension]).to_event(1)}
    model = wb.Model(prior, total_log_likelihood=_normal)
    return problems.Problem(model, None, -dimension * math.log(2 * HALF))


def _plateau(p: dict[str, jnp.ndarray]) -> jnp.ndarray:
    return jnp.where(p["x"][0] < 0, 0.0, jnp.where(p["x"][1] < 0, 2.0, 5.0))


def plateau() -> problems.Problem:
    """Three flat steps, of a half, a quarter and a quarter of the prior."""
    prior = {"x": dist.Uniform(-1.0, 1.0).expand([2]).to_event(1)}
    exact = math.log(0.5 + 0.25 * math.exp(2.0) + 0.25 * math.exp(5.0))
    return problems.Problem(wb.Model(prior, total_log_likelihood=_plateau), None, exact)


PROBLEMS: dict[str, Callable[[], problems.Problem]] = {
    "Gaussian-Gaussian, 100 rows": problems.gaussian,
    "Beta-Bernoulli, 50 of 100": problems.beta_bernoulli,
    "3-D normal in a box": problems.normal_in_box,
    "10-D normal in a box": lambda: normal(10),
    "plateau, 2-D": plateau,
    "shells, 2-D": lambda: problems.shells(2),
    "shells, 10-D": lambda: problems.shells(10),
    "eggbox": problems.eggbox,
    "Rosenbrock, 2-D": problems.rosenbrock,
    "LogGamma, 10-D": problems.log_gamma,
    "linear regression, 1,000 rows": problems.linear,
    "spike and slab, 10-D": problems.spike_and_slab,
    "Neal's funnel, 10-D": problems.funnel,
}
HEADER = (
    "problem",
    "seeds",
    "mean error",
    "median stated",
    "mean z",
    "sd of z",
    "within 3",
    "flagged",
    "calls a run",
    "moves a walk",
    "s a run",
)


def measure(problem: problems.Problem, num_seeds: int, num_live: int) -> list[str]:
    """One row of the table."""
    method = wb.NestedSampling(num_live=num_live)
    wb.evidence(problem.model, problem.data, method, seed=0, progress=False)
    began = time.perf_counter()
    results = [
        wb.evidence(problem.model, problem.data, method, seed=seed, progress=False)
        for seed in range(1, num_seeds + 1)
    ]
    seconds = (time.perf_counter() - began) / num_seeds
    errors = np.array([r.log_evidence - problem.log_evidence for r in results])
    stated = np.array([r.std_error for r in results])
    z = errors / stated
    return [
        str(num_seeds),
        f"{errors.mean():.3f}",
        f"{np.median(stated):.3f}",
        f"{z.mean():.2f}",
        f"{z.std():.2f}",
        f"{100 * np.mean(np.abs(z) <= 3):.0f} %",
        f"{100 * np.mean([bool(r.flags) for r in results]):.0f} %",
        f"{np.mean([r.diagnostics['num_evaluations'] for r in results]):,.0f}",
        f"{np.median([r.diagnostics['moves_per_walk'] for r in results]):.0f}",
        f"{seconds:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--live", type=int, default=500)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    options = parser.parse_args()
    known = report.load("nested")
    for name in options.problems:
        known[name] = measure(PROBLEMS[name](), options.seeds, options.live)
        print(name, *known[name], sep=" | ", flush=True)
        report.save("nested", known)  # results survive an interruption
        write([[name, *known[name]] for name in PROBLEMS if name in known])


def write(rows: list[list[str]]) -> None:
    """Write the table so far, and how to read it."""
    body = (
        report.table(HEADER, rows)
        + "\n\nz = (estimate - exact) / stated error. With n seeds its mean has a standard error "
        "of 1/sqrt(n) and its standard deviation one of 1/sqrt(2n). Rows may be of different runs "
        "of this command; times are of a machine that did other work too."
    )
    report.write("nested", "Nested sampling against exact evidences", body)


if __name__ == "__main__":
    main()
