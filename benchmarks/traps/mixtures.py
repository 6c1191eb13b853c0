"""Mixtures of two to eight Gaussians or Student-t's in 2 to 20 dimensions.

Widths differ by up to a factor of 100, weights by e^3. Every component has a covariance of one
factor, scale_i scale_j (loading_i loading_j + [i = j] (1 - loading_i^2)), so that its mass in the
prior's box is an integral over that factor, and over the scale of a Student-t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from scipy import special, stats

from benchmarks.traps import sites
from benchmarks.traps.quadrature import grid
from benchmarks.traps.trap import LOG_TWO_PI, Modes, Trap

# Draws that measure how much prior mass a mode's basin has.
DRAWS = 20_000
# Blind mixtures are drawn again so often, in nine of ten cases.
ATTEMPTS = 60


def component_log_densities(theta: Any, data: Any, xp: Any) -> Any:
    """Log densities of all components, [..., K]; degrees of 0 mean a Gaussian."""
    size = theta.shape[-1]
    loading, rest = data["loading"], 1.0 - data["loading"] ** 2
    z = (theta[..., None, :] - data["mean"]) / data["scale"]
    common = 1.0 + xp.sum(loading**2 / rest, axis=-1)
    squares = xp.sum(z**2 / rest, axis=-1) - xp.sum(z * loading / rest, axis=-1) ** 2 / common
    log_det = xp.sum(2 * xp.log(data["scale"]) + xp.log(rest), axis=-1) + xp.log(common)
    heavy = data["degrees"] > 0
    degrees = xp.where(heavy, data["degrees"], 1.0)
    tail = xp.where(heavy, -0.5 * (degrees + size) * xp.log1p(squares / degrees), -0.5 * squares)
    return data["constant"] - 0.5 * log_det + tail


def log_likelihood(theta: Any, data: Any, xp: Any) -> Any:
    """Log density of the mixture."""
    each = data["log_weight"] + component_log_densities(theta, data, xp)
    largest = xp.max(each, axis=-1)
    return largest + xp.log(xp.sum(xp.exp(each - largest[..., None]), axis=-1))


def _scales_of_student(degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of u in x = mean + Gaussian / sqrt(u)."""
    if degrees == 0:
        return np.ones(1), np.ones(1)
    law = stats.gamma(degrees / 2, scale=2 / degrees)
    low, high = np.log(law.ppf(1e-15)), np.log(law.isf(1e-15))
    points, weights = grid(low, high, (high - low) / 100)
    u = np.exp(points)
    return u, weights * law.pdf(u) * u


def mass_in_box(data: Any, k: int, half: float) -> float:
    """Mass of component k in the box [-half, half]^d."""
    mean, scale, loading = (data[name][k] for name in ("mean", "scale", "loading"))
    factor, weights = grid(-9.0, 9.0, 0.06)
    weights = weights * np.exp(-0.5 * factor**2 - 0.5 * LOG_TWO_PI)
    total = 0.0
    for u, weight in zip(*_scales_of_student(float(data["degrees"][k]))):
        inside = np.ones_like(factor)
        for m, s, a in zip(mean, scale, loading):
            rest = math.sqrt(1 - a**2)
            high = ((half - m) / s * math.sqrt(u) - a * factor) / rest
            low = ((-half - m) / s * math.sqrt(u) - a * factor) / rest
            inside *= special.ndtr(high) - special.ndtr(low)
        total += weight * float(weights @ inside)
    return total


def covariance(data: Any, k: int) -> np.ndarray:
    """Covariance of component k, or the scale matrix of a Student-t."""
    scale, loading = data["scale"][k], data["loading"][k]
    return np.outer(scale, scale) * (np.outer(loading, loading) + np.diag(1 - loading**2))


def overlap_with_normal(data: Any, k: int, width: float) -> float:
    """Integral of component k times a normal prior."""
    size, total = data["mean"].shape[1], 0.0
    values, vectors = np.linalg.eigh(covariance(data, k))
    squares = (vectors.T @ data["mean"][k]) ** 2
    for u, weight in zip(*_scales_of_student(float(data["degrees"][k]))):
        variance = values / u + width**2
        exponent = -0.5 * np.sum(squares / variance + np.log(variance)) - 0.5 * size * LOG_TWO_PI
        total += weight * math.exp(exponent)
    return total


