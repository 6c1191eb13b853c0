"""``python -m benchmarks.roads.bridge``: is the stated error of bridges from NUTS draws true?

And: Bayes factors like those of R's published examples, Warp-III against a Gaussian, and the time
for 44 parameters. Runs are kept one by one in the result's JSON file; ``--merge`` goes on from it.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weighbridge as wb
from benchmarks import problems, report
from benchmarks.roads import bridge_problems as own

NAME = "roads_bridge"
KINDS = ("normal", "warp3", "auto")
CALIBRATED: dict[str, tuple[str, Callable[[], problems.Problem]]] = {
    "gaussian": ("Gaussian-Gaussian, 100 rows", problems.gaussian),
    "beta-bernoulli": ("Beta-Bernoulli, 50 of 100", problems.beta_bernoulli),
    "normal-in-box": ("3-D normal in a box", problems.normal_in_box),
    "linear": ("linear regression, 1,000 rows", problems.linear),
    "exponential": ("exponential rates, 3 skewed", own.exponential),
    "logistic": ("logistic regression, 15 rows, skewed", own.logistic),
    "schools": ("eight schools, skewed", own.schools),
    "mixture": ("mixture of 3, 1-D, 200 rows", problems.mixture),
    "softmax": ("softmax regression, 44 parameters", problems.softmax),
    "linear-200": ("linear regression, 200 parameters", lambda: large_linear()),
    "exponential-200": ("exponential rates, 200 skewed", lambda: own.exponential(200, 4)),
}
FACTORS: dict[str, tuple[str, Callable[[], tuple[list[problems.Problem], float]]]] = {
    "hierarchical-normal": ("hierarchical normal model, mean 0 against free", lambda: hierarchy()),
    "turtles": ("probit, 31 random effects against none", lambda: turtles()),
    "factors": ("factor model, three factors against two", lambda: factors()),
}
TIMED = "time-44"
# Draws of each of four chains for the Bayes factors, which are asked for within 1 %.
LONG = 10_000


def large_linear() -> problems.Problem:
    data = wb.zoo.linear.simulate(1_000, num_features=199, seed=1)
    return problems.Problem(wb.zoo.linear.model(199), data, wb.zoo.linear.log_evidence(data))


def hierarchy() -> tuple[list[problems.Problem], float]:
    pair = [own.hierarchical_normal(free_mean=free) for free in (False, True)]
    return pair, 0.0


def turtles() -> tuple[list[problems.Problem], float]:
    return [own.turtles(random_effects=given) for given in (True, False)], 0.0


def factors() -> tuple[list[problems.Problem], float]:
    """The references are importance sampling from posterior draws, with their error."""
    data, found, square = own.factor_data(), [], 0.0
    for count in (3, 2):
        model = own.factors(count)
        reference, error = by_importance(model, data)
        found.append(problems.Problem(model, data, reference))
        square += error**2
    return found, math.sqrt(square)


def by_importance(model: wb.Model, data: Any, num_draws: int = 1_000_000) -> tuple[float, float]:
    """A long reference: importance sampling from a Student-t fitted to other chains."""
    from weighbridge.core.compilation import in_double_precision
    from weighbridge.diagnostics.pareto import pareto_khat
    from weighbridge.estimators.proposals.joint_density import JointDensity
    from weighbridge.estimators.proposals.mixture import fit_one

    posterior = wb.sample(model, data, num_samples=5_000, seed=987, progress=False)
    flat = posterior.positions.reshape(-1, model.dimension)
    proposal = fit_one(flat, 20.0)
    drawn = proposal.draw(np.random.default_rng(987), num_draws)
    with in_double_precision():
        log_ratio = JointDensity(model, data, None)(drawn) - proposal.log_density(drawn)
    log_evidence = float(np.logaddexp.reduce(log_ratio) - math.log(num_draws))
    weights = np.exp(log_ratio - log_evidence)
    error = float(np.std(weights) / math.sqrt(num_draws))
    print(f"reference {log_evidence:.4f} +- {error:.4f}, k-hat {pareto_khat(log_ratio):.2f}")
    return log_evidence, error


def calibrate(name: str, seeds: int, known: dict[str, Any], save: Callable[[], None]) -> None:
    """Bridges of several kinds from the same draws of NUTS, for every seed."""
    problem = CALIBRATED[name][1]()
    runs = known.setdefault(name, {"exact": problem.log_evidence, "runs": {}})["runs"]
    for seed in range(1, seeds + 1):
        if str(seed) in runs:
            continue
        began = time.perf_counter()
        posterior = wb.sample(problem.model, problem.data, seed=seed, progress=False)
        sampled = time.perf_counter() - began
        found: dict[str, Any] = {"sampled": sampled}
        for kind in KINDS:
            result = wb.bridge(posterior, problem.model, problem.data, proposal=kind, seed=seed)
            found[kind] = [
                result.log_evidence,
                result.std_error,
                [flag.name for flag in result.flags],
                result.elapsed,
            ]
        runs[str(seed)] = found
        errors = " ".join(f"{kind} {found[kind][0] - problem.log_evidence:+.4f}" for kind in KINDS)
        print(f"{name} {seed}: sampled in {sampled:.1f} s, {errors}", flush=True)
        save()


def factor(name: str, seeds: int, known: dict[str, Any], save: Callable[[], None]) -> None:
    """The log Bayes factor of two models, by bridges from long chains."""
    pair, error = FACTORS[name][1]()
    exact = pair[0].log_evidence - pair[1].log_evidence
    runs = known.setdefault(name, {"exact": exact, "error": error, "runs": {}})["runs"]
    method = wb.Bridge(num_samples=LONG)
    for seed in range(1, seeds + 1):
        if str(seed) in runs:
            continue
        began = time.perf_counter()
        results = [
            wb.evidence(problem.model, problem.data, method, seed=seed, progress=False)
            for problem in pair
        ]
        seconds = time.perf_counter() - began
        value = results[0].log_evidence - results[1].log_evidence
        stated = math.hypot(results[0].std_error, results[1].std_error)
        flags = [flag.name for result in results for flag in result.flags]
        runs[str(seed)] = [value, stated, flags, seconds]
        print(f"{name} {seed}: {value:.4f} +- {stated:.4f}, exact {exact:.4f}", flush=True)
        save()


def measure_time(known: dict[str, Any], save: Callable[[], None]) -> None:
    """Seconds of a bridge from a posterior of 44 parameters, warm."""
    problem = problems.softmax()
    posterior = wb.sample(problem.model, problem.data, seed=1, progress=False)
    found = {}
    for kind in KINDS:
        wb.bridge(posterior, problem.model, problem.data, proposal=kind)
        began = time.perf_counter(), time.process_time()
        wb.bridge(posterior, problem.model, problem.data, proposal=kind, seed=1)
        found[kind] = [time.perf_counter() - began[0], time.process_time() - began[1]]
        print(TIMED, kind, found[kind], flush=True)
    known[TIMED] = found
    save()


def calibration_row(title: str, kind: str, exact: float, runs: list[dict[str, Any]]) -> list[str]:
    found = np.array([run[kind][:2] for run in runs])
    errors, stated = found[:, 0] - exact, found[:, 1]
    z = errors / stated
    return [
        title,
        kind,
        str(len(runs)),
        f"{errors.mean():.5f}",
        f"{math.sqrt(np.mean(errors**2)):.5f}",
        f"{np.median(stated):.5f}",
        f"{z.mean():.2f}",
        f"{z.std():.2f}",
        f"{np.abs(z).max():.1f}",
        f"{100 * np.mean([bool(run[kind][2]) for run in runs]):.0f} %",
        f"{np.median([run['sampled'] for run in runs]):.1f}",
        f"{np.median([run[kind][3] for run in runs]):.2f}",
    ]


def write(known: dict[str, Any]) -> None:
    rows, ratios = [], []
    for name, (title, _) in CALIBRATED.items():
        if name not in known:
            continue
        exact, runs = known[name]["exact"], list(known[name]["runs"].values())
        rows += [calibration_row(title, kind, exact, runs) for kind in KINDS]
        rms = {
            kind: math.sqrt(np.mean([(run[kind][0] - exact) ** 2 for run in runs]))
            for kind in KINDS
        }
        stated = {kind: np.median([run[kind][1] for run in runs]) for kind in KINDS}
        ratios.append(
            [
                title,
                str(len(runs)),
                f"{rms['warp3'] / rms['normal']:.2f}",
                f"{stated['warp3'] / stated['normal']:.2f}",
            ]
        )
    header = "problem, proposal, seeds, mean error, rms error, median stated, mean z, sd of z"
    header += ", largest |z|, flagged, s of NUTS, s of the bridge"
    body = "## Calibration\n\n" + report.table(header.split(", "), rows)
    body += (
        "\n\nz = (estimate - exact) / stated error, four chains of 1,000 draws of NUTS, the same "
        "for all proposals. With n seeds the mean of z has a standard error of 1/sqrt(n), its "
        "standard deviation of 1/sqrt(2n). Where the posterior is a Gaussian a bridge is nearly "
        "exact, and what is left is the error of the fit.\n\n## Warp-III against a Gaussian\n\n"
        "Ratios of the errors, measured and stated; below 1 Warp-III is better.\n\n"
    )
    body += report.table(("problem", "seeds", "rms errors", "stated errors"), ratios)
    body += "\n\n## Bayes factors in kind of R's bridgesampling\n\n" + report.table(
        ("models", "seeds", "exact log BF", "its error", "mean", "largest difference of BF",
         "median stated", "flagged", "s"),
        [factor_row(FACTORS[name][0], known[name]) for name in FACTORS if name in known],
    )  # fmt: skip
    body += f"\n\nEach from four chains of {LONG:,} draws."
    if TIMED in known:
        times = [[kind, f"{wall:.2f}", f"{cpu:.2f}"] for kind, (wall, cpu) in known[TIMED].items()]
        body += "\n\n## Seconds for 44 parameters, 4,000 draws, warm\n\n"
        body += report.table(("proposal", "wall clock", "processor"), times)
    report.write(NAME, "Bridges from posterior draws", body)


def factor_row(title: str, known: dict[str, Any]) -> list[str]:
    runs = list(known["runs"].values())
    differences = np.array([run[0] - known["exact"] for run in runs])
    return [
        title,
        str(len(runs)),
        f"{known['exact']:.4f}",
        f"{known['error']:.4f}",
        f"{known['exact'] + differences.mean():.4f}",
        f"{100 * np.max(np.abs(np.expm1(differences))):.2f} %",
        f"{np.median([run[1] for run in runs]):.4f}",
        f"{100 * np.mean([bool(run[2]) for run in runs]):.0f} %",
        f"{np.median([run[3] for run in runs]):.0f}",
    ]


def main() -> None:
    names = [*CALIBRATED, *FACTORS, TIMED]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="of each calibrated problem")
    parser.add_argument("--long-seeds", type=int, default=5, help="of each Bayes factor")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--merge", action="store_true", help="keep runs that were made before")
    options = parser.parse_args()
    known = report.load(NAME) if options.merge else {}

    def save() -> None:
        report.save(NAME, known)  # runs survive an interruption

    for name in options.only:
        if name in CALIBRATED:
            calibrate(name, options.seeds, known, save)
        elif name in FACTORS:
            factor(name, options.long_seeds, known, save)
        else:
            measure_time(known, save)
        write(known)


if __name__ == "__main__":
    main()
