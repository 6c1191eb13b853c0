"""Labels that may be permuted: small Gaussian mixtures, and symmetric functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special, stats

from benchmarks.traps import sites
from benchmarks.traps.trap import LOG_TWO_PI, Modes, Trap

# Assignments that are summed at a time.
TOGETHER = 50_000


def log_rows(theta: Any, row: Any, xp: Any) -> Any:
    """A mixture with known widths: theta = weights, means."""
    count = theta.shape[-1] // 2
    weight, mean = theta[..., :count], theta[..., count:]
    z = (row["y"][..., None] - mean) / row["scale"][..., None]
    each = xp.log(xp.maximum(weight, 1e-300)) - 0.5 * z**2 - 0.5 * LOG_TWO_PI
    largest = xp.max(each, axis=-1)
    total = xp.log(xp.sum(xp.exp(each - largest[..., None]), axis=-1))
    return largest + total - xp.log(row["scale"])


def assignments(num_rows: int, count: int) -> Iterator[np.ndarray]:
    """All ways to give each row to one of the components, some at a time."""
    total = count**num_rows
    for start in range(0, total, TOGETHER):
        numbers = np.arange(start, min(start + TOGETHER, total))
        yield numbers[:, None] // count ** np.arange(num_rows) % count


def log_prior_of_counts(counts: np.ndarray, concentration: float) -> np.ndarray:
    """Log probability of an assignment with these counts, the weights integrated."""
    size, rows = counts.shape[1], counts[0].sum()
    each = special.gammaln(counts + concentration) - special.gammaln(concentration)
    whole = size * concentration
    return each.sum(axis=1) + special.gammaln(whole) - special.gammaln(rows + whole)


def exact(y: np.ndarray, scale: float, count: int, concentration: float, width: float) -> float:
    """The sum over all assignments of rows to components."""
    found = []
    for chosen in assignments(len(y), count):
        counts = np.stack([(chosen == k).sum(axis=1) for k in range(count)], axis=1)
        values = log_prior_of_counts(counts, concentration)
        for k in range(count):
            own = chosen == k
            n, total, squares = counts[:, k], own @ y, own @ y**2
            # n rows around a mean with the prior N(0, width^2)
            variance = scale**2 + n * width**2
            exponent = squares / scale**2 - width**2 * total**2 / scale**2 / variance
            values = values - 0.5 * exponent - 0.5 * n * LOG_TWO_PI
            values = values - (n - 1) * math.log(scale) - 0.5 * np.log(variance)
        found.append(special.logsumexp(values))
    return float(special.logsumexp(found))


def _mixture(generator: np.random.Generator) -> Trap:
    count = int(generator.choice([2, 3, 4]))
    num_rows = int(generator.integers(6, {2: 16, 3: 11, 4: 9}[count]))
    scale, width = float(generator.uniform(0.2, 1.0)), 5.0
    concentration = float(generator.choice([0.5, 1.0, 3.0]))
    means = generator.uniform(-6, 6, count)
    y = means[generator.integers(count, size=num_rows)]
    y = y + scale * generator.standard_normal(num_rows)
    declared = bool(generator.random() < 0.4)
    return Trap(
        "labels",
        f"mixture of {count}, {num_rows} rows" + (", exchangeable" if declared else ""),
        (sites.dirichlet("weight", count, concentration), sites.normal("mean", 0.0, width, count)),
        log_rows,
        {"y": y, "scale": np.full(num_rows, scale)},
        lambda: exact(y, scale, count, concentration, width),
        lambda: _equal(count),
        rows=True,
        exchangeable={"weight": 0, "mean": 0} if declared else None,
    )


def _equal(count: int) -> Modes:
    """As many modes as permutations, each with the same share and basin."""
    share = np.full(math.factorial(count), 1 / math.factorial(count))
    return Modes(share, share)


def permanent(theta: Any, data: Any, xp: Any) -> Any:
    """Mean over permutations of a product of normal densities."""
    size = theta.shape[-1]
    z = (theta[..., :, None] - data["place"]) / data["width"]
    table = -0.5 * z**2 - xp.log(data["width"]) - 0.5 * LOG_TWO_PI
    orders = np.array(list(itertools.permutations(range(size))))
    each = xp.sum(table[..., orders, np.arange(size)], axis=-1)
    largest = xp.max(each, axis=-1)
    total = xp.sum(xp.exp(each - largest[..., None]), axis=-1)
    return largest + xp.log(total) - math.lgamma(size + 1)


def _symmetric(generator: np.random.Generator) -> Trap:
    size = int(generator.integers(2, 6))
    place = np.sort(generator.uniform(-8, 8, size))
    width = 10 ** generator.uniform(-1.5, 0, size)
    inside = stats.norm(place, width)
    value = float(np.log((inside.cdf(10.0) - inside.cdf(-10.0)) / 20.0).sum())
    declared = bool(generator.random() < 0.4)
    return Trap(
        "labels",
        f"{math.factorial(size)} permutations in {size}-D" + (", exchangeable" if declared else ""),
        (sites.uniform("x", -10.0, 10.0, size),),
        permanent,
        {"place": place, "width": width},
        lambda: value,
        lambda: _equal(size),
        on_host=bool(generator.random() < 0.2),
        exchangeable={"x": 0} if declared else None,
    )


def build(generator: np.random.Generator) -> Trap:
    """A mixture with rows, or a symmetric function without."""
    return _mixture(generator) if generator.random() < 0.6 else _symmetric(generator)