def log_masses(data: Any, prior: str, width: float) -> np.ndarray:
    """Log evidence of every component."""
    size, count = data["mean"].shape[1], len(data["log_weight"])
    if prior == "box":
        own = [mass_in_box(data, k, width) for k in range(count)]
        return data["log_weight"] + np.log(own) - size * math.log(2 * width)
    own = [overlap_with_normal(data, k, width) for k in range(count)]
    return data["log_weight"] + np.log(own)


def basin(data: Any, k: int, prior: str, width: float, generator: np.random.Generator) -> float:
    """Prior mass of the region in which component k is the highest.

    From points with random directions and log-uniform distances from its centre.
    """
    size = data["mean"].shape[1]
    root = np.linalg.cholesky(covariance(data, k))
    direction = generator.standard_normal((DRAWS, size))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    largest = math.log(4 * width * math.sqrt(size) / data["scale"][k].min() / 0.1)
    log_radius = math.log(0.1) + largest * generator.random(DRAWS)
    x = data["mean"][k] + np.exp(log_radius)[:, None] * (direction @ root.T)
    each = data["log_weight"] + component_log_densities(x, data, np)
    if prior == "box":
        log_prior = np.where(
            np.all(np.abs(x) <= width, axis=1), -size * math.log(2 * width), -np.inf
        )
    else:
        log_prior = np.sum(stats.norm(0, width).logpdf(x), axis=1)
    log_surface = math.log(2) + 0.5 * size * math.log(math.pi) - special.gammaln(size / 2)
    log_volume = log_surface + np.log(np.diag(root)).sum() + size * log_radius + math.log(largest)
    terms = np.where(np.argmax(each, axis=1) == k, log_prior + log_volume, -np.inf)
    return float(np.exp(special.logsumexp(terms) - math.log(DRAWS)))


def modes(data: Any, prior: str, width: float, masses: Callable[[], np.ndarray]) -> Modes:
    """Masses of the components, and the prior mass of the regions where each is the highest."""
    generator = np.random.default_rng(0)
    reach = [basin(data, k, prior, width, generator) for k in range(len(data["mean"]))]
    return Modes(special.softmax(masses()), np.array(reach))


def _draw(generator: np.random.Generator) -> Trap:
    size, count = int(generator.integers(2, 21)), int(generator.integers(2, 9))
    prior = "box" if generator.random() < 0.7 else "normal"
    # A mode much narrower than another one has no basin to speak of in many dimensions.
    ratio = 100 ** min(1.0, 2.5 / size)
    width = 10.0
    narrowest = 10 ** generator.uniform(-1.7, -0.3)
    ratios = ratio ** np.append(generator.random(count - 2), [0.0, 1.0])
    overall = narrowest * generator.permutation(ratios)
    overall = overall * min(1.0, 0.4 * width / overall.max())
    shape = (count, size)
    spread = 0.8 * width if prior == "box" else 0.8 * width * generator.uniform(0.3, 1.5)
    heavy = generator.random() < 0.4
    degrees = np.round(generator.uniform(2, 10, count), 1) * heavy
    half = 0.5 * (degrees + size)
    safe = np.where(degrees > 0, degrees, 1.0)
    student = special.gammaln(half) - special.gammaln(safe / 2) - 0.5 * size * np.log(safe * np.pi)
    data = {
        "log_weight": np.log(special.softmax(generator.uniform(0, 3, count))),
        "mean": generator.uniform(-spread, spread, shape),
        "scale": overall[:, None] * np.exp(generator.uniform(-0.5, 0.5, shape) / math.sqrt(size)),
        "loading": generator.uniform(-0.95, 0.95, shape) * (generator.random((count, 1)) < 0.7),
        "degrees": degrees,
        "constant": np.where(degrees > 0, student, -0.5 * size * LOG_TWO_PI),
    }
    masses = cache(partial(log_masses, data, prior, width))
    x = sites.uniform("x", -width, width, size)
    if prior == "normal":
        x = sites.normal("x", 0.0, width, size)
    return Trap(
        "mixture",
        f"{count} {'Student-t' if heavy else 'Gaussian'} modes, {size}-D, {prior} prior",
        (x,),
        log_likelihood,
        data,
        lambda: special.logsumexp(masses()),
        partial(modes, data, prior, width, masses),
        on_host=bool(generator.random() < 0.2),
    )


def build(generator: np.random.Generator) -> Trap:
    """A mixture, most of the time one whose modes can all be found."""
    keep_blind = generator.random() < 0.1
    for _ in range(ATTEMPTS):
        trap = _draw(generator)
        if keep_blind or not trap.blind:
            break
    return trap
