"""Funnels: Neal's with data, in a box, and the centred hierarchical normal with a small scale.

Given the scale (and the common mean) the values are independent and Gaussian, so the evidence is
an integral over the logarithm of the scale.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special, stats

from benchmarks.traps import sites
from benchmarks.traps.quadrature import grid, log_integral
from benchmarks.traps.sites import Before, Site
from benchmarks.traps.trap import LOG_TWO_PI, Trap


def log_rows(theta: Any, row: Any, xp: Any) -> Any:
    """Row (y, noise, member): the last coordinates of theta are the members' values."""
    values = xp.sum(theta * row["member"], axis=-1)
    z = (row["y"] - values) / row["noise"]
    return -0.5 * z**2 - xp.log(row["noise"]) - 0.5 * LOG_TWO_PI


def in_box(theta: Any, data: Any, xp: Any) -> Any:
    """Neal's funnel as a likelihood: theta = v, x's."""
    v, x = theta[..., 0], theta[..., 1:]
    wide = data["width"][0]
    squares = xp.sum(x**2, axis=-1) * xp.exp(-v)
    size = theta.shape[-1] - 1
    head = -0.5 * (v / wide) ** 2 - xp.log(wide) - 0.5 * LOG_TWO_PI
    return head - 0.5 * squares - 0.5 * size * (v + LOG_TWO_PI)


def _members(name: str, size: int, scale_of: Any, mean_of: Any) -> Site:
    """Values with a scale, and perhaps a mean, that come earlier: the centred form."""

    def prior(dist: Any) -> Any:
        return lambda p: dist.Normal(mean_of(p), scale_of(p)).expand([size]).to_event(1)

    def quantile(cube: np.ndarray, before: Before) -> np.ndarray:
        return np.asarray(mean_of(before) + scale_of(before) * special.ndtri(cube))

    return Site(name, size, prior, quantile, size)


def _rows(y: np.ndarray, noise: np.ndarray, before: int) -> dict[str, np.ndarray]:
    member = np.concatenate([np.zeros((len(y), before)), np.eye(len(y))], axis=1)
    return {"y": y, "noise": noise, "member": member}


def exact_neal(y: np.ndarray, noise: np.ndarray, width: float) -> float:
    """The integral over v of its prior and of y_i ~ N(0, e^v + noise_i^2)."""
    v, weights = grid(-14 * width, 14 * width, width / 50)
    variance = np.exp(v)[:, None] + noise**2
    values = -0.5 * np.sum(y**2 / variance + np.log(variance) + LOG_TWO_PI, axis=1)
    return log_integral(values + stats.norm(0, width).logpdf(v), weights)


def exact_hierarchical(y: np.ndarray, noise: np.ndarray, scale: float, width: float) -> float:
    """The integral over tau, after that over the common mean, which is Gaussian."""
    log_tau, weights = grid(math.log(scale) - 40, math.log(scale) + 4, 0.02)
    tau = np.exp(log_tau)[:, None]
    precision = 1 / (tau**2 + noise**2)
    total = precision.sum(axis=1)
    middle = (precision * y).sum(axis=1)
    squares = (precision * y**2).sum(axis=1) - middle**2 / (total + 1 / width**2)
    values = 0.5 * np.log(precision / (2 * math.pi)).sum(axis=1) - 0.5 * squares
    values = values - 0.5 * np.log(1 + width**2 * total)
    prior = stats.halfnorm(0, scale).logpdf(tau[:, 0]) + log_tau
    return log_integral(values + prior, weights)


def exact_in_box(size: int, width: float, half: float) -> float:
    """The integral over v of the mass in the box."""
    v, weights = grid(-half, half, half / 2000)
    inside = size * np.log(special.erf(half / math.sqrt(2) / np.exp(v / 2)))
    density = inside + stats.norm(0, width).logpdf(v)
    return log_integral(density, weights) - (size + 1) * math.log(2 * half)


def _neal(generator: np.random.Generator) -> Trap:
    size, width = int(generator.integers(2, 16)), float(generator.uniform(1, 3))
    v = generator.normal(0, width)
    noise = 10 ** generator.uniform(-1, 1) * generator.uniform(0.7, 1.4, size)
    y = math.exp(v / 2) * generator.standard_normal(size) + noise * generator.standard_normal(size)
    values = _members(
        "x",
        size,
        lambda p: _exp_half(p["v"]),
        lambda p: 0.0,
    )
    return Trap(
        "funnel",
        f"Neal's with data, {size + 1}-D",
        (sites.normal("v", 0.0, width), values),
        log_rows,
        _rows(y, noise, 1),
        lambda: exact_neal(y, noise, width),
        rows=True,
    )


def _exp_half(v: Any) -> Any:
    """exp(v / 2) for NumPy, NumPyro and tracers alike."""
    return math.e ** (v / 2)


def _hierarchical(generator: np.random.Generator) -> Trap:
    size = int(generator.integers(4, 16))
    noise = generator.uniform(0.5, 2.0, size)
    scale, width = float(10 ** generator.uniform(-0.5, 1)), 5.0
    tau = 10 ** generator.uniform(-2, -0.3)
    y = generator.normal(0, 2) + np.sqrt(tau**2 + noise**2) * generator.standard_normal(size)
    values = _members("theta", size, lambda p: p["tau"], lambda p: p["mu"])
    return Trap(
        "funnel",
        f"hierarchical normal, centred, {size} groups",
        (sites.normal("mu", 0.0, width), sites.half_normal("tau", scale), values),
        log_rows,
        _rows(y, noise, 2),
        lambda: exact_hierarchical(y, noise, scale, width),
        rows=True,
    )


def _in_box(generator: np.random.Generator) -> Trap:
    size, width = int(generator.integers(2, 12)), float(generator.uniform(1, 3))
    return Trap(
        "funnel",
        f"in a box, {size + 1}-D",
        (sites.uniform("x", -30.0, 30.0, size + 1),),
        in_box,
        {"width": np.array([width])},
        lambda: exact_in_box(size, width, 30.0),
        on_host=bool(generator.random() < 0.2),
    )


def build(generator: np.random.Generator) -> Trap:
    """One of the three."""
    return (_neal, _hierarchical, _in_box)[int(generator.integers(3))](generator)
