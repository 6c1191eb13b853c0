"""The ratio of the integrals of two densities, from draws of both."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MAX_BRIDGE_SHIFT,
    MAX_BRIDGE_TERM_PARETO_K,
    MIN_BRIDGE_DRAWS,
    MIN_BRIDGE_EVENNESS,
    MIN_BRIDGE_SHIFT,
)
from weighbridge.diagnostics import ess
from weighbridge.diagnostics.pareto import pareto_khat
from weighbridge.estimators.bridging.bridge import EVEN
from weighbridge.estimators.bridging.precision import BALANCES, mean_variance
from weighbridge.estimators.posterior_draws import PosteriorDraws
from weighbridge.estimators.reweighting.heavy_tails import heavy_flags
from weighbridge.estimators.reweighting.log_ratio import block_error, mean_ratio

# The iteration ends when the log ratio changes by less than this.
CONVERGED = 1e-10
MAX_ITERATIONS = 1000


class Side(NamedTuple):
    """Draws of one density, and the log ratio of the other to it.

    Attributes:
        draws: the draws, with their weights.
        log_ratio: log density of the second minus that of the first, at these draws.
        num_blocks: independent blocks of weighted draws; see ``reweighting.log_ratio.num_blocks``.
    """

    draws: PosteriorDraws
    log_ratio: np.ndarray
    num_blocks: int = 1


class Crossed(NamedTuple):
    """The estimate of a log ratio of integrals.

    Attributes:
        log_ratio: in nats.
        std_error: its standard error.
        flags: reasons not to believe it.
        diagnostics: Pareto k-hats and effective numbers of draws.
    """

    log_ratio: float
    std_error: float
    flags: tuple[Status, ...]
    diagnostics: dict[str, float]


def cross(first: Side, second: Side) -> Crossed:
    r"""The ratio of two integrals by the optimal bridge, with the error of autocorrelated chains.

    With l the ratio of the second density to the first, and s the shares of the effective draws,

    .. math:: r = \frac{E_1[l / (s_2 l + s_1 r)]}{E_2[1 / (s_2 l + s_1 r)]}

    Both errors are those of means over autocorrelated draws; the iteration adds none, since the
    ratio of expectations is r whatever number stands in the denominators. Meng & Wong (1996),
    Statistica Sinica 6:831-860; the errors of dependent draws: Frühwirth-Schnatter (2004),
    Econometrics Journal 7:143-167.

    >>> numbers = np.random.default_rng(0).normal(size=(4, 1000))
    >>> flat = PosteriorDraws(numbers[..., None], np.full((4, 1000), -np.log(4000)), True)
    >>> moved = flat._replace(positions=flat.positions + 1.0)
    >>> at = lambda u: -0.5 * (u - 1.0) ** 2 + 0.5 * u**2 + 3.0  # log ratio of N(1, 1) to N(0, 1)
    >>> found = cross(*(Side(d, at(d.positions[..., 0])) for d in (flat, moved)))
    >>> abs(found.log_ratio - 3.0) < 4 * found.std_error < 0.1
    True
    """
    effective = [_effective(first.draws, first.log_ratio, 0.0), 0.0]
    effective[1] = _effective(second.draws, -second.log_ratio, 0.0)
    log_ratio = 0.0
    # The effective numbers of draws are those of the terms, which need a first answer.
    for _ in range(2):
        shares = np.log(np.maximum(np.array(effective), 1.0)) - math.log(max(sum(effective), 2.0))
        log_ratio = _solve(first, second, shares)
        above, below = _terms(first, second, shares, log_ratio)
        effective = [_effective(first.draws, above, 0.0), _effective(second.draws, below, 0.0)]
    sides = [_Terms.of(above, first), _Terms.of(below, second)]
    rounding = CONVERGED * (1.0 + abs(log_ratio))
    std_error = math.hypot(*(side.std_error for side in sides), rounding)
    flags = []
    shift, shift_error = _shift(first, second)
    if abs(shift) > max(MAX_BRIDGE_SHIFT * shift_error + rounding, MIN_BRIDGE_SHIFT * std_error):
        flags.append(Status.DRAWS_DO_NOT_FIT)
    if any(side.is_uneven for side in sides):
        flags.append(Status.LITTLE_OVERLAP)
    if min(effective) < MIN_BRIDGE_DRAWS:
        flags.append(Status.FEW_EFFECTIVE_DRAWS)
    return Crossed(
        log_ratio,
        std_error,
        tuple(flags),
        {
            "khat_posterior": sides[0].khat,
            "khat_proposal": sides[1].khat,
            "overlap": min(side.evenness for side in sides),
            "effective_draws": min(effective),
            "shift": shift,
        },
    )


def _shift(first: Side, second: Side) -> tuple[float, float]:
    """By how much two other bridge functions differ, and the standard error of that.

    All of them give the same ratio if the draws are of their densities. If not, one that weighs
    the first draws hardly and one that weighs nearly them alone differ.
    """
    found, logs = [], []
    for balance in BALANCES:
        shares = np.log(np.array([balance, 1.0 - balance]))
        found.append(_solve(first, second, shares))
        logs.append(_terms(first, second, shares, found[-1]))
    errors = []
    for place, side in enumerate((first, second)):
        weights = side.draws.log_weights
        one, two = (np.exp(at[place] - np.logaddexp.reduce(weights + at[place], axis=None))
                    for at in logs)  # fmt: skip
        errors.append(_mean_error(two - one, side))
    return found[1] - found[0], math.hypot(*errors)


def _mean_error(terms: np.ndarray, side: Side) -> float:
    """Standard error of the weighted mean of terms, less their mean."""
    if side.draws.ordered:
        return math.sqrt(mean_variance(terms[None])) if np.ptp(terms) > 0 else 0.0
    weights = np.exp(side.draws.log_weights)
    parts = weights * (terms - np.sum(weights * terms))
    return block_error(parts.reshape(-1), side.num_blocks)


class _Terms(NamedTuple):
    """What the terms of one side say about the precision of their mean.

    Attributes:
        std_error: relative standard error of their mean.
        khat: Pareto shape of their tail. They are bounded, so it counts only if few matter.
        evenness: effective number of the terms, as a fraction.
        is_uneven: whether a few of them decide.
    """

    std_error: float
    khat: float
    evenness: float
    is_uneven: bool

    @classmethod
    def of(cls, log_terms: np.ndarray, side: Side) -> _Terms:
        draws = side.draws
        log_weighted = draws.log_weights + log_terms
        log_mean = np.logaddexp.reduce(log_weighted, axis=None)
        relative = np.exp(log_terms - log_mean)
        error = _mean_error(relative, side)
        shape = pareto_khat((log_weighted - log_mean).reshape(-1))
        effective = float(np.exp(-np.logaddexp.reduce(2 * (log_weighted - log_mean), axis=None)))
        evenness = effective / log_terms.size
        heavy = not shape <= MAX_BRIDGE_TERM_PARETO_K and evenness < MIN_BRIDGE_EVENNESS
        return cls(error, shape, evenness, heavy or effective < MIN_BRIDGE_DRAWS)


def mean_only(first: Side) -> Crossed:
    r"""The ratio of two integrals from draws of the first alone.

    .. math:: r = E_1[l]

    Importance-weighted marginal density estimation: Chen (1994), J. Am. Stat. Assoc. 89:818-824.
    """
    mean = mean_ratio(first.log_ratio, first.draws, first.num_blocks)
    terms = _Terms.of(first.log_ratio, first)
    effective = _effective(first.draws, first.log_ratio, mean.log_mean)
    # Where nearly all draws count, the tail of the ratios does not matter.
    is_even = terms.evenness > EVEN
    flags = [] if is_even else [*heavy_flags(mean.pareto_k, first.log_ratio.size)]
    if effective < MIN_BRIDGE_DRAWS:
        flags.append(Status.FEW_EFFECTIVE_DRAWS)
    found = {
        "pareto_k": mean.pareto_k,
        "overlap": terms.evenness,
        "effective_draws": effective,
    }
    error = terms.std_error if is_even else mean.std_error
    return Crossed(mean.log_mean, error, tuple(flags), found)


def _solve(first: Side, second: Side, shares: np.ndarray) -> float:
    log_ratio = float(np.median(first.log_ratio[np.isfinite(first.log_ratio)], axis=None))
    for _ in range(MAX_ITERATIONS):
        above, below = _terms(first, second, shares, log_ratio)
        again = float(
            np.logaddexp.reduce(first.draws.log_weights + above, axis=None)
            - np.logaddexp.reduce(second.draws.log_weights + below, axis=None)
        )
        change, log_ratio = again - log_ratio, again
        if not abs(change) > CONVERGED:
            break
    return log_ratio


def _terms(
    first: Side, second: Side, shares: np.ndarray, log_ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """Log terms of the numerator, at draws of the first, and of the denominator, of the second."""
    below = [-np.logaddexp(shares[1] + side.log_ratio, shares[0] + log_ratio)
             for side in (first, second)]  # fmt: skip
    return first.log_ratio + below[0], below[1]


def _effective(draws: PosteriorDraws, log_terms: np.ndarray, log_scale: float) -> float:
    """Effective number of draws: of the mean of the terms, or of the weights."""
    size = float(np.exp(-np.logaddexp.reduce(2 * draws.log_weights, axis=None)))
    if not draws.ordered:
        return size
    top = np.max(log_terms)
    terms = np.exp(log_terms - (top if np.isfinite(top) else log_scale))
    if not np.ptp(terms) > 0:
        return size
    found = float(ess(terms, "mean"))
    return min(found, size) if math.isfinite(found) else size
