"""``python -m benchmarks.roads.documents``: figures 3.1 to 3.3 of the thesis, and how they go on.

The mean of a Gaussian with a Gaussian prior (Cameron 2020, thesis, section 3.1). Prior sampling is
too low and the harmonic mean too high, with 10 draws each as in the thesis; then with 100 draws
as the rows or the parameters grow. The exact value is known throughout. Writes
``docs/roads-documents.png`` and ``benchmarks/results/roads_documents.md``. About a minute.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import weighbridge as wb
from benchmarks import report
from weighbridge.plots.canvas import COLOURS, TRUTH, save_figure, whole_numbers
from weighbridge.plots.surface import panels

FIGURE = Path(__file__).parents[2] / "docs" / "roads-documents.png"
NUM_ROWS = 100  # of the thesis, as are 10 draws
FEW, MANY = 10, 100
REPEATS, SMALL_REPEATS = 10_000, 200
ROWS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)
PARAMETERS = (1, 2, 3, 5, 8, 12, 20)
NAMES = {"prior": "prior sampling", "harmonic": "harmonic mean"}


def log_likelihood(data: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Log-likelihood of unit Gaussians at many means, from the sufficient statistics."""
    count, centre = len(data), data.mean()
    spread = float(np.sum((data - centre) ** 2))
    return -0.5 * (count * math.log(2 * math.pi) + spread + count * (mean - centre) ** 2)


def errors(
    columns: list[np.ndarray], num_draws: int, repeats: int, seed: int
) -> dict[str, np.ndarray]:
    """Error of both estimators in nats, ``repeats`` times, with a mean for each column of data."""
    generator = np.random.default_rng(seed)
    exact = sum(wb.zoo.gaussian.log_evidence(data) for data in columns)
    total = {"prior": np.zeros((repeats, num_draws)), "harmonic": np.zeros((repeats, num_draws))}
    for number, data in enumerate(columns):
        prior = generator.standard_normal((repeats, num_draws))
        of_data = wb.zoo.gaussian.posterior(data)
        drawn = of_data.draw(repeats * num_draws, seed=1000 * seed + number)["mu"]
        total["prior"] += log_likelihood(data, prior)
        total["harmonic"] += log_likelihood(data, drawn.reshape(repeats, num_draws))
    logs = math.log(num_draws)
    return {
        "prior": np.logaddexp.reduce(total["prior"], axis=1) - logs - exact,
        "harmonic": logs - np.logaddexp.reduce(-total["harmonic"], axis=1) - exact,
    }


