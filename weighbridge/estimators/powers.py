"""The next power of a path: as far as the effective sample size allows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.base import Array
from weighbridge.particles import relative_weights

# The next power is searched between exp(-SEARCH_DEPTH) and all of what remains.
SEARCH_DEPTH = 700.0
SEARCH_STEPS = 40


def conditional_ess(log_likelihood: Array, log_weight: Array, step: Array | float) -> Array:
    r"""ESS of the incremental weights e^{step l}, with the carried weights W.

    .. math:: \mathrm{ESS}(\Delta) = M \frac{(\sum_i W_i e^{\Delta \ell_i})^2}
                                            {\sum_i W_i e^{2 \Delta \ell_i}}

    Zhou, Johansen & Aston (2016), J. Comput. Graph. Stat. 25:701-726. With equal W it is the
    ESS of Kong, Liu & Wong (1994). Particles at -inf count for nothing at any positive step.
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

    Found by bisection in log Delta. If too few particles are finite to reach the target at any
    positive step, the target is that fraction of what is left.

    Args:
        log_likelihood: of the chunk, islands x particles.
        log_weight: carried weights (zeros count every particle alike), islands x particles.
        target_ess: as a fraction of the particles.
        remaining: the largest step allowed.
        increment: take this step, whatever its ESS; NaN chooses it.

    Returns:
        The step, the ESS of each island that it gives, and whether the target was lowered.

    >>> step, ess, lowered = choose_increment(jnp.arange(10.0)[None] * 100, jnp.zeros((1, 10)),
    ...                                       0.5, 1.0)
    >>> round(float(ess[0]), 2), bool(step < 1), bool(lowered)
    (5.0, True, False)
    """
    num_particles = log_likelihood.shape[1]
    log_remaining = jnp.log(remaining)

    def evaluate(search: Search) -> Search:
        # All that is asked of the ESS is asked here: each place where it is compiled takes long.
        step = jnp.where(fixed, given, jnp.exp(search.log_step))
        ess = jax.vmap(conditional_ess, in_axes=(0, 0, None))(log_likelihood, log_weight, step)
        mean, turn = jnp.mean(ess), search.turn
        lowered = jnp.where(turn == 0, mean <= target_ess * num_particles * (1 + 1e-9),
                            search.lowered)  # fmt: skip
        reachable = jnp.where(lowered, mean, num_particles)
        wanted = jnp.where(turn == 0, target_ess * reachable, search.wanted)
        enough = mean >= wanted
        whole = (turn == 1) & enough
        low = jnp.where((turn > 1) & enough, search.log_step, search.low)
        high = jnp.where((turn > 1) & ~enough, search.log_step, search.high)
        following = jnp.where(turn == 0, log_remaining, 0.5 * (low + high))
        following = jnp.where(turn > SEARCH_STEPS, low, following)
        done = fixed | whole | (turn > SEARCH_STEPS + 1)
        log_step = jnp.where(done, search.log_step, following)
        return Search(log_step, low, high, wanted, lowered, ess, whole, turn + 1, done)

    given = jnp.asarray(increment)
    fixed = ~jnp.isnan(given)
    lowest = log_remaining - SEARCH_DEPTH
    no, nothing = jnp.zeros((), bool), jnp.zeros(log_likelihood.shape[0])
    begin = Search(
        lowest, lowest, log_remaining, 0.0 * lowest, no, nothing, no, jnp.zeros((), int), no
    )
    found = jax.lax.while_loop(lambda search: ~search.done, evaluate, begin)
    step = jnp.where(found.whole, remaining, jnp.exp(found.log_step))
    return jnp.where(fixed, given, step), found.ess, found.lowered & ~fixed


class Search(NamedTuple):
    """The search for a step: first the smallest is tried, then the whole, then halves between.

    Attributes:
        log_step: to be tried next, and in the end the one that was found.
        low: the largest so far with enough ESS, as a logarithm.
        high: the smallest so far with too little.
        wanted: the ESS to reach.
        lowered: whether it is less than was asked for.
        ess: of each island, at the step that was tried last.
        whole: whether all of what remains can be taken.
        turn: steps tried.
        done: whether the search is over.
    """

    log_step: Array
    low: Array
    high: Array
    wanted: Array
    lowered: Array
    ess: Array
    whole: Array
    turn: Array
    done: Array
