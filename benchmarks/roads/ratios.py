"""``python -m benchmarks.roads.ratios``: are the stated errors of ratios of evidences true?

Savage-Dickey ratios at 0, 2 and 6 posterior deviations from the centre and at an edge, importance
ratios, and product spaces, all from chains of NUTS. Runs are kept one by one in the result's JSON
file; ``--merge`` goes on from it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weighbridge as wb
from benchmarks import report
from benchmarks.roads import ratio_problems as problems

NAME = "roads_ratios"
NESTED: dict[str, tuple[str, Callable[[], problems.Nested]]] = {
    **{
        f"linear-{d}": (
            f"linear regression, {d} deviations away",
            partial(problems.linear, float(d)),
        )
        for d in (0, 2, 6)
    },
    **{
        f"logistic-{d}": (
            f"logistic regression, 20 rows, {d} away",
            partial(problems.logistic, float(d)),
        )
        for d in (0, 2, 6)
    },
    **{
        f"schools-{d}": (
            f"eight schools, mean, {d} away",
            partial(problems.schools, "mu", float(d)),
        )
        for d in (0, 2, 6)
    },
    "schools-edge": ("eight schools, scale 0, the edge", partial(problems.schools, "tau", 0.0)),
}
IMPORTANCE: dict[str, tuple[str, Callable[[], problems.Pair]]] = {
    "importance-noise": ("importance ratio, two noises", problems.noises),
    "importance-links": ("importance ratio, logit and probit", problems.links),
}
SPACES: dict[str, tuple[str, Callable[[], problems.Pair]]] = {
    "space-subsets": ("product space, three regressions", problems.subsets),
    "space-links": ("product space, logit and probit", problems.links),
}
ALL = [*NESTED, *IMPORTANCE, *SPACES]


def one_run(name: str, seed: int) -> list[tuple[wb.EvidenceRatio, float, float, float]]:
    """The results of a run: each with its estimate, the exact value and the stated error."""
    if name in NESTED:
        case = NESTED[name][1]()
        ratio = wb.savage_dickey(case.model, case.data, case.point, seed=seed, progress=False)
        return [(ratio, ratio.log_bayes_factor, case.exact, ratio.std_error)]
    pair = (IMPORTANCE | SPACES)[name][1]()
    names = list(pair.models)
    if name in IMPORTANCE:
        first, second = pair.models.values()
        posterior = wb.sample(first, pair.data, seed=seed, progress=False)
        ratio = wb.importance_ratio(posterior, second, pair.data, model=first)
        return [(ratio, ratio.log_bayes_factor, pair.exact[1] - pair.exact[0], ratio.std_error)]
    ratio = wb.product_space(pair.models, pair.data, seed=seed, progress=False)
    return [
        (ratio, ratio.between(name), exact - pair.exact[0], ratio.error_between(name))
        for name, exact in zip(names[1:], pair.exact[1:])
    ]


def measure(name: str, seeds: int, known: dict[str, Any], save: Callable[[], None]) -> None:
    """All runs of one row that are not known yet."""
    runs = known.setdefault(name, {})
    for seed in range(1, seeds + 1):
        if str(seed) in runs:
            continue
        began = time.process_time()
        found = one_run(name, seed)
        flags = sorted({flag.name for ratio, *_ in found for flag in ratio.flags})
        numbers = [[value, exact, error] for _, value, exact, error in found]
        runs[str(seed)] = [numbers, flags, time.process_time() - began]
        if seed % 10 == 0 or seed == seeds:
            save()
            print(f"{name}: {seed} of {seeds} runs", flush=True)
    save()


def rows(known: dict[str, Any]) -> list[list[str]]:
    """A row of the table for each problem."""
    titles = {name: title for name, (title, _) in {**NESTED, **IMPORTANCE, **SPACES}.items()}
    found = []
    for name in ALL:
        if name not in known:
            continue
        runs = list(known[name].values())
        numbers = np.array([numbers for numbers, _, _ in runs])
        value, exact, error = np.moveaxis(numbers, 2, 0)
        score = (value - exact) / error
        right = [not flags for _, flags, _ in runs]
        found.append(
            [
                titles[name],
                str(len(runs)),
                ", ".join(f"{number:.3f}" for number in exact[0]),
                f"{np.sqrt(np.mean((value - exact) ** 2)):.4f}",
                f"{np.median(error):.4f}",
                f"{score.mean():+.2f} +- {1 / np.sqrt(len(runs)):.2f}",
                f"{np.sqrt(np.mean(score**2)):.2f}",
                f"{np.abs(score).max():.1f}",
                f"{1 - np.mean(right):.0%}",
                f"{np.median([seconds for _, _, seconds in runs]):.1f}",
            ]
        )
    return found


HEADER = (
    *("problem", "runs", "exact log factor", "root mean square error", "stated error"),
    *("mean of z", "root mean square z", "largest absolute z", "flagged", "CPU seconds, warm"),
)
TEXT = """z is the error in units of the stated one: its root mean square should be near 1. A
regression's posterior is Gaussian, the others are skewed. "Away" counts posterior standard
deviations from the posterior mean, for the skewed ones towards the long tail. Four chains of 1,000
draws of NUTS for each posterior; product spaces have 16 chains of 1,000 sweeps, and a z for each of
their factors."""


def main() -> None:
    """Run what is asked for, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=ALL, default=ALL)
    parser.add_argument("--seeds", type=int, default=100, help="runs of each row")
    parser.add_argument("--spaces", type=int, default=50, help="runs of each product space")
    parser.add_argument("--merge", action="store_true", help="go on from the saved runs")
    chosen = parser.parse_args()
    known = report.load(NAME) if chosen.merge else {}
    for name in chosen.only:
        seeds = chosen.spaces if name in SPACES else chosen.seeds
        measure(name, seeds, known, lambda: report.save(NAME, known))
    body = f"{TEXT}\n\n{report.table(HEADER, rows(known))}"
    report.write(NAME, "Ratios of evidences", body)


if __name__ == "__main__":
    main()
