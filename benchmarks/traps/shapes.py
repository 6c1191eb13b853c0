"""Plateaus, needles, balls, terraces, shells, rings and hard edges in the box [-1, 1]^d."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from benchmarks.traps import sites
from benchmarks.traps.quadrature import grid, log_integral
from benchmarks.traps.trap import LOG_TWO_PI, Modes, Trap

DRAWS = 200_000
# A narrow shell has a basin of its own up to so many widths.
NEAR = 3.0


def log_ball(size: int) -> float:
    """Log volume of the unit ball."""
    return 0.5 * size * math.log(math.pi) - math.lgamma(0.5 * size + 1)


def _squares(theta: Any, data: Any, xp: Any) -> Any:
    return xp.sum((theta[..., None, :] - data["centre"]) ** 2, axis=-1)


def ball(theta: Any, data: Any, xp: Any) -> Any:
    """Zero outside, and a height in each of some balls that do not meet."""
    inside = _squares(theta, data, xp) < data["radius"] ** 2
    return xp.sum(xp.where(inside, data["height"], 0.0), axis=-1)


def needle(theta: Any, data: Any, xp: Any) -> Any:
    """A plateau of 1 with Gaussian needles."""
    z = (theta[..., None, :] - data["centre"]) / data["scale"]
    each = data["height"] - 0.5 * xp.sum(z**2, axis=-1)
    largest = xp.maximum(xp.max(each, axis=-1), 0.0)
    total = xp.exp(-largest) + xp.sum(xp.exp(each - largest[..., None]), axis=-1)
    return largest + xp.log(total)


def shell_terms(theta: Any, data: Any, xp: Any) -> Any:
    """Log of weight times a Gaussian in the distance from the centre, for every shell."""
    radius = xp.sqrt(_squares(theta, data, xp))
    return data["height"] - 0.5 * ((radius - data["radius"]) / data["width"]) ** 2


def ring_terms(theta: Any, data: Any, xp: Any) -> Any:
    """Rings in the first two coordinates, Gaussians in the others."""
    offset = theta[..., None, :] - data["centre"]
    radius = xp.sqrt(xp.sum(offset[..., :2] ** 2, axis=-1))
    others = xp.sum((offset[..., 2:] / data["scale"][..., 2:]) ** 2, axis=-1)
    return data["height"] - 0.5 * ((radius - data["radius"]) / data["width"]) ** 2 - 0.5 * others


def _sum(each: Any, xp: Any) -> Any:
    largest = xp.max(each, axis=-1)
    return largest + xp.log(xp.sum(xp.exp(each - largest[..., None]), axis=-1))


def shell(theta: Any, data: Any, xp: Any) -> Any:
    """The sum of some shells."""
    return _sum(shell_terms(theta, data, xp), xp)


def ring(theta: Any, data: Any, xp: Any) -> Any:
    """The sum of some rings."""
    return _sum(ring_terms(theta, data, xp), xp)


def edge(theta: Any, data: Any, xp: Any) -> Any:
    """Exponential in a small box, and impossible outside."""
    inside = xp.all((theta >= data["low"][0]) & (theta <= data["high"][0]), axis=-1)
    return xp.where(inside, xp.sum(theta * data["slope"][0], axis=-1), -xp.inf)


def gaussian_in_box(centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Log of the mean over [-1, 1] of exp(-(x - centre)^2 / (2 scale^2))."""
    inside = special.ndtr((1 - centre) / scale) - special.ndtr((-1 - centre) / scale)
    return np.asarray(np.log(inside * scale / 2) + 0.5 * LOG_TWO_PI)


def log_shell(radius: float, width: float, size: int) -> float:
    """Log of the mean over the box of a shell within it, of height 1."""
    low = max(radius - 12 * width, 0.0)
    r, weights = grid(low, radius + 12 * width, width / 20)
    surface = math.log(size) + log_ball(size) - size * math.log(2)
    log_r = np.log(np.maximum(r, 1e-300))
    return surface + log_integral((size - 1) * log_r - 0.5 * ((r - radius) / width) ** 2, weights)


