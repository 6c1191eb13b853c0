"""``python -m benchmarks.roads.occam``: polynomials of order 0 to 8 on data of order 3.

Every road to the evidence on the same models, against the exact value (Occam's razor: the largest
likelihood rises with the order, the evidence does not). Writes ``docs/roads-occam.png`` and
``benchmarks/results/roads_occam.md``. Every run is kept: ``--methods smc bridge`` runs these again
and draws the others as they were. About five minutes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import weighbridge as wb
from benchmarks import report
from weighbridge.estimators.registry import METHODS
from weighbridge.plots.canvas import COLOURS, TRUTH, save_figure
from weighbridge.plots.surface import panels

NAME = "roads_occam"
FIGURE = Path(__file__).parents[2] / "docs" / "roads-occam.png"
ORDERS = range(9)
TRUE_ORDER = 3
COEFFICIENTS = (0.5, -2.0, -1.0, 3.0)
NOISE = 0.5
NUM_ROWS = 40
# Standard deviation of the prior of all coefficients but the constant.
SCALE = 3.0
# The harmonic mean and prior sampling are there as warnings.
ROADS = ("sgais", "smc", "nested", "bridge", "laplace", "importance", "harmonic_mean")
MARKERS = "osD^vP*X"


class Found(NamedTuple):
    """What one method found for one order."""

    log_evidence: float
    std_error: float
    flags: tuple[str, ...]
    seconds: float


def observations(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The data: a cubic with noise."""
    generator = np.random.default_rng(seed)
    where = np.sort(generator.uniform(-1, 1, NUM_ROWS))
    mean = np.polynomial.polynomial.polyval(where, COEFFICIENTS)
    return where, mean + NOISE * generator.standard_normal(NUM_ROWS)


def features(where: np.ndarray, order: int) -> np.ndarray:
    """Scaled powers of x; with standard normal weights the coefficients have the prior's scale."""
    return SCALE * where[:, None] ** np.arange(1, order + 1)


def problem(order: int, seed: int = 1) -> tuple[wb.Model, Any, float]:
    """The model of an order, its data, and its exact log evidence."""
    where, values = observations(seed)
    if not order:
        exact = wb.zoo.gaussian.log_evidence(values, noise=NOISE)
        return wb.zoo.gaussian.model(noise=NOISE), values, exact
    data = {"x": features(where, order), "y": values}
    exact = wb.zoo.linear.log_evidence(data, noise=NOISE)
    return wb.zoo.linear.model(order, NOISE), data, exact


def fit(order: int, grid: np.ndarray) -> np.ndarray:
    """The curve at the posterior mean of an order, from the exact posterior."""
    where, values = observations()
    if not order:
        return np.full(len(grid), wb.zoo.gaussian.posterior(values, noise=NOISE).mean["mu"])
    mean = wb.zoo.linear.posterior({"x": features(where, order), "y": values}, noise=NOISE).mean
    return features(grid, order) @ mean["w"] + mean["b"]


def largest_likelihood(order: int) -> float:
    """The largest log-likelihood of an order, by least squares."""
    where, values = observations()
    residual = values - np.polynomial.Polynomial.fit(where, values, order)(where)
    return float(-0.5 * np.sum((residual / NOISE) ** 2 + np.log(2 * np.pi * NOISE**2)))


