"""Where importance sampling starts: from modes, posterior draws, the prior or a user's proposal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist

from weighbridge.core.errors import MethodError
from weighbridge.core.random import Stream, random_key, random_numbers
from weighbridge.core.resampling import systematic_indices
from weighbridge.estimators.annealing.labels import Cell
from weighbridge.estimators.laplace.modes import REMARK, find_modes
from weighbridge.estimators.laplace.summit import SummitKind
from weighbridge.estimators.posterior_draws import read_draws
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.proposals.mixture import Mixture, fit_clusters
from weighbridge.estimators.reweighting.history import LogDensity, ProposalDraws
from weighbridge.estimators.reweighting.population import widened
from weighbridge.estimators.reweighting.proposal import (
    PriorProposal,
    ProposalDensity,
    given_proposal,
)
from weighbridge.models.exchangeable import find_reference, relabelled
from weighbridge.models.model import Model, draw_positions
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.posterior import Posterior

# Equally weighted draws to which a mixture is fitted.
FITTED_DRAWS = 4096
# Components that are fitted to posterior draws are wider by this factor, so that ratios are even in
# their tails.
INFLATED = 1.1
# Share of the first draws, those with the largest weights, that choose a labelling.
TYPICAL = 0.1


# Prior draws at which a user's proposal must not be zero, and the share that rounding may make so.
COVERED, MOST_UNCOVERED = 256, 0.01


class Start(NamedTuple):
    """The first proposal.

    Attributes:
        proposal: where the first draws come from.
        adapts: whether it should adapt if the user does not say.
        cell: the labelling in which it lies; None if there is none, or it is not known yet.
        remarks: diagnostics about it.
    """

    proposal: ProposalDensity
    adapts: bool
    cell: Cell | None
    remarks: dict[str, Any]


def check_proposal(proposal: Any) -> None:
    """Refuse a name that is no proposal."""
    if isinstance(proposal, str) and proposal not in ("laplace", "prior"):
        raise MethodError(
            f'proposal is "laplace", "prior", posterior draws or your own, not {proposal!r}.'
        )


def find_start(
    proposal: Any,
    density: JointDensity,
    seed: int,
    first_island: int,
    shape: tuple[float, float],
    report: Callable[[float], None],
) -> Start:
    """The first proposal for a density.

    Args:
        proposal: "laplace", "prior", posterior draws, or a user's proposal.
        density: the unnormalised log posterior.
        seed: of the random numbers.
        first_island: another one gives other starts to the search for modes.
        shape: degrees of freedom of the components, and share of the wide one.
        report: called with the share of the search that is done.
    """
    model, (degrees, defensive) = density.model, shape
    if isinstance(proposal, str) and proposal == "prior":
        return Start(PriorProposal(model), True, None, {})
    if isinstance(proposal, str):
        numbers = random_numbers(seed, Stream.POPULATIONS, first_island, 1)
        modes = find_modes(density, seed=int(numbers.integers(2**62)), report=report)
        remarks = {
            "num_modes": len(modes.position),
            "modes_unseen": modes.unseen,
            "draws_remark": REMARK,
        }
        # Saddle points, edges and ridges; only those that may hold mass are kept.
        inside = np.array([kind is SummitKind.MODE for kind in modes.kinds])
        if not inside.any():
            return Start(PriorProposal(model), True, None, remarks | {"modes_unseen": 0.0})
        mixture = modes.mixture(degrees)
        return Start(mixture.joined(widened(mixture), defensive), True, modes.cell, remarks)
    if _are_draws(proposal):
        mixture, cell = _fit(model, proposal, degrees)
        return Start(mixture.joined(widened(mixture), defensive), True, cell, {})
    return Start(given_proposal(model, proposal), False, None, {})


def find_cell(model: Model, first: ProposalDraws) -> Cell | None:
    """The labelling of the first draws with the largest weights; None if nothing is exchangeable.

    It is chosen before the draws of the answer: the integral over any one cell, times K!, is the
    whole.
    """
    if not model.exchangeable or not np.isfinite(first.log_weight).any():
        return None
    order = np.argsort(-first.log_weight, kind="stable")
    order = order[: max(1, int(TYPICAL * np.isfinite(first.log_weight).sum()))]
    return Cell(model, find_reference(model, first.position[order], 0))


def require_cover(proposal: ProposalDensity, model: Model, density: LogDensity) -> None:
    """Refuse a proposal that is zero in a part of the posterior's support: no weight shows it.

    Args:
        proposal: the proposal of a user, which is not adapted.
        model: for draws from the prior.
        density: the unnormalised log posterior, in one labelling if there is one.
    """
    points = np.asarray(draw_positions(model, random_key(0), COVERED))
    inside = np.isfinite(density(points))
    uncovered = inside & (np.asarray(proposal.log_density(points)) == -np.inf)
    if uncovered.sum() > MOST_UNCOVERED * inside.sum():
        raise MethodError(
            f"The proposal is zero at {uncovered.sum() / inside.sum():.0%} of the draws from the "
            "prior at which the posterior density is positive. No draw would ever be there, so the "
            "evidence would be too low and no weight would show it. Give a proposal with the "
            "support of the prior."
        )


def _are_draws(proposal: Any) -> bool:
    if isinstance(proposal, Posterior | Evidence):
        return True
    # A mapping with distributions or functions is a user's proposal.
    return isinstance(proposal, Mapping) and not any(
        isinstance(value, dist.Distribution) or callable(value) for value in proposal.values()
    )


def _fit(model: Model, draws: Any, degrees: float) -> tuple[Mixture, Cell | None]:
    """A mixture for the clusters of posterior draws, in one labelling."""
    position, log_weight = read_draws(model, draws).flat()
    # Chains are one after the other: evenly spaced draws are of all of them.
    chosen = systematic_indices(0.5, log_weight, min(len(position), FITTED_DRAWS))
    position, cell = position[chosen], None
    if model.exchangeable:
        reference = find_reference(model, position, 0)
        position, cell = relabelled(model, position, reference), Cell(model, reference)
    return fit_clusters(position, degrees).stretched(INFLATED), cell
