"""The next power of a path, at which the effective sample size meets its target."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.core.resampling import relative_weights

# The increment is searched between exp(-SEARCH_DEPTH) and 1 times the remaining power, ...
SEARCH_DEPTH = 700.0
# ... until the ESS has this relative distance from its target, or after this many trials.
NEAR_ENOUGH = 1e-10
SEARCH_STEPS = 60
TINY = 1e-300


class Tilted:
    r"""Particles whose weights W are tilted by e^{step l}; their ESS at any step.

    .. math:: \mathrm{ESS}(\Delta) = M \frac{(\sum_i W_i e^{\Delta \ell_i})^2}
                                            {\sum_i W_i e^{2 \Delta \ell_i}}

    Zhou, Johansen & Aston (2016), J. Comput. Graph. Stat. 25:701-726. With equal W it is the
    ESS of Kong, Liu & Wong (1994). Particles at -inf have no weight at any positive step.

    Args:
        log_likelihood: l, ... x particles.
        log_weight: log W, of a shape that fits.

    >>> Tilted(np.array([0.0, 0.0, -np.inf]), np.zeros(3)).ess(1.0).tolist()
    2.0
    """

    def __init__(self, log_likelihood: np.ndarray, log_weight: np.ndarray) -> None:
        weight, _ = relative_weights(np.asarray(log_weight))
        finite = np.isfinite(log_likelihood) & (weight > 0)
        highest = np.max(np.where(finite, log_likelihood, -np.inf), axis=-1, keepdims=True)
        self.num_particles = log_likelihood.shape[-1]
        self.total = weight.sum(axis=-1)
        self.weight = np.where(finite, weight, 0.0)
        level = np.where(np.isfinite(highest), highest, 0.0)
        self.depth = np.where(finite, log_likelihood, level) - level

    def ess(self, step: float) -> np.ndarray:
        """The ESS of each population at this step."""
        exponent = step * self.depth
        if step < 0:  # the lowest particle gains most
            exponent -= exponent.max(axis=-1, keepdims=True)
        tilt = np.exp(exponent)
        tilted = self.weight * tilt
        square = self.total * np.sum(tilted * tilt, axis=-1)
        ratio = np.sum(tilted, axis=-1) ** 2 / np.where(square > 0, square, 1.0)
        return np.asarray(self.num_particles * ratio)


class Search(NamedTuple):
    """The end of a search for the next step.

    Attributes:
        step: the step that was found.
        ess: of each island, at this step.
        lowered: whether the ESS of the smallest step is too little, so that the target was lowered.
        num_trials: number of trials.
    """

    step: float
    ess: np.ndarray
    lowered: bool
    num_trials: int


def search_increment(
    log_likelihood: np.ndarray, log_weight: np.ndarray, target_ess: float, remaining: float
) -> Search:
    r"""The step of the power at which the ESS, averaged over islands, meets its target.

    It is found by the secant method in the coordinates in which the ESS is a straight line, if
    log-likelihoods with variance sigma^2 are about normal and steps are small:

    .. math:: \log(M / \mathrm{ESS} - 1) \approx 2 \log \Delta + 2 \log \sigma.

    If a secant leaves the bracket, bisection is used. This needs a third of the trials of bisection
    alone. If too few particles are finite to reach the target at any positive step, the target is
    that fraction of the finite particles.

    Args:
        log_likelihood: of the chunk, islands x particles.
        log_weight: carried weights (zeros: all particles have equal weight), islands x particles.
        target_ess: as a fraction of the particles.
        remaining: the largest step allowed.

    >>> found = search_increment(np.arange(10.0)[None] * 100, np.zeros((1, 10)), 0.5, 1.0)
    >>> round(float(found.ess[0]), 2), found.step < 1, found.lowered
    (5.0, True, False)
    """
    tilted = Tilted(log_likelihood, log_weight)
    log_remaining = math.log(remaining)
    low, high = log_remaining - SEARCH_DEPTH, log_remaining
    smallest = float(np.mean(tilted.ess(math.exp(low))))
    num_particles = tilted.num_particles
    lowered = smallest <= target_ess * num_particles * (1 + 1e-9)
    reachable = smallest if lowered else float(num_particles)
    wanted = target_ess * reachable
    whole = tilted.ess(remaining)
    if np.mean(whole) >= wanted:
        return Search(remaining, whole, lowered, 2)
    aim = math.log(1.0 / target_ess - 1.0)

    def excess_of(mean: float) -> float:
        return math.log(max(reachable / mean - 1.0, TINY) if mean > 0 else math.inf) - aim

    here = min(max(_log_guess(log_likelihood, log_weight, target_ess), low), high)
    before: tuple[float, float] | None = None
    for trial in range(SEARCH_STEPS):
        ess = tilted.ess(math.exp(here))
        mean = float(np.mean(ess))
        if abs(mean - wanted) <= NEAR_ENOUGH * wanted:
            return Search(math.exp(here), ess, lowered, trial + 3)
        low, high = (here, high) if mean >= wanted else (low, here)
        excess = excess_of(mean)
        # The secant through the last two trials; at first with the slope of small steps.
        slope = 2.0
        if before is not None:
            run, rise = here - before[0], excess - before[1]
            slope = rise / run if rise * run > 0 else 2.0
        before = here, excess
        secant = here - excess / slope
        # Every fourth trial bisects, so that the search ends for every shape of the curve.
        use_secant = low < secant < high and trial % 4 != 3
        here = secant if use_secant else 0.5 * (low + high)
    return Search(math.exp(low), tilted.ess(math.exp(low)), lowered, SEARCH_STEPS + 3)


def _log_guess(log_likelihood: np.ndarray, log_weight: np.ndarray, target_ess: float) -> float:
    """The log of the step, if log-likelihoods were normal over the particles of all islands."""
    values = log_likelihood[np.isfinite(log_likelihood) & np.isfinite(log_weight)]
    count = max(values.size, 1)
    mean = np.sum(values / count)
    # Absolute deviations, because squares may overflow and depend on the worst particle only.
    deviation = np.sum(np.abs(values - mean) / count)
    spread = math.sqrt(math.pi / 2) * float(deviation)
    return 0.5 * math.log(1.0 / target_ess - 1.0) - math.log(max(spread, TINY))