def draw(exact: list[float], found: dict[str, list[Found]]) -> None:
    """The data, the evidence of every order, and the error of every method."""
    drawn = panels(None, (1, 3), (14.0, 4.6))
    left, middle, right = drawn.flat
    where, values = observations()
    grid = np.linspace(-1, 1, 300)
    left.plot(where, values, ".", color="0.4")
    for order, colour in zip((1, TRUE_ORDER, 8), COLOURS):
        left.plot(grid, fit(order, grid), color=colour, label=f"order {order}")
    left.set_xlabel("x")
    left.set_ylabel("y")
    left.legend(fontsize="small", frameon=False)
    left.set_title("data of order 3, and posterior means", fontsize="medium")
    middle.plot(ORDERS, exact, color="black", linewidth=1.2, label="exact evidence")
    heights = [largest_likelihood(order) for order in ORDERS]
    middle.plot(ORDERS, heights, ":", color="0.4", label="largest likelihood")
    shifts = np.linspace(-0.3, 0.3, len(found))
    for (name, row), shift, colour, mark in zip(found.items(), shifts, COLOURS, MARKERS):
        style: dict[str, Any] = {"color": colour, "marker": mark, "linestyle": "", "markersize": 5}
        middle.plot(ORDERS, [f.log_evidence for f in row], label=name, fillstyle="none", **style)
        apart = [f.log_evidence - value for f, value in zip(row, exact)]
        spread = [2 * np.nan_to_num(f.std_error) for f in row]
        right.errorbar(np.array(ORDERS) + shift, apart, spread, elinewidth=1, label=name, **style)
    middle.set_xlabel("order of the polynomial")
    middle.set_ylabel("log evidence (nats)")
    middle.set_ylim(min(exact[1:]) - 12, max(heights) + 4)
    middle.legend(fontsize="x-small", frameon=False, ncols=2, loc="lower right")
    middle.set_title(f"the evidence is largest at order {int(np.argmax(exact))}", fontsize="medium")
    right.axhline(0.0, **TRUTH)
    right.set_yscale("symlog", linthresh=0.1)
    right.set_xlabel("order of the polynomial")
    right.set_ylabel("estimate - exact (nats), ± 2 errors")
    right.set_ylim(-1.0, 20.0)
    right.set_title("errors; the harmonic mean states none", fontsize="medium")
    save_figure(drawn.figure, FIGURE)


def main() -> None:
    """Run every method on every order, draw and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", choices=ROADS)
    given = parser.parse_args().methods
    asked = [name for name in ROADS if name in METHODS] if given is None else given
    problems = [problem(order) for order in ORDERS]
    exact = [value for _, _, value in problems]
    kept = report.load(NAME)
    for name in asked:
        kept[name] = []
        for model, data, _ in problems:
            began = time.process_time()
            result = wb.evidence(model, data, name, seed=0, progress=False)
            flags = tuple(flag.name for flag in result.flags)
            seconds = time.process_time() - began
            kept[name].append([result.log_evidence, result.std_error, flags, seconds])
        report.save(NAME, kept)
    found = {name: [Found(*row) for row in kept[name]] for name in ROADS if name in kept}
    draw(exact, found)
    header = ["order", "exact", "largest likelihood", *found]
    rows = [
        [str(order), f"{exact[order]:.3f}", f"{largest_likelihood(order):.2f}",
         *(_cell(row[order], exact[order]) for row in found.values())]
        for order in ORDERS
    ]  # fmt: skip
    flags = {name: sorted({flag for f in row for flag in f.flags}) for name, row in found.items()}
    said = "; ".join(f"{name}: {', '.join(these)}" for name, these in flags.items() if these)
    spent = ", ".join(f"{name} {sum(f.seconds for f in row):.0f}" for name, row in found.items())
    body = [
        f"{NUM_ROWS} rows of a cubic, noise {NOISE} (known). Prior of the coefficients "
        f"N(0, {SCALE}^2), of the constant N(0, 1). Methods: estimate - exact ± error, in nats.",
        report.table(header, rows),
        f"Flags: {said or 'none'}.",
        "Order of the largest exact evidence over 200 data sets of this kind: " + _winners() + ".",
        f"CPU seconds for all orders, compilation included: {spent}.",
    ]
    report.write(NAME, "Occam's razor by every road", "\n\n".join(body))


def _winners() -> str:
    evidence = np.array([[problem(order, seed)[2] for order in ORDERS] for seed in range(200)])
    counts = np.bincount(np.argmax(evidence, axis=1))
    return ", ".join(f"{order} in {count}" for order, count in enumerate(counts) if count)


def _cell(found: Found, exact: float) -> str:
    return f"{found.log_evidence - exact:+.3f} ± {found.std_error:.3f}"


if __name__ == "__main__":
    main()
