"""Sinusoids of unknown frequency, one to three, with linear amplitudes and known noise.

The amplitudes are integrated analytically, the frequencies by quadrature.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from scipy.special import softmax

from benchmarks.traps import sites
from benchmarks.traps.linear import over_grid
from benchmarks.traps.quadrature import grid
from benchmarks.traps.trap import LOG_TWO_PI, Modes, Trap

# The grid's points are so far apart, over sqrt(rows) * signal to noise, in units of one over the
# time span: a third of the width of a peak.
FINENESS = 0.1
# The most points of a grid for one, two and three frequencies: three have 1.4e6 combinations.
SPANS = {1: (20.0, 400.0), 2: (10.0, 40.0), 3: (4.0, 9.0)}


def log_rows(theta: Any, row: Any, xp: Any) -> Any:
    """Rows (t, y, noise): a constant and some waves; theta = frequencies, a's, b's, constant."""
    count = (theta.shape[-1] - 1) // 3
    phase = 2 * math.pi * theta[..., :count] * row["t"][..., None]
    a, b = theta[..., count : 2 * count], theta[..., 2 * count : 3 * count]
    mean = theta[..., -1] + xp.sum(a * xp.cos(phase) + b * xp.sin(phase), axis=-1)
    z = (row["y"] - mean) / row["noise"]
    return -0.5 * z**2 - xp.log(row["noise"]) - 0.5 * LOG_TWO_PI


def log_total(theta: Any, data: Any, xp: Any) -> Any:
    """The same for all rows."""
    return xp.sum(log_rows(theta[..., None, :], data, xp), axis=-1)


def on_grid(
    data: dict[str, np.ndarray],
    points: np.ndarray,
    log_weights: np.ndarray,
    count: int,
    amplitude: float,
    level: float,
) -> tuple[float, np.ndarray, np.ndarray]:
    """The evidence, and the posterior on the grid of frequencies."""
    phase = 2 * math.pi * points[:, None] * data["t"]
    scaled = amplitude / data["noise"]
    table = np.stack([np.cos(phase) * scaled, np.sin(phase) * scaled], axis=-1)
    fixed = (level / data["noise"])[:, None]
    return over_grid(table, fixed, log_weights, count, data["y"] / data["noise"], data["noise"])


def modes_of_frequencies(
    points: np.ndarray, which: np.ndarray, values: np.ndarray, log_weights: np.ndarray, cell: float
) -> Modes:
    """Combinations of cells of frequencies, one resolution element wide, and their shares.

    Given the frequencies the amplitudes have one peak, so the prior mass of a cell is that of
    frequencies within it, in any order.
    """
    cells = np.floor((points - points[0]) / cell).astype(int)
    mass_of_cell = np.bincount(cells, np.exp(log_weights))
    chosen, group = np.unique(np.sort(cells[which], axis=0), axis=1, return_inverse=True)
    share = np.bincount(group.reshape(-1), softmax(values))
    count = len(which)
    orders = math.factorial(count)
    reach = orders * np.prod(mass_of_cell[chosen], axis=0)
    kept = share > 1e-4
    # Each order of the frequencies is a mode of its own.
    return Modes(np.repeat(share[kept] / orders, orders), np.repeat(reach[kept] / orders, orders))


def build(generator: np.random.Generator) -> Trap:
    """One to three waves, sometimes fewer than the model has."""
    count = int(generator.choice([1, 2, 3], p=[0.4, 0.4, 0.2]))
    num_rows = int(generator.integers(25, 61))
    span = math.exp(generator.uniform(*np.log(SPANS[count])))
    present = count if generator.random() < 0.8 else count - 1
    signal = 10 ** generator.uniform(-0.2, 0.5 if count < 3 else 0.2)
    noise = generator.uniform(0.7, 1.3, num_rows)
    t = np.sort(generator.random(num_rows))
    frequencies = generator.uniform(1.0, 1.0 + span, present)
    phases = 2 * math.pi * generator.random(present)
    waves = signal * np.cos(2 * math.pi * frequencies * t[:, None] + phases).sum(axis=1)
    y = 1.0 + waves + noise * generator.standard_normal(num_rows)
    data = {"t": t, "y": y, "noise": noise}
    rows = bool(generator.random() < 0.4)
    declared = count > 1 and bool(generator.random() < 0.3)
    on_host = not rows and bool(generator.random() < 0.5)

    @cache
    def result() -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        step = FINENESS * 4 / max(signal * math.sqrt(num_rows), 4.0)
        points, weights = grid(1.0, 1.0 + span, step)
        log_weights = np.log(weights / span)
        return *on_grid(data, points, log_weights, count, 3.0, 3.0), points, log_weights

    def modes() -> Modes:
        _, which, values, points, log_weights = result()
        return modes_of_frequencies(points, which, values, log_weights, 1.0)

    return Trap(
        "sinusoid",
        f"{count} waves, {present} there, {span:.0f} resolution elements, {num_rows} rows"
        + (", exchangeable" if declared else ""),
        (
            sites.uniform("frequency", 1.0, 1.0 + span, count),
            sites.normal("a", 0.0, 3.0, count),
            sites.normal("b", 0.0, 3.0, count),
            sites.normal("level", 0.0, 3.0),
        ),
        log_rows if rows else log_total,
        data,
        lambda: result()[0],
        modes,
        rows=rows,
        on_host=on_host,
        exchangeable={"frequency": 0, "a": 0, "b": 0} if declared else None,
    )
