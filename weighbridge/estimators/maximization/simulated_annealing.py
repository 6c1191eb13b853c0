"""Simulated annealing, followed by local optimisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from weighbridge.core.errors import ModelError

# Temperature at the end of the annealing (nats).
LAST_TEMPERATURE = 0.01
WANTED_ACCEPTANCE = 0.3
# Optima whose heights differ by less than this (nats) count as the same.
SAME_OPTIMUM = 1e-3

Height = Callable[[np.ndarray], np.ndarray]
Slope = Callable[[np.ndarray], tuple[float, np.ndarray]]


class Problem(NamedTuple):
    """A function of unconstrained vectors that is to be maximised.

    Attributes:
        height: its values at several vectors.
        reference: log density at high temperature: the prior.
        slope: value and gradient at one vector; None if there is no gradient.
        curvature: matrix of second derivatives at one vector; None if there is none.
    """

    height: Height
    reference: Height
    slope: Slope | None
    curvature: Callable[[np.ndarray], np.ndarray] | None


def anneal(
    problem: Problem,
    draws: np.ndarray,
    scale: np.ndarray,
    num_starts: int,
    num_steps: int,
    seed: int,
) -> np.ndarray:
    """The best position that each start has visited during the cooling.

    At high temperature the target is the prior, not a flat density: without the prior, walkers
    could drift arbitrarily far before they are cold.
    """
    generator = np.random.default_rng(seed)
    at_draws = _defined(problem.height(draws))
    if not np.isfinite(at_draws).any():
        raise ModelError(
            "The density is zero, or not a number, at every prior draw that was tried. Check the "
            "log-likelihood, and the scale of the data."
        )
    chosen = np.argsort(-at_draws, kind="stable")[:num_starts]
    position, current = draws[chosen], at_draws[chosen]
    known = problem.reference(position)
    best, top = position.copy(), current.copy()
    finite = at_draws[np.isfinite(at_draws)]
    first = max(1.0, float(np.quantile(finite, 0.75) - np.quantile(finite, 0.25)))
    step = np.ones(num_starts)
    for index in range(num_steps):
        temperature = first * (LAST_TEMPERATURE / first) ** ((index + 1) / num_steps)
        # Steps of many lengths, so that a walker in a poor optimum can still leave it.
        length = step * np.exp(generator.normal(size=num_starts))
        noise = _directions(generator, position.shape)
        proposed = position + length[:, None] * scale * noise
        there, likely = _defined(problem.height(proposed)), problem.reference(proposed)
        log_ratio = _difference(there, current) / temperature + _difference(likely, known)
        log_ratio = np.where(np.isnan(log_ratio), -np.inf, log_ratio)
        probability = np.exp(np.minimum(log_ratio, 0.0))
        taken = generator.uniform(size=num_starts) < probability
        position = np.where(taken[:, None], proposed, position)
        current, known = np.where(taken, there, current), np.where(taken, likely, known)
        better = current > top
        best, top = np.where(better[:, None], position, best), np.where(better, current, top)
        step = np.clip(step * np.exp(0.1 * (probability - WANTED_ACCEPTANCE)), 1e-6, 10.0)
    return best


def _directions(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Normal numbers; for half of the starts only in one coordinate.

    Optima often differ in one coordinate only.
    """
    noise = generator.normal(size=shape)
    one = np.arange(shape[1]) == generator.integers(shape[1], size=shape[0])[:, None]
    alone = generator.uniform(size=(shape[0], 1)) < 0.5
    return np.where(alone, one * noise, noise / math.sqrt(shape[1]))


def _defined(heights: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(heights) | (heights == np.inf), -np.inf, heights)


def _difference(there: np.ndarray, here: np.ndarray) -> np.ndarray:
    """The difference of two heights; +inf where the current height is not finite."""
    known = np.isfinite(here)
    return np.where(known, there - np.where(known, here, 0.0), np.inf)


def polish(problem: Problem, position: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, float]:
    """Local optimisation from a position: L-BFGS, and Nelder-Mead if that is not possible."""
    start = float(_defined(problem.height(position[None]))[0])
    ends = [(position, start)]
    if problem.slope is not None:
        ends.append(_lbfgs(problem, problem.slope, position, scale))
    if problem.slope is None or not math.isfinite(ends[-1][1]) or ends[-1][1] < start:
        ends.append(_nelder_mead(problem, position, scale))
    return max(ends, key=lambda end: end[1])


def _lbfgs(
    problem: Problem,
    slope: Slope,
    position: np.ndarray,
    scale: np.ndarray,
) -> tuple[np.ndarray, float]:
    """L-BFGS, in units of the scale."""

    def downhill(place: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = slope(place * scale)
        if not math.isfinite(value):
            return 1e30, np.zeros_like(gradient)
        return -value, -np.nan_to_num(gradient) * scale

    options = {"maxiter": 2000, "maxfun": 10_000, "ftol": 1e-14, "gtol": 1e-9}
    # Imported here: it takes a tenth of a second, and most answers do not need it.
    from scipy.optimize import minimize

    found = minimize(downhill, position / scale, jac=True, method="L-BFGS-B", options=options)
    end = np.asarray(found.x) * scale
    return end, float(_defined(problem.height(end[None]))[0])


def _nelder_mead(
    problem: Problem, position: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, float]:
    """Nelder-Mead, restarted while that helps, because the simplex may collapse."""
    end, top = position, float(_defined(problem.height(position[None]))[0])
    from scipy.optimize import minimize

    for _ in range(3):
        found = minimize(
            lambda place: -float(_defined(problem.height((place * scale)[None]))[0]),
            end / scale,
            method="Nelder-Mead",
            options={"maxiter": 1000 * len(scale), "xatol": 1e-8, "fatol": 1e-9, "adaptive": True},
        )
        gained = -float(found.fun) - top
        end, top = np.asarray(found.x) * scale, -float(found.fun)
        if not gained > SAME_OPTIMUM:
            break
    return end, top
