"""Bridge sampling: the evidence from draws of the posterior and of a normalised proposal."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

# The iteration ends when log Z changes by less than this.
CONVERGED = 1e-10
MAX_ITERATIONS = 1000


class Bridged(NamedTuple):
    """What a bridge between two samples gave.

    Attributes:
        log_evidence: in nats.
        std_error: from leaving out one group of draws at a time; NaN under four groups.
        khat_proposal: Pareto k-hat of posterior over proposal, at draws of the proposal.
        khat_posterior: of proposal over posterior, at draws of the posterior.
        overlap: what the two samples have in common, from 0 to 1: the weight of the posterior's
            draws where the proposal reaches.
    """

    log_evidence: float
    std_error: float
    khat_proposal: float
    khat_posterior: float
    overlap: float


def bridge(
    log_ratio_posterior: np.ndarray, log_ratio_proposal: np.ndarray, log_weight: np.ndarray
) -> Bridged:
    r"""The evidence by the optimal bridge of Meng & Wong (1996), Statistica Sinica 6:831-860.

    With l = f / q, the ratio of the unnormalised posterior to a normalised proposal,

    .. math:: Z = \frac{\frac1{N_2} \sum_{j \sim q} l_j / (s_1 l_j + s_2 Z)}
                       {\sum_{i \sim p} W_i / (s_1 l_i + s_2 Z)}, \qquad s_k = N_k / (N_1 + N_2)

    solved by iteration. Draws come in groups (islands) that are independent of each other; the
    error is the jackknife over groups, which holds for dependent draws within one. What the
    proposal does not reach pulls the estimate down by as much as the posterior's draws say is
    there, so it stays right as long as those draws are.

    Args:
        log_ratio_posterior: log l at draws of the posterior, groups x draws.
        log_ratio_proposal: log l at draws of the proposal, groups x draws.
        log_weight: log weights of the posterior's draws, groups x draws, normalised by no one.

    >>> flat = np.full((8, 200), 3.0)
    >>> round(bridge(flat, flat, np.zeros((8, 200))).log_evidence, 10)
    3.0
    """
    num_groups = len(log_ratio_posterior)
    log_evidence = _solve(log_ratio_posterior, log_ratio_proposal, log_weight)
    std_error = math.nan
    if num_groups >= 4 and math.isfinite(log_evidence):
        kept = [np.arange(num_groups) != left_out for left_out in range(num_groups)]
        without = np.array(
            [_solve(log_ratio_posterior[k], log_ratio_proposal[k], log_weight[k]) for k in kept]
        )
        without = without[np.isfinite(without)]
        factor = (num_groups - 1) / num_groups
        # A jackknife of J groups has J - 1 degrees of freedom: as for islands.
        tails = (num_groups - 1) / (num_groups - 3)
        std_error = math.sqrt(tails * factor * float(np.sum((without - without.mean()) ** 2)))
    share = np.exp(log_weight - logsumexp(log_weight))
    centred = np.minimum(log_ratio_posterior - log_evidence, 700.0)
    overlap = float(np.sum(share / (0.5 * np.exp(centred) + 0.5)))
    return Bridged(
        log_evidence,
        std_error,
        pareto_khat(log_ratio_proposal),
        pareto_khat(np.where(np.isfinite(log_weight), log_weight, -np.inf) - log_ratio_posterior),
        min(overlap, 1.0),
    )


def _solve(posterior: np.ndarray, proposal: np.ndarray, log_weight: np.ndarray) -> float:
    """Iterate for log Z; everything in logarithms."""
    # Groups count by their evidence, as the particles of islands do.
    log_share = (log_weight - logsumexp(log_weight)).reshape(-1)
    usable = np.isfinite(log_share)
    log_share, posterior = log_share[usable], posterior.reshape(-1)[usable]
    proposal = proposal.reshape(-1)
    effective = math.exp(-float(logsumexp(2 * log_share)))
    log_first = math.log(effective / (effective + len(proposal)))
    log_second = math.log(len(proposal) / (effective + len(proposal)))
    log_evidence = float(np.median(posterior))
    for _ in range(MAX_ITERATIONS):
        common = log_second + log_evidence
        above = logsumexp(proposal - np.logaddexp(log_first + proposal, common))
        below = logsumexp(log_share - np.logaddexp(log_first + posterior, common))
        following = float(above - math.log(len(proposal)) - below)
        if not math.isfinite(following):
            return -math.inf
        change, log_evidence = abs(following - log_evidence), following
        if change < CONVERGED:
            break
    return log_evidence


def pareto_khat(log_ratio: np.ndarray) -> float:
    """Shape of the upper tail of importance ratios: above 0.7 their mean cannot be trusted.

    Vehtari, Simpson, Gelman, Yao & Gabry (2024), J. Machine Learning Research 25(72).

    >>> light = np.random.default_rng(0).normal(size=1000) * 0.1
    >>> pareto_khat(light) < 0.5
    True
    >>> pareto_khat(np.zeros(100))
    -inf
    """
    values = log_ratio[np.isfinite(log_ratio)]
    if len(values) < 20:
        return math.inf
    # The ratios that the fit is to, and the largest below them, are equal: there is no tail.
    tail = min(len(values) // 5, math.ceil(3 * math.sqrt(len(values))))
    if np.ptp(np.partition(values, -tail - 1)[-tail - 1 :]) < 1e-9:
        return -math.inf
    from arviz_stats.base import array_stats  # it takes a while to import

    # It is made for leave-one-out ratios, 1 / p: it takes the log of their inverse.
    with np.errstate(divide="ignore", invalid="ignore"):  # ties within the tail
        khat = float(array_stats.psislw(-values)[1])
    return khat if math.isfinite(khat) else math.inf
