"""A bridge between posterior draws of any origin and proposals fitted to them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core.errors import DataError, MethodError
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MAX_BRIDGE_TERM_PARETO_K,
    MIN_BRIDGE_DRAWS,
    MIN_BRIDGE_EVENNESS,
)
from weighbridge.diagnostics.pareto import pareto_khat
from weighbridge.estimators.annealing.labels import Cell
from weighbridge.estimators.bridging.bridge import MAX_ITERATIONS, Sides
from weighbridge.estimators.bridging.groups import GROUPS, Groups, in_groups
from weighbridge.estimators.bridging.mixing import Mixing, find_mixing
from weighbridge.estimators.bridging.precision import Precision, find_precision, is_shifted
from weighbridge.estimators.bridging.proposals import KINDS, LogDensities, Proposal, choose, fit
from weighbridge.estimators.posterior_draws import PosteriorDraws
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.models.exchangeable import find_reference, relabelled

AUTO = "auto"
# At least this many draws from the proposals.
LEAST_PROPOSED = 1000
REMARK = "Only modes that are among the posterior draws are part of this log evidence."


class BridgePlan(NamedTuple):
    """How a bridge is built.

    Attributes:
        proposal: "auto" or the kind of proposal.
        repetitions: number of times that the proposals are drawn.
        seed: the same seed gives the same numbers.
        first_island: another number gives other draws.
    """

    proposal: str = AUTO
    repetitions: int = 1
    seed: int = 0
    first_island: int = 0


class BridgeAnswer(NamedTuple):
    """The answer of a bridge from posterior draws.

    Attributes:
        log_evidence: in nats.
        precision: its error and where it comes from.
        flags: every reason for caution.
        diagnostics: measurements.
        path: log Z after every iteration of the first bridge.
    """

    log_evidence: float
    precision: Precision
    flags: tuple[Status, ...]
    diagnostics: dict[str, Any]
    path: np.ndarray


def check_proposal(proposal: object) -> None:
    """Refuse a kind of proposal that does not exist."""
    kinds = (AUTO, *KINDS)
    if proposal not in kinds:
        raise MethodError(f"proposal is one of {list(kinds)}, not {proposal!r}.")


def bridge_draws(
    density: JointDensity, draws: PosteriorDraws, num_islands: int, plan: BridgePlan
) -> BridgeAnswer:
    """The evidence of a model from draws of its posterior.

    Args:
        density: the unnormalised log posterior.
        draws: the posterior draws.
        num_islands: number of islands, one after the other, of which they are; 0 if there are none.
        plan: the proposal, the repetitions and the seed.
    """
    numbers = random_numbers(plan.seed, Stream.BRIDGE_DRAWS, plan.first_island)
    height = _heights(density, draws)
    draws, labelled = _one_labelling(density, draws, height)
    groups = in_groups(draws, num_islands, numbers)
    kind = plan.proposal
    overlaps: dict[str, float] = {}
    if kind == AUTO:
        kind, overlaps = choose(labelled, *groups.fitting(0, numbers), numbers)
    mixing = find_mixing(draws)
    bridges = _build(labelled, groups, kind, mixing.effective_draws, plan)
    log_evidences = [sides.solve() for sides in bridges]
    if not all(map(math.isfinite, log_evidences)):
        raise DataError(
            "No draw from the proposals that were fitted to the posterior draws has a positive "
            "density, so there is no bridge. Check the draws, or use another proposal."
        )
    log_evidence = float(np.mean(log_evidences))
    precision = find_precision(groups, bridges, log_evidences)
    shifted, shift = is_shifted(groups, bridges[0], precision.std_error)
    above, below = bridges[0].terms(log_evidences[0])
    found = {
        "island_log_evidence": np.array([log_evidence]),
        "proposal": kind,
        **{f"overlap_{name}": overlap for name, overlap in overlaps.items()},
        "overlap": float(np.sum(bridges[0].share * below)),
        "evenness": min(_evenness(above), _evenness(below)),
        "khat_proposal": pareto_khat(np.log(above[above > 0])),
        "khat_posterior": pareto_khat(np.log(below[below > 0])),
        "num_iterations": max(len(sides.path) for sides in bridges),
        "effective_draws": mixing.effective_draws,
        "rhat": mixing.rhat,
        "num_draws": int(draws.log_weights.size),
        "num_proposed": int(sum(sides.proposal.size for sides in bridges)),
        "num_evaluations": density.num_evaluations,
        "repetition_log_evidence": np.array(log_evidences),
        "shift": shift,
        "error_of_draws": precision.of_posterior,
        "error_of_proposals": precision.of_proposal,
        "error_by_blocks": precision.of_blocks,
        "error_by_chains": precision.of_chains,
        "error_by": precision.by,
        "error_measures": _error_measures(precision, log_evidences),
        "draws_remark": REMARK,
    }
    path = np.array(bridges[0].path)
    return BridgeAnswer(log_evidence, precision, _flags(found, shifted, mixing), found, path)


def _heights(density: JointDensity, draws: PosteriorDraws) -> np.ndarray:
    """The log density at all draws, which must be positive there."""
    positions, log_weights = draws.flat()
    height = density(positions)
    impossible = ~np.isfinite(height) & np.isfinite(log_weights)
    if impossible.any():
        raise DataError(
            f"At {int(impossible.sum()):,} of {len(height):,} draws the prior or the likelihood is "
            "zero or undefined: these are not draws of the posterior of this model and these data."
        )
    return height


def _one_labelling(
    density: JointDensity, draws: PosteriorDraws, height: np.ndarray
) -> tuple[PosteriorDraws, LogDensities]:
    """The draws with one labelling, and the density in its cell, times K!."""
    model = density.model
    if not model.exchangeable:
        return draws, density
    flat, log_weights = draws.flat()
    best = int(np.argmax(np.where(np.isfinite(log_weights), height, -np.inf)))
    reference = find_reference(model, flat, best)
    positions = relabelled(model, flat, reference).reshape(draws.positions.shape)
    cell = Cell(model, reference)

    def in_cell(points: np.ndarray) -> np.ndarray:
        return np.asarray(density(points) + cell(points))

    return draws._replace(positions=positions), in_cell


def _build(
    density: LogDensities, groups: Groups, kind: str, worth: float, plan: BridgePlan
) -> list[Sides]:
    """Both samples of every repetition; all have the same posterior draws and fits."""
    numbers = random_numbers(plan.seed, Stream.BRIDGE_DRAWS, plan.first_island, 1)
    fits = [fit(kind, np.concatenate(groups.fitting(g, numbers))) for g in range(GROUPS)]
    shape, dimension = groups.log_weights.shape, groups.positions.shape[-1]
    flat = groups.positions.reshape(GROUPS, -1, dimension)
    height = density(flat.reshape(-1, dimension)).reshape(GROUPS, -1)
    # A draw at the edge of the prior, which could not get the common labelling, is left out.
    usable = np.isfinite(height)
    at_draws = _log_ratios(density, fits, flat, np.where(usable, height, 0.0))
    at_draws = np.where(usable, at_draws, 0.0)
    share = np.where(usable, groups.share.reshape(GROUPS, -1), 0.0)
    share = share / share.sum()
    used = shape[0] * shape[1] * shape[2]
    each = flat.shape[1] * max(1, -(-LEAST_PROPOSED // used))
    num_blocks = used // groups.in_a_block
    found = []
    for repetition in range(plan.repetitions):
        numbers = random_numbers(plan.seed, Stream.BRIDGE_DRAWS, plan.first_island, 2, repetition)
        drawn = np.stack([proposal.density.draw(numbers, each) for proposal in fits])
        above = density(drawn.reshape(-1, dimension)).reshape(GROUPS, -1)
        ratios = _log_ratios(density, fits, drawn, above)
        found.append(
            Sides(
                groups.blocks(at_draws.reshape(shape)),
                ratios.reshape(num_blocks, -1),
                groups.blocks(share.reshape(shape)),
                worth / (worth + ratios.size),
            )
        )
    return found


def _log_ratios(
    density: LogDensities, fits: list[Proposal], points: np.ndarray, height: np.ndarray
) -> np.ndarray:
    """Log ratios of the posterior to the proposal of each group, groups x points."""
    images: list[np.ndarray] | list[None] = [None] * GROUPS
    if fits[0].mirrored:
        mirrored = np.concatenate([fit.images(here) for fit, here in zip(fits, points)])
        images = list(density(mirrored).reshape(GROUPS, -1))
    ratios = [f.log_ratio(p, h, i) for f, p, h, i in zip(fits, points, height, images)]
    return np.stack(ratios)


def _error_measures(precision: Precision, log_evidences: list[float]) -> dict[str, float]:
    """The words of the R package bridgesampling (Gronau, Singmann & Wagenmakers 2020)."""
    square = precision.std_error**2
    lower, upper = np.percentile(log_evidences, [25, 75])
    return {
        "re2": square,
        "cv": math.sqrt(square),
        "percentage": 100.0 * math.sqrt(square),
        "min": min(log_evidences),
        "max": max(log_evidences),
        "iqr": float(upper - lower),
    }


def _evenness(terms: np.ndarray) -> float:
    """Effective terms of a mean, as a fraction."""
    return float(np.mean(terms) ** 2 / np.mean(terms**2))


def _flags(found: dict[str, Any], shifted: bool, mixing: Mixing) -> tuple[Status, ...]:
    khat = max(found["khat_proposal"], found["khat_posterior"])
    checks = {
        Status.DRAWS_DO_NOT_FIT: shifted,
        Status.CHAINS_DISAGREE: mixing.disagree,
        Status.LITTLE_OVERLAP: (
            khat > MAX_BRIDGE_TERM_PARETO_K and found["evenness"] < MIN_BRIDGE_EVENNESS
        )
        or found["num_iterations"] >= MAX_ITERATIONS,
        Status.FEW_EFFECTIVE_DRAWS: mixing.effective_draws < MIN_BRIDGE_DRAWS,
    }
    return tuple(flag for flag, applies in checks.items() if applies)
