"""Radial velocities of a star with one or two planets, with a NumPy likelihood.

Orbits are circles with periods of 2 to 200 days. Amplitudes are integrated analytically, periods
and the jitter by quadrature.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from scipy import special, stats

from benchmarks.traps import sites
from benchmarks.traps.quadrature import grid
from benchmarks.traps.sinusoids import modes_of_frequencies, on_grid
from benchmarks.traps.trap import LOG_TWO_PI, Modes, Trap

SHORTEST, LONGEST = 2.0, 200.0
# Prior standard deviation of amplitudes, in m/s.
AMPLITUDE = 10.0


def log_likelihood(theta: Any, data: Any, xp: Any) -> Any:
    """theta = log periods, a's, b's, level, and the jitter if there is one."""
    count = (theta.shape[-1] - 1) // 3
    jitter = theta[..., 3 * count + 1 :]
    frequency = xp.exp(-theta[..., None, :count])
    phase = 2 * math.pi * frequency * data["t"][:, None]
    a, b = theta[..., None, count : 2 * count], theta[..., None, 2 * count : 3 * count]
    mean = theta[..., 3 * count, None] + xp.sum(a * xp.cos(phase) + b * xp.sin(phase), axis=-1)
    variance = data["noise"] ** 2 + xp.sum(jitter**2, axis=-1, keepdims=True)
    squares = (data["y"] - mean) ** 2 / variance
    return -0.5 * xp.sum(squares + xp.log(variance) + LOG_TWO_PI, axis=-1)


def build(generator: np.random.Generator) -> Trap:
    """A star with as many planets as the model has, most of the time."""
    count = int(generator.choice([1, 2]))
    num_rows = int(generator.integers(25, 46))
    span = 100.0 if count == 2 else float(generator.uniform(100, 400))
    noise = generator.uniform(1.0, 3.0, num_rows)
    t = np.sort(generator.uniform(0, span, num_rows))
    present = count if generator.random() < 0.8 else count - 1
    strength = generator.uniform(2.0, 10.0, present)
    period = np.exp(generator.uniform(math.log(SHORTEST), math.log(LONGEST), present))
    phase = 2 * math.pi * generator.random(present)
    y = 3.0 + (strength * np.cos(2 * math.pi / period * t[:, None] + phase)).sum(axis=1)
    y = y + noise * generator.standard_normal(num_rows)
    data = {"t": t, "y": y, "noise": noise}
    with_jitter = count == 1

    @cache
    def result() -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        step = 0.5 / (10.0 / 2.0 * math.sqrt(num_rows)) / span
        points, weights = grid(1 / LONGEST, 1 / SHORTEST, step)
        log_weights = np.log(weights / points / math.log(LONGEST / SHORTEST))
        scale, mass = grid(0.0, 12.0, 0.2) if with_jitter else (np.zeros(1), np.ones(1))
        if with_jitter:
            mass = mass * stats.halfnorm(0.0, 2.0).pdf(scale)
        found = []
        for s in scale:
            own = data | {"noise": np.sqrt(noise**2 + s**2)}
            found.append(on_grid(own, points, log_weights, count, AMPLITUDE, AMPLITUDE))
        value = float(special.logsumexp([f[0] for f in found], b=mass))
        values = special.logsumexp([f[2] for f in found], axis=0, b=mass[:, None])
        return value, found[0][1], values, points, log_weights

    def modes() -> Modes:
        _, which, values, points, log_weights = result()
        return modes_of_frequencies(points, which, values, log_weights, 1 / span)

    parameters = [
        sites.uniform("log_period", math.log(SHORTEST), math.log(LONGEST), count),
        sites.normal("a", 0.0, AMPLITUDE, count),
        sites.normal("b", 0.0, AMPLITUDE, count),
        sites.normal("level", 0.0, AMPLITUDE),
    ]
    if with_jitter:
        parameters.append(sites.half_normal("jitter", 2.0))
    return Trap(
        "planets",
        f"model of {count} planet{'s' * (count > 1)}, {present} there, {num_rows} rows",
        tuple(parameters),
        log_likelihood,
        data,
        lambda: result()[0],
        modes,
        on_host=True,
    )
