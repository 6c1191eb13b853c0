"""How well the chains of posterior draws mixed, for bridges."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv

from weighbridge import diagnostics
from weighbridge.core.thresholds import MAX_BRIDGE_RHAT
from weighbridge.estimators.posterior_draws import PosteriorDraws

# Probability that the largest R-hat of chains that agree is above what is allowed.
RARE = 0.01


class Mixing(NamedTuple):
    """What is known about the chains.

    Attributes:
        effective_draws: number of independent draws that they are worth, the median over
            coordinates.
        rhat: the largest R-hat over coordinates; NaN if it is undefined.
        allowed: the largest R-hat that chains may have which agree.
    """

    effective_draws: float
    rhat: float = math.nan
    allowed: float = math.inf

    @property
    def disagree(self) -> bool:
        """Whether the chains are in different places."""
        return self.rhat > self.allowed


def find_mixing(draws: PosteriorDraws) -> Mixing:
    r"""The mixing of posterior draws; for weighted draws only their effective number.

    Chains of few effective draws have a large R-hat by chance. Its square exceeds 1 by about

    .. math:: (m / \mathrm{ESS}) \, \chi^2_{m-1} / (m - 1)

    for m half chains that are worth ESS draws, each judged by its own draws alone.

    >>> chains = np.random.default_rng(0).normal(size=(4, 250, 2))
    >>> found = find_mixing(PosteriorDraws(chains, np.zeros((4, 250)), True))
    >>> found.disagree, found.effective_draws > 800
    (False, True)
    """
    total = float(draws.log_weights.size)
    if not draws.ordered:
        log_weights = draws.log_weights - np.logaddexp.reduce(draws.log_weights, axis=None)
        return Mixing(float(np.exp(-np.logaddexp.reduce(2.0 * log_weights, axis=None))))
    worth = np.atleast_1d(diagnostics.ess(draws.positions, "mean"))
    worth = worth[np.isfinite(worth)]
    effective = float(np.clip(np.median(worth), 1.0, total)) if len(worth) else total
    positions = draws.positions
    if len(positions) == 1:  # a single chain is compared with itself, half by half
        half = positions.shape[1] // 2
        positions = positions[0, : 2 * half].reshape(2, half, -1)
    rhats = np.atleast_1d(diagnostics.rhat(positions))
    if np.isnan(rhats).all():
        return Mixing(effective)
    worst = int(np.nanargmax(rhats))
    rhat = float(rhats[worst])
    if rhat <= MAX_BRIDGE_RHAT:
        return Mixing(effective, rhat, MAX_BRIDGE_RHAT)
    alone = np.array([diagnostics.ess(chain[None, :, worst], "mean") for chain in positions])
    own = float(np.sum(np.where(np.isfinite(alone), alone, 1.0)))
    parts = 2 * len(positions)
    # R-hat is the larger of two, for locations and for widths, and the largest of all coordinates.
    probability = RARE / (2.0 * len(rhats))
    quantile = 2.0 * float(gammaincinv((parts - 1) / 2.0, 1.0 - probability)) / (parts - 1)
    by_chance = math.sqrt(1.0 + quantile * parts / max(own, 1.0))
    return Mixing(effective, rhat, max(MAX_BRIDGE_RHAT, by_chance))
