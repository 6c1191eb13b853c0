"""``python -m benchmarks.roads.laplace``: is Laplace's method right, and is its error honest?

Where the posterior is a Gaussian it is exact; elsewhere the stated error is mostly its distance
from the importance sampling around the modes, so that z should be near 1 in size, not normal. The
importance sampling alone (the check) should have a z with a standard deviation of 1.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.transforms import AffineTransform
from scipy import integrate

import weighbridge as wb
from benchmarks import problems, report

HEADER = (
    "problem",
    "coordinates",
    "seeds",
    "mean error",
    "median stated",
    "largest size of z",
    "z above 2",
    "no error stated",
    "flagged",
    "check: rms error",
    "check: sd of z",
    "s a run",
)
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SCALES = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


class Row(NamedTuple):
    """A problem and the coordinates in which it is approximated."""

    build: Callable[[], problems.Problem]
    coordinates: Any = "unconstrained"
    called: str = "unconstrained"


def gamma_variance(num_rows: int = 20) -> problems.Problem:
    """Normal rows of known mean with an inverse-gamma variance: the exact evidence is closed."""
    data = 1.5 * np.random.default_rng(1).normal(size=num_rows)
    shape, scale = 2.0, 2.0
    after = shape + 0.5 * num_rows, scale + 0.5 * float(data @ data)
    exact = shape * math.log(scale) - after[0] * math.log(after[1])
    exact += math.lgamma(after[0]) - math.lgamma(shape) - 0.5 * num_rows * math.log(2 * math.pi)
    model = wb.Model(
        {"s2": dist.InverseGamma(shape, scale)},
        lambda p, y: dist.Normal(0.0, jnp.sqrt(p["s2"])).log_prob(y),
    )
    return problems.Problem(model, data, exact)


@functools.cache
def logistic() -> problems.Problem:
    """Logistic regression on 60 rows with two slopes: the evidence by quadrature."""
    generator = np.random.default_rng(2)
    x = generator.normal(size=(60, 2))
    y = (generator.random(60) < 1 / (1 + np.exp(-x @ [1.5, -1.0]))).astype(float)
    grid, share = np.polynomial.hermite_e.hermegauss(200)
    first, second = np.meshgrid(2.0 * grid, 2.0 * grid, indexing="ij")
    logits = first[..., None] * x[:, 0] + second[..., None] * x[:, 1]
    heights = np.sum(y * logits - np.logaddexp(0.0, logits), axis=-1)
    with np.errstate(divide="ignore"):
        log_share = np.log(np.outer(share, share)) - math.log(2 * math.pi)
    exact = float(np.logaddexp.reduce(log_share + heights, axis=None))
    model = wb.Model(
        {"w": dist.Normal(0.0, 2.0).expand([2]).to_event(1)},
        lambda p, row: dist.Bernoulli(logits=row["x"] @ p["w"]).log_prob(row["y"]),
    )
    return problems.Problem(model, {"x": x, "y": y}, exact)


@functools.cache
def hierarchy(*, centred: bool) -> problems.Problem:
    """Eight groups with known errors: the group means are integrated out exactly."""

    def log_likelihood(p: Any, row: Any) -> Any:
        effect = p["theta"][row["group"].astype(int)]
        return dist.Normal(effect, row["scale"]).log_prob(row["y"])

    def theta(p: Any) -> Any:
        if centred:
            return dist.Normal(p["mu"], p["tau"]).expand([8]).to_event(1)
        standard = dist.Normal(jnp.zeros(8), 1.0).to_event(1)
        return dist.TransformedDistribution(standard, AffineTransform(p["mu"], p["tau"]))

    def density(tau: float) -> float:
        covariance = np.diag(SCALES**2 + tau**2) + 25.0
        square = EFFECTS @ np.linalg.solve(covariance, EFFECTS)
        prior = 2.0 / (5.0 * math.pi * (1.0 + (tau / 5.0) ** 2))
        return prior * math.exp(-0.5 * (square + np.linalg.slogdet(2 * math.pi * covariance)[1]))

    exact = math.log(integrate.quad(density, 0.0, math.inf, limit=500)[0])
    prior = {"mu": dist.Normal(0.0, 5.0), "tau": dist.HalfCauchy(5.0), "theta": theta}
    data = {"y": EFFECTS, "scale": SCALES, "group": np.arange(8.0)}
    return problems.Problem(wb.Model(prior, log_likelihood), data, exact)


def _own(build: Callable[[], problems.Problem]) -> Row:
    return Row(build, "own", "own")


ROWS: dict[str, Row] = {
    "Gaussian-Gaussian, 100 rows": Row(problems.gaussian),
    "Gaussian-Gaussian, 100 rows, own": _own(problems.gaussian),
    "linear regression, 1,000 rows": Row(problems.linear),
    "linear regression, 10,000 rows": Row(functools.partial(problems.linear, 10_000)),
    "Beta-Bernoulli, 50 of 100": Row(problems.beta_bernoulli),
    "Beta-Bernoulli, 50 of 100, own": _own(problems.beta_bernoulli),
    "inverse-gamma variance, 20 rows": Row(gamma_variance),
    "inverse-gamma variance, 20 rows, own": _own(gamma_variance),
    "inverse-gamma variance, 20 rows, 1/s": Row(
        gamma_variance, {"s2": lambda s2: s2 ** (-1 / 3)}, "s2^(-1/3)"
    ),
    "logistic regression, 60 rows": Row(logistic),
    "softmax regression, 44 parameters": Row(problems.softmax),
    "mixture of 3, 200 rows": Row(problems.mixture),
    "eight groups, non-centred": Row(functools.partial(hierarchy, centred=False)),
    "eight groups, centred": Row(functools.partial(hierarchy, centred=True)),
    "3-D normal in a box": Row(problems.normal_in_box),
    "3-D normal in a box, own": _own(problems.normal_in_box),
    "eggbox": Row(problems.eggbox),
    "LogGamma, 10-D": Row(problems.log_gamma),
    "spike and slab, 10-D": Row(problems.spike_and_slab),
    "Rosenbrock, 2-D": Row(problems.rosenbrock),
    "shells, 2-D": Row(problems.shells),
    "funnel, 10-D": Row(problems.funnel),
}


def measure(row: Row, num_seeds: int) -> list[str]:
    """A row of the table, from runs with several seeds."""
    problem = row.build()
    method = wb.Laplace(coordinates=row.coordinates)
    wb.evidence(problem.model, problem.data, method, seed=0, progress=False)
    began = time.process_time()
    results = [
        wb.evidence(problem.model, problem.data, method, seed=seed, progress=False)
        for seed in range(1, num_seeds + 1)
    ]
    seconds = (time.process_time() - began) / num_seeds
    error = np.array([result.log_evidence for result in results]) - problem.log_evidence
    stated = np.array([result.claimed_error for result in results])
    check = np.array(
        [
            [result.diagnostics[name] for name in ("check_log_evidence", "check_error")]
            for result in results
        ]
    )
    known = np.isfinite(stated)
    size = np.abs(error[known] / stated[known])
    off = check[known, 0] - problem.log_evidence
    nothing = "-"
    # Where the posterior is a Gaussian the check is exact, and its z is a ratio of roundings.
    exact = bool(np.median(check[:, 1]) < 1e-9)
    return [
        row.called,
        str(num_seeds),
        f"{error.mean():.2g}",
        f"{np.median(stated[known]):.2g}" if known.any() else nothing,
        f"{size.max():.2f}" if known.any() else nothing,
        f"{100 * np.mean(size > 2):.0f} %" if known.any() else nothing,
        f"{100 * np.mean(~known):.0f} %",
        f"{100 * np.mean([bool(result.flags) for result in results]):.0f} %",
        f"{math.sqrt(np.mean(off**2)):.2g}" if known.any() else nothing,
        nothing if exact or not known.any() else f"{np.std(off / check[known, 1]):.2f}",
        f"{seconds:.3f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--merge", action="store_true", help="keep rows that were measured before")
    options = parser.parse_args()
    known = report.load("roads_laplace") if options.merge else {}
    for title in options.only:
        known[title] = measure(ROWS[title], options.seeds)
        print(title, *known[title], sep=" | ", flush=True)
        report.save("roads_laplace", known)  # results survive an interruption
        write({name: known[name] for name in ROWS if name in known})


def write(known: dict[str, list[str]]) -> None:
    """Write the table so far, and how to read it."""
    rows = [
        [title.removesuffix(", own").removesuffix(", 1/s"), *row] for title, row in known.items()
    ]
    body = (
        report.table(HEADER, rows)
        + "\n\nError is that of Laplace's method against the exact value "
        "(softmax and mixture: a reference by importance sampling, known to 0.01). z = error / "
        "stated error. The stated error is mostly the distance from the importance sampling around "
        "the modes, so z is near 1 in size where Laplace's method is off, and below 1 where it is "
        "exact to rounding. The check is the importance sampling alone, over the runs whose error "
        "is stated. Processor time for each run, after a first one that compiles."
    )
    report.write("roads_laplace", "Laplace's method", body)


if __name__ == "__main__":
    main()
