"""The next power of a path, at which the effective sample size meets its target."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.resampling import relative_weights
from weighbridge.core.types import Array

# The increment is searched between exp(-SEARCH_DEPTH) and 1 times the remaining power, ...
SEARCH_DEPTH = 700.0
# ... until the ESS has this relative distance from its target, or after this many trials.
NEAR_ENOUGH = 1e-10
SEARCH_STEPS = 60
TINY = 1e-300


def conditional_ess(log_likelihood: Array, log_weight: Array, step: Array | float) -> Array:
    r"""ESS of the incremental weights e^{step l}, with the carried weights W.

    .. math:: \mathrm{ESS}(\Delta) = M \frac{(\sum_i W_i e^{\Delta \ell_i})^2}
                                            {\sum_i W_i e^{2 \Delta \ell_i}}

    Zhou, Johansen & Aston (2016), J. Comput. Graph. Stat. 25:701-726. With equal W it is the
    ESS of Kong, Liu & Wong (1994). Particles at -inf have no weight at any positive step.
    """
    weight, _ = relative_weights(log_weight)
    finite = jnp.isfinite(log_likelihood) & (weight > 0)
    highest = jnp.max(jnp.where(finite, log_likelihood, -jnp.inf))
    tilt = jnp.where(finite, jnp.exp(step * (log_likelihood - highest)), 0.0)
    square = jnp.sum(weight) * jnp.sum(weight * tilt**2)
    ratio = jnp.sum(weight * tilt) ** 2 / jnp.where(square > 0, square, 1.0)
    return log_weight.shape[0] * ratio


def choose_increment(
    log_likelihood: Array,
    log_weight: Array,
    target_ess: Array | float,
    remaining: Array | float,
    increment: Array | float = float("nan"),
) -> tuple[Array, Array, Array]:
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
        increment: take this step, whatever its ESS; NaN: the ESS determines the step.

    Returns:
        The step, the ESS of each island at this step, and whether the target was lowered.

    >>> step, ess, lowered = choose_increment(jnp.arange(10.0)[None] * 100, jnp.zeros((1, 10)),
    ...                                       0.5, 1.0)
    >>> round(float(ess[0]), 2), bool(step < 1), bool(lowered)
    (5.0, True, False)
    """
    found = search_increment(log_likelihood, log_weight, target_ess, remaining, increment)
    given = jnp.asarray(increment)
    fixed = ~jnp.isnan(given)
    step = jnp.where(found.whole, remaining, jnp.exp(found.log_step))
    return jnp.where(fixed, given, step), found.ess, found.lowered & ~fixed


def search_increment(
    log_likelihood: Array,
    log_weight: Array,
    target_ess: Array | float,
    remaining: Array | float,
    increment: Array | float,
) -> Search:
    """The final state of the search of ``choose_increment``."""
    num_particles = log_likelihood.shape[1]
    log_remaining = jnp.log(remaining)

    def evaluate(search: Search) -> Search:
        # The only place that computes the ESS: each further one would add compile time.
        step = jnp.where(fixed, given, jnp.exp(search.log_step))
        ess = jax.vmap(conditional_ess, in_axes=(0, 0, None))(log_likelihood, log_weight, step)
        mean, turn = jnp.mean(ess), search.turn
        first = turn == 0
        lowered = jnp.where(first, mean <= target_ess * num_particles * (1 + 1e-9), search.lowered)
        reachable = jnp.where(first, jnp.where(lowered, mean, num_particles), search.reachable)
        wanted = target_ess * reachable
        enough = mean >= wanted
        whole = (turn == 1) & enough
        low = jnp.where((turn > 1) & enough, search.log_step, search.low)
        high = jnp.where((turn > 1) & ~enough, search.log_step, search.high)
        lost = jnp.log(jnp.maximum(reachable / mean - 1.0, TINY))
        excess = lost - jnp.log(1.0 / target_ess - 1.0)
        # The secant through the last two trials; at first with the slope of small steps.
        run, rise = search.log_step - search.log_before, excess - search.excess
        slope = jnp.where((turn > 2) & (rise * run > 0), rise / run, 2.0)
        secant = search.log_step - excess / slope
        within = (secant > low) & (secant < high)
        # Every fourth trial bisects, so that the search ends for every shape of the curve.
        following = jnp.where(within & (turn % 4 != 1), secant, 0.5 * (low + high))
        following = jnp.where(first, log_remaining, jnp.where(turn == 1, guess, following))
        near = (turn > 1) & (jnp.abs(mean - wanted) <= NEAR_ENOUGH * wanted)
        last = turn > SEARCH_STEPS
        done = fixed | whole | near | (turn > SEARCH_STEPS + 1)
        log_step = jnp.where(done, search.log_step, jnp.where(last, low, following))
        return Search(
            log_step, search.log_step, excess, low, high, reachable, lowered, ess, whole,
            turn + 1, done,
        )  # fmt: skip

    given = jnp.asarray(increment)
    fixed = ~jnp.isnan(given)
    lowest = log_remaining - SEARCH_DEPTH
    guess = jnp.clip(_log_guess(log_likelihood, log_weight, target_ess), lowest, log_remaining)
    no, zero = jnp.zeros((), bool), 0.0 * lowest
    begin = Search(
        lowest, lowest, zero, lowest, log_remaining, zero, no,
        jnp.zeros(log_likelihood.shape[0]), no, jnp.zeros((), int), no,
    )  # fmt: skip
    return jax.lax.while_loop(lambda search: ~search.done, evaluate, begin)


def _log_guess(log_likelihood: Array, log_weight: Array, target_ess: Array | float) -> Array:
    """The log of the step, if log-likelihoods were normal over the particles of all islands."""
    usable = jnp.isfinite(log_likelihood) & jnp.isfinite(log_weight)
    count = jnp.maximum(jnp.sum(usable), 1)
    mean = jnp.sum(jnp.where(usable, log_likelihood / count, 0.0))
    # Absolute deviations, because squares may overflow and depend on the worst particle only.
    deviation = jnp.sum(jnp.where(usable, jnp.abs(log_likelihood - mean) / count, 0.0))
    spread = math.sqrt(math.pi / 2) * deviation
    return 0.5 * jnp.log(1.0 / target_ess - 1.0) - jnp.log(jnp.maximum(spread, TINY))


class Search(NamedTuple):
    """The search for a step: it tries the smallest step, then the largest, then steps between.

    Attributes:
        log_step: log of the step to try next; at the end, of the step that was found.
        log_before: log of the last trial.
        excess: log(M / ESS - 1) of the last trial minus its target.
        low: log of the largest trial with enough ESS.
        high: log of the smallest trial with too little ESS.
        reachable: the largest possible ESS: all particles, or the ESS of the smallest step if that
            is too little.
        lowered: whether the ESS of the smallest step is too little, so that the target is lowered.
        ess: of each island, at the last trial.
        whole: whether the remaining power can be taken in one step.
        turn: number of trials.
        done: whether the search has ended.
    """

    log_step: Array
    log_before: Array
    excess: Array
    low: Array
    high: Array
    reachable: Array
    lowered: Array
    ess: Array
    whole: Array
    turn: Array
    done: Array