def _centres(generator: np.random.Generator, radii: np.ndarray, size: int) -> np.ndarray:
    """Centres of balls inside the box that do not meet, as many as fit."""
    found: list[np.ndarray] = []
    for radius in radii:
        for _ in range(200):
            centre = generator.uniform(-(1 - radius), 1 - radius, size)
            apart = [np.linalg.norm(c - centre) > radius + r for c, r in zip(found, radii)]
            if all(apart):
                found.append(centre)
                break
        else:
            break
    return np.array(found)


def _trap(
    title: str,
    likelihood: Callable[..., Any],
    size: int,
    data: dict[str, np.ndarray],
    log_parts: np.ndarray,
    reach: Callable[[], np.ndarray],
    on_host: bool,
) -> Trap:
    x = sites.uniform("x", -1.0, 1.0, size)

    def modes() -> Modes:
        return Modes(special.softmax(log_parts), np.minimum(reach(), 1.0))

    value = float(special.logsumexp(log_parts))
    return Trap("shape", title, (x,), likelihood, data, lambda: value, modes, on_host=on_host)


def _balls(generator: np.random.Generator, on_host: bool) -> Trap:
    size = int(generator.integers(1, 11))
    log_mass = np.log(10) * generator.uniform(-5.5, -1.0, int(generator.integers(1, 4)))
    log_radius = (log_mass + size * math.log(2) - log_ball(size)) / size
    radii = np.minimum(np.exp(log_radius), 0.8)
    centres = _centres(generator, radii, size)
    radii = radii[: len(centres)]
    log_mass = log_ball(size) + size * np.log(radii / 2)
    odds = generator.uniform(-2, 6, len(radii))
    data = {"centre": centres, "radius": radii, "height": odds - log_mass}
    outside = math.log1p(-np.exp(log_mass).sum())
    parts = np.append(odds, outside)
    title = f"{len(radii)} balls on a plateau, {size}-D"
    reach = np.append(np.exp(log_mass), 1.0)
    return _trap(title, ball, size, data, parts, lambda: reach, on_host)


def _terraces(generator: np.random.Generator, on_host: bool) -> Trap:
    """Balls in balls: constant on each step."""
    size, count = int(generator.integers(2, 9)), int(generator.integers(2, 7))
    step = generator.uniform(0.5, 3.0, count) / size
    radii = 0.8 * np.exp(-np.cumsum(step))
    log_mass = log_ball(size) + size * np.log(radii / 2)
    height = generator.uniform(0.8, 1.7, count) * step * size
    data = {"centre": np.zeros((count, size)), "radius": radii, "height": height}
    steps = np.append(0.0, np.cumsum(height))
    outer = np.append(0.0, log_mass)
    own = np.append(outer[:-1] + np.log1p(-np.exp(np.diff(outer))), outer[-1])
    title = f"{count} terraces, {size}-D"
    return _trap(title, ball, size, data, steps + own, lambda: np.exp(outer), on_host)


def _needles(generator: np.random.Generator, on_host: bool) -> Trap:
    size, count = int(generator.integers(1, 7)), int(generator.integers(1, 4))
    scale = 10 ** generator.uniform(-2.5, -0.7, (count, 1)) * generator.uniform(0.5, 2, (1, size))
    centre = generator.uniform(-0.95, 0.95, (count, size))
    own = gaussian_in_box(centre, scale).sum(axis=1)
    odds = generator.uniform(-1, 5, count)
    height = odds - own
    data = {"centre": centre, "scale": scale, "height": height}
    log_reach = log_ball(size) + np.log(scale / 2).sum(axis=1)
    log_reach += 0.5 * size * np.log(2 * np.maximum(height, 1e-300))
    title = f"{count} needles on a plateau, {size}-D"
    reach = np.append(np.exp(log_reach), 1.0)
    return _trap(title, needle, size, data, np.append(odds, 0.0), lambda: reach, on_host)


