"""Populations of draws from several proposals, and which of the proposals fits best."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.resampling import effective_sample_size
from weighbridge.core.thresholds import MAX_BRIDGE_PARETO_K
from weighbridge.diagnostics.pareto import pareto_khat
from weighbridge.estimators.reweighting.proposal import ProposalDensity

# The unnormalised log density at positions, in the cell of one labelling if there are several.
LogDensity = Callable[[np.ndarray], np.ndarray]
# Effective draws, as a share, below which a proposal fits poorly.
ENOUGH = 0.1


class ProposalDraws(NamedTuple):
    """Draws of one proposal.

    Attributes:
        proposal: where they come from; it knows the populations before only.
        position: draws x coordinates.
        log_density: unnormalised, at the draws.
        log_weight: log density less that of the proposal.
    """

    proposal: ProposalDensity
    position: np.ndarray
    log_density: np.ndarray
    log_weight: np.ndarray

    @property
    def is_poor(self) -> bool:
        """Whether its weights have a heavy tail, or are very uneven."""
        effective = float(effective_sample_size(self.log_weight)) / len(self.log_weight)
        return effective < ENOUGH or pareto_khat(self.log_weight) > MAX_BRIDGE_PARETO_K


def evaluate_at(
    proposal: ProposalDensity, position: np.ndarray, log_density: LogDensity
) -> ProposalDraws:
    """Draws of a proposal with their weights; a draw outside the support (NaN) has none."""
    inside = np.isfinite(position).all(axis=1)
    position = np.where(inside[:, None], position, 0.0)
    height = np.full(len(position), -np.inf)
    if inside.any():
        height[inside] = log_density(position[inside])
    below = np.asarray(proposal.log_density(position), float)
    if below.shape != height.shape or not np.isfinite(below[inside]).all():
        raise MethodError(
            "log_density of the proposal must be one finite number at each of its own draws; at "
            f"{len(position):,} draws it has the shape {below.shape} and "
            f"{int((~np.isfinite(below)).sum()):,} values that are not finite."
        )
    log_weight = np.where(np.isfinite(height), height - np.where(inside, below, 0.0), -np.inf)
    return ProposalDraws(proposal, position, height, log_weight)


class ProposalHistory:
    """The populations so far.

    Args:
        first: the first one.
    """

    def __init__(self, first: ProposalDraws) -> None:
        self.populations: list[ProposalDraws] = []
        # Log density of each proposal at the draws of each population.
        self._below: list[list[np.ndarray]] = []
        self.add(first)

    def add(self, drawn: ProposalDraws) -> None:
        """Add a population, whose proposal may know those before."""
        for row, earlier in zip(self._below, self.populations):
            row.append(earlier.proposal.log_density(drawn.position))
        self.populations.append(drawn)
        self._below.append([drawn.proposal.log_density(p.position) for p in self.populations])

    def best(self) -> ProposalDraws:
        """The population whose proposal fits best."""
        return self.populations[int(np.argmax(self.fits()))]

    def fits(self) -> list[float]:
        r"""How well every proposal fits: log of the share of its draws that would be effective.

        .. math:: -\log \sum_i \bar W_i \frac{f(u_i)}{q_k(u_i) \, Z}

        The smaller of two estimates. One uses the draws of this population and the later ones,
        which were not used to fit q_k. The other uses all draws, so that what any proposal found
        counts against those that miss it, however even their own weights are. The draws are
        weighted as draws of the mixture of their proposals (Owen & Zhou 2000, JASA 95:135-143).
        """
        count = range(len(self.populations))
        return [min(self._fit(number, 0), self._fit(number, number)) for number in count]

    def _fit(self, number: int, first: int) -> float:
        """The same by the draws of one population, the first, and all later ones."""
        height = np.concatenate([p.log_density for p in self.populations[first:]])
        below = np.stack([np.concatenate(row[first:]) for row in self._below[first:]])
        usable = np.isfinite(height)
        if not usable.any():
            return -math.inf
        height, below = height[usable], below[:, usable]
        sizes = np.array([[len(p.position)] for p in self.populations[first:]])
        mixture = np.logaddexp.reduce(below + np.log(sizes), axis=0)
        log_evidence = np.logaddexp.reduce(height - mixture)
        uneven = np.logaddexp.reduce(2 * height - mixture - below[number - first])
        return float(2 * log_evidence - uneven)