def growth(
    sizes: tuple[int, ...], columns: Callable[[int], list[np.ndarray]]
) -> dict[str, np.ndarray]:
    """For both estimators the 5 %, 50 % and 95 % quantiles of the error, for each size."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    for seed, size in enumerate(sizes):
        for name, values in errors(columns(size), MANY, SMALL_REPEATS, seed).items():
            found[name].append(np.quantile(values, (0.05, 0.5, 0.95)))
    return {name: np.array(quantiles) for name, quantiles in found.items()}


def column(number: int) -> np.ndarray:
    """The data of one parameter: 100 rows around its own mean."""
    mean = 2.0 if number == 0 else float(np.random.default_rng(number).standard_normal())
    return wb.zoo.gaussian.simulate(NUM_ROWS, mean=mean, seed=number)


def draw_first(axes: Any, data: np.ndarray) -> None:
    """Figure 3.1: prior, and likelihood on a scale of its own."""
    where = np.linspace(-3, 3, 2000)
    level = log_likelihood(data, where)
    likelihood = np.exp(level - level.max())
    prior = np.exp(-0.5 * where**2)
    axes.plot(where, prior, color=COLOURS[2], label="prior")
    axes.plot(where, likelihood, color=COLOURS[3], label="likelihood")
    axes.fill_between(where, likelihood * prior, color=COLOURS[3], alpha=0.3, label="their product")
    axes.set_ylabel("relative to its maximum")
    axes.set_xlabel("mean")
    axes.set_ylim(0, 1.35)
    axes.legend(fontsize="small", loc="upper left", frameon=False)
    axes.set_title("figure 3.1: few prior draws are where\nthe likelihood is", fontsize="medium")


def draw_histograms(axes: Any, found: dict[str, np.ndarray]) -> None:
    """Figures 3.2 and 3.3 on one axis, cut off at the left."""
    bins = np.linspace(-40, 10, 101)
    for (name, label), colour in zip(NAMES.items(), COLOURS):
        shown = np.clip(found[name], bins[0], bins[-1])
        axes.hist(shown, bins, density=True, color=colour, alpha=0.6, label=label)
    axes.axvline(0.0, label="exact", **TRUTH)
    axes.set_xlabel("log Z, estimate - exact (nats); lower ones at the left edge")
    axes.set_ylabel("density")
    axes.legend(fontsize="small", frameon=False, loc="upper left")
    axes.set_title(f"figures 3.2 and 3.3: {FEW} draws,\n{REPEATS:,} times", fontsize="medium")


def draw_growth(
    axes: Any, sizes: tuple[int, ...], found: dict[str, np.ndarray], what: str, place: str
) -> None:
    """Median error and the range of 90 % of the runs against a size."""
    for (name, label), colour in zip(NAMES.items(), COLOURS):
        low, middle, high = found[name].T
        axes.plot(sizes, middle, marker="o", markersize=4, color=colour, label=label)
        axes.fill_between(sizes, low, high, color=colour, alpha=0.25, linewidth=0)
    axes.axhline(0.0, label="exact", **TRUTH)
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_xlabel(what)
    axes.set_ylabel("error of log Z (nats)")
    axes.legend(fontsize="small", frameon=False, loc=place)


def main() -> None:
    """Measure, draw and write."""
    data = column(0)
    histograms = errors([data], FEW, REPEATS, 0)
    by_rows = growth(ROWS, lambda rows: [wb.zoo.gaussian.simulate(rows, seed=0)])
    by_parameters = growth(PARAMETERS, lambda count: [column(k) for k in range(count)])
    drawn = panels(None, (2, 2), (10.0, 8.0))
    draw_first(drawn.grid[0, 0], data)
    draw_histograms(drawn.grid[0, 1], histograms)
    draw_growth(drawn.grid[1, 0], ROWS, by_rows, "rows", "lower left")
    drawn.grid[1, 0].set_xscale("log")
    drawn.grid[1, 0].set_title(f"{MANY:,} draws, one parameter: more rows", fontsize="medium")
    draw_growth(drawn.grid[1, 1], PARAMETERS, by_parameters, "parameters", "center right")
    whole_numbers(drawn.grid[1, 1].xaxis)
    drawn.grid[1, 1].set_title(f"{MANY:,} draws, 100 rows: more parameters", fontsize="medium")
    save_figure(drawn.figure, FIGURE)
    report.write("roads_documents", "Why the evidence is hard", body(data, histograms, by_rows,
                                                                     by_parameters))  # fmt: skip


def body(
    data: np.ndarray,
    histograms: dict[str, np.ndarray],
    by_rows: dict[str, np.ndarray],
    by_parameters: dict[str, np.ndarray],
) -> str:
    """The tables."""
    exact = wb.zoo.gaussian.log_evidence(data)
    quantiles = (0.05, 0.5, 0.95)
    rows = [
        [label, *(f"{value:+.2f}" for value in np.quantile(histograms[name], quantiles)),
         f"{np.mean(histograms[name] > 0):.1%}"]
        for name, label in NAMES.items()
    ]  # fmt: skip
    grown = [
        [what, str(size), f"{by['prior'][k, 1]:+.2f}", f"{by['harmonic'][k, 1]:+.2f}"]
        for what, sizes, by in (
            ("rows", ROWS, by_rows), ("parameters", PARAMETERS, by_parameters)
        )
        for k, size in enumerate(sizes)
    ]  # fmt: skip
    model = wb.zoo.gaussian.model()
    methods = {
        "wb.PriorSampling(num_islands=1, num_particles=10)": wb.PriorSampling(
            num_islands=1, num_particles=FEW
        ),
        "wb.PriorSampling()": wb.PriorSampling(),
        "wb.HarmonicMean()": wb.HarmonicMean(),
        "wb.SMC()": wb.SMC(),
    }
    said = []
    for name, method in methods.items():
        result = wb.evidence(model, data, method, seed=0, progress=False)
        flags = ", ".join(flag.name for flag in result.flags) or "none"
        error = f"{result.std_error:.3f}"
        said.append([f"`{name}`", f"{result.log_evidence - exact:+.3f}", error, flags])
    return "\n\n".join(
        [
            f"Gaussian mean, prior N(0, 1), {NUM_ROWS} rows around 2; exact log Z = {exact:.4f}.",
            f"Errors in nats with {FEW} draws, {REPEATS:,} times:",
            report.table(["estimator", "5 %", "median", "95 %", "too high"], rows),
            f"Median errors in nats with {MANY:,} draws, {SMALL_REPEATS} times:",
            report.table(["growing", "number", *NAMES.values()], grown),
            "What the library says, on the same 100 rows:",
            report.table(["method", "error", "stated", "flags"], said),
        ]
    )


if __name__ == "__main__":
    main()