def _highest(terms: Callable[..., Any], data: Any, size: int) -> np.ndarray:
    """The share of the box in which each term is the highest."""
    x = np.random.default_rng(0).uniform(-1, 1, (DRAWS, size))
    highest = np.argmax(terms(x, data, np), axis=-1)
    return np.bincount(highest, minlength=len(data["height"])) / DRAWS


def _shells(generator: np.random.Generator, on_host: bool) -> Trap:
    size, count = int(generator.integers(2, 13)), int(generator.integers(1, 4))
    radius = generator.uniform(0.2, 0.5, count)
    width = np.minimum(radius * 10 ** generator.uniform(-2.5, -0.8, count), 0.04)
    room = 1 - radius - 12 * width
    centre = generator.uniform(-1, 1, (count, size)) * np.maximum(room, 0.0)[:, None]
    own = np.array([log_shell(r, w, size) for r, w in zip(radius, width)])
    odds = generator.uniform(-3, 0, count)
    data = {"centre": centre, "radius": radius, "width": width, "height": odds - own}
    near = np.exp(own + math.log(2 * NEAR) - 0.5 * LOG_TWO_PI)
    title = f"{count} shells, {size}-D"
    return _trap(
        title,
        shell,
        size,
        data,
        odds,
        lambda: np.maximum(near, _highest(shell_terms, data, size)),
        on_host,
    )


def _rings(generator: np.random.Generator, on_host: bool) -> Trap:
    size, count = int(generator.integers(2, 7)), int(generator.integers(1, 4))
    radius = generator.uniform(0.2, 0.5, count)
    width = np.minimum(radius * 10 ** generator.uniform(-2.5, -0.8, count), 0.04)
    centre = generator.uniform(-1, 1, (count, size)) * 0.9
    room = np.maximum(1 - radius - 12 * width, 0.0)[:, None]
    centre[:, :2] = np.clip(centre[:, :2], -room, room)
    scale = 10 ** generator.uniform(-1.5, 0, (count, size))
    own = np.array([log_shell(r, w, 2) for r, w in zip(radius, width)])
    own += gaussian_in_box(centre, scale)[:, 2:].sum(axis=1)
    odds = generator.uniform(-3, 0, count)
    data = {"centre": centre, "radius": radius, "width": width, "scale": scale}
    data["height"] = odds - own
    near = np.exp(own + math.log(2 * NEAR) - 0.5 * LOG_TWO_PI)
    title = f"{count} rings, {size}-D"
    return _trap(
        title,
        ring,
        size,
        data,
        odds,
        lambda: np.maximum(near, _highest(ring_terms, data, size)),
        on_host,
    )


def _edges(generator: np.random.Generator, on_host: bool) -> Trap:
    size = int(generator.integers(1, 13))
    mass = 10 ** generator.uniform(-3, 0)
    side = 2 * mass ** (generator.dirichlet(np.ones(size)))
    low = generator.uniform(-1, 1 - side)
    slope = generator.choice([-1, 1], size) * 10 ** generator.uniform(-1, 2.5, size) / side
    data = {"low": low, "high": low + side, "slope": slope}
    # exp(k x) from low to high, from the end where it is largest
    end = np.where(slope > 0, low + side, low)
    steep = np.abs(slope)
    own = slope * end + np.log(-np.expm1(-steep * side) / steep / 2)
    title = f"edges of a box with {mass:.0e} of the prior, {size}-D"
    parts = np.array([own.sum()])
    data = {name: column[None] for name, column in data.items()}
    return _trap(title, edge, size, data, parts, lambda: np.array([mass]), on_host)


MAKERS = (_balls, _needles, _shells, _rings, _edges, _terraces)


def build(generator: np.random.Generator) -> Trap:
    """One of the shapes."""
    maker = MAKERS[int(generator.integers(len(MAKERS)))]
    on_host = bool(generator.random() < 0.2)
    keep_blind = generator.random() < 0.1
    for _ in range(50):
        trap = maker(generator, on_host)
        if keep_blind or not trap.blind:
            break
    return trap
