"""The error of a bridge from autocorrelated draws."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv

from weighbridge.core.thresholds import MAX_BRIDGE_SHIFT, MIN_BRIDGE_SHIFT
from weighbridge.estimators.bridging.bridge import CONVERGED, ROUNDING, Sides
from weighbridge.estimators.bridging.groups import GROUPS, Groups

# The jackknife replaces the formula if a ratio of variances as large has a smaller probability.
RARE = 0.01
# Shares of the posterior draws in two other bridge functions, which must give the same answer.
BALANCES = (0.1, 0.9)
# Part of the variance of a series that may be lost by subtracting its mean.
MOST_LOST = 0.8


class Precision(NamedTuple):
    """The error of a bridge, and its parts.

    Attributes:
        std_error: in nats.
        of_posterior: the error from the posterior draws.
        of_proposal: the error from the draws from the proposals.
        of_blocks: the error by the jackknife over blocks of both.
        of_chains: by the jackknife over chains; NaN with fewer than four.
        by: "spectrum", "blocks" or "chains", whichever the stated error is from.
    """

    std_error: float
    of_posterior: float
    of_proposal: float
    of_blocks: float
    of_chains: float
    by: str


def find_precision(groups: Groups, sides: list[Sides], log_evidences: list[float]) -> Precision:
    r"""The error of the mean of several bridges with the same posterior draws.

    With the terms a_j of the numerator and b_i of the denominator,

    .. math:: \mathrm{se}^2 = \frac{\mathrm{Var}(a)}{N_2 \bar a^2}
              + \frac{\tau \, \mathrm{Var}(b)}{N_1 \bar b^2}

    (Frühwirth-Schnatter 2004, Econometrics Journal 7:143-167), where tau is the autocorrelation
    length of the terms b within the series. Two jackknives check it, over blocks and over chains:
    if one of them finds a variance that is larger than chance allows, it is used instead. Draws
    that are not of chains have only the jackknife, over islands or over random blocks.

    Args:
        groups: the posterior draws.
        sides: both samples of each bridge, blocks x draws.
        log_evidences: their fixed points.
    """
    influences = np.mean([s.influences(z) for s, z in zip(sides, log_evidences)], axis=0)
    terms = [side.terms(z) for side, z in zip(sides, log_evidences)]
    per_group = len(influences) // GROUPS
    proposal = 0.0
    for above, _ in terms:
        inside = above.reshape(GROUPS, -1)
        proposal += float(np.mean(np.var(inside, axis=1, ddof=1))) / above.size / above.mean() ** 2
    proposal /= len(sides) ** 2
    blocks = jackknife(influences)
    chains = math.nan
    if groups.by_chain:
        by_chain = influences.reshape(GROUPS, -1, per_group // groups.log_weights.shape[1])
        chains = jackknife(by_chain.sum(axis=(0, 2)))
    if not groups.is_serial:
        total, by = blocks, "blocks"
        posterior = math.sqrt(max(blocks**2 - proposal, 0.0))
    else:
        shape = groups.log_weights.shape
        below = np.mean([b.reshape(shape) / b.mean() for _, b in terms], axis=0)
        posterior = math.sqrt(mean_variance(below))
        total, by = math.hypot(posterior, math.sqrt(proposal)), "spectrum"
        num_chains = groups.log_weights.shape[1]
        for name, other, count in (
            ("blocks", blocks, len(influences)),
            ("chains", chains, num_chains),
        ):
            if count >= 4 and other > total * math.sqrt(_allowed(count)):
                total, by = other, name
    total = math.hypot(total, CONVERGED + ROUNDING * abs(log_evidences[0]))
    return Precision(total, posterior, math.sqrt(proposal), blocks, chains, by)


def jackknife(influences: np.ndarray) -> float:
    """The standard error from the influences of J independent parts; NaN with fewer than four.

    It is widened by the tails of a Student-t with J - 1 degrees of freedom.

    >>> round(jackknife(np.array([0.1, -0.1, 0.1, -0.1, 0.1, -0.1, 0.1, -0.1])), 3)
    0.358
    """
    count = len(influences)
    if count < 4:
        return math.nan
    square = float(np.sum((influences - influences.mean()) ** 2)) * count / (count - 1)
    return math.sqrt(square * (count - 1) / (count - 3))


def _allowed(count: int) -> float:
    """The ratio of a widened jackknife's variance to the true one that chance hardly exceeds."""
    free = count - 1
    quantile = 2.0 * float(gammaincinv(free / 2.0, 1.0 - RARE)) / free
    return quantile * free / (free - 2)


def mean_variance(terms: np.ndarray) -> float:
    """Variance of the mean of autocorrelated terms, groups x series x draws.

    The autocovariances are those of all series, around the means of their groups, and are summed up
    to the lag at which sums of pairs are no longer positive: Geyer (1992), Stat. Sci. 7:473-483.
    What the subtraction of the means takes from the sum is given back.

    >>> noise = np.random.default_rng(0).normal(size=(5, 4, 500))
    >>> bool(0.8 < mean_variance(noise) * noise.size < 1.25)
    True
    """
    centred = terms - terms.mean(axis=(1, 2), keepdims=True)
    length = terms.shape[-1]
    padded = np.fft.rfft(centred, 2 * length, axis=-1)
    sums = np.fft.irfft(np.abs(padded) ** 2, axis=-1)[..., :length].mean(axis=(0, 1))
    covariance = sums / (length - np.arange(length))
    pairs = covariance[: 2 * (length // 2)].reshape(-1, 2).sum(axis=1) if length > 1 else sums
    last = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else len(pairs)
    pairs = np.minimum.accumulate(pairs[: max(last, 1)])
    long_run = max(float(2.0 * pairs.sum() - covariance[0]), 0.1 * float(covariance[0]))
    in_a_group = terms[0].size
    lost = min((4 * len(pairs) - 1) / in_a_group, MOST_LOST)
    return float(long_run / (1.0 - lost) / terms.size)


def is_shifted(groups: Groups, sides: Sides, std_error: float) -> tuple[bool, float]:
    """Whether other bridge functions give another answer, and the difference in nats.

    Every bridge function gives the same integral if the draws are from the posterior. If not, a
    function near 0.1 is nearly importance sampling from the proposal, and one near 0.9 nearly the
    reciprocal of that from the draws, which differ.
    """
    found, above, below, influences = [], [], [], []
    for balance in BALANCES:
        other = Sides(sides.posterior, sides.proposal, sides.share, balance)
        found.append(other.solve())
        numerator, denominator = other.terms(found[-1])
        above.append(numerator / numerator.mean())
        below.append(denominator / denominator.mean())
        influences.append(other.influences(found[-1]))
    shift = found[1] - found[0]
    error = jackknife(influences[1] - influences[0])
    if groups.is_serial:
        difference = (above[1] - above[0]).reshape(GROUPS, -1)
        of_proposal = float(np.mean(np.var(difference, axis=1, ddof=1))) / above[0].size
        shape = groups.log_weights.shape
        error = math.sqrt(of_proposal + mean_variance((below[1] - below[0]).reshape(shape)))
    large = abs(shift) > MAX_BRIDGE_SHIFT * error + CONVERGED
    return bool(large and abs(shift) > MIN_BRIDGE_SHIFT * std_error), shift
