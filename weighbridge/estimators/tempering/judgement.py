"""Judge a tempered path: flags, a bridge, a second look, and which of them answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.islands import Combined
from weighbridge.core.resampling import is_same
from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MAX_MOVE_MEMORY,
    MAX_TEMPERED_SPREAD,
    MIN_MOVE_ACCEPTANCE,
    MIN_TEMPERED_PARTICLES,
)
from weighbridge.estimators.annealing.labels import one_labelling
from weighbridge.estimators.annealing.loop import Annealed
from weighbridge.estimators.annealing.moves.kernels import Repeat
from weighbridge.estimators.annealing.moves.walks import needs_gradient
from weighbridge.estimators.annealing.reweighting import StepInfo
from weighbridge.estimators.bridging.bridge import Decision, decide
from weighbridge.estimators.bridging.gaussians import bridge_to_gaussians
from weighbridge.estimators.second_look.audit import Audit, audit
from weighbridge.estimators.tempering.path_report import counts, move_diagnostics
from weighbridge.estimators.tempering.preparation import Prepared

if TYPE_CHECKING:
    from weighbridge.estimators.tempering.tempering import Tempering


class Judged(NamedTuple):
    """The answer, and why.

    Attributes:
        estimates: log evidence of each island, by the path.
        decision: the answer, by the path, by a bridge, or by both and a mode that they missed.
        second: the second look, if there was time for one.
        position: posterior draws.
        log_weight: their weights.
        interrupted: whether bridge or second look were cut short; the path has its own answer.
    """

    estimates: np.ndarray
    decision: Decision
    second: Audit | None
    position: np.ndarray
    log_weight: np.ndarray
    interrupted: bool


def judge(
    method: Tempering, prepared: Prepared, outcome: Annealed, stage: Callable[..., Annealed]
) -> Judged:
    """Hold the path against a bridge to Gaussians and a second look, and decide between them."""
    model, seed, first_island = prepared.model, prepared.seed, prepared.first_island
    path = prepared.path_beyond()
    estimates = method.island_estimates(outcome, path)
    combined = method.combine(estimates)
    crossing, second, interrupted = None, None, False
    try:
        interrupts.check()
        if method.bridges:
            cloud, cell = one_labelling(model, outcome.cloud, agreed=False)
            differentiable = needs_gradient(prepared.mover)
            crossing = bridge_to_gaussians(
                seed, first_island, path, cloud, differentiable=differentiable, adjust=cell
            )
        interrupts.check()
        holds = crossing is not None and crossing.judge(*combined[:2]) == (True, None)
        # Further rounds would fall into the same modes; a drift shows better in many.
        second = audit(seed, stage, outcome, path, roam=not holds, quench=first_island == 0)
    except interrupts.Interrupted:
        interrupted = True  # the path has an answer of its own
    raised = path_flags(outcome, combined, second)
    decision = decide(crossing, *combined[:2], raised)
    position, log_weight = map(np.asarray, outcome.cloud[:2])
    joined = second and second.missed(outcome.cloud, estimates, method.combine)
    if joined is not None and not joined.is_missed:
        decision = joined.widened(decision)
    elif joined is not None and joined.overrules(decision):
        decision = decision.overruled(joined.log_evidence, joined.std_error, raised)
        position, log_weight = joined.position, joined.log_weight
    return Judged(estimates, decision, second, position, log_weight, interrupted)


def path_flags(outcome: Annealed, combined: Combined, second: Audit | None) -> tuple[Status, ...]:
    """What the path itself gives reason to doubt, the gravest first."""
    counted = counts(outcome)
    acceptance = move_diagnostics(outcome).get("acceptance", np.ones(1))
    enough = getattr(outcome.mover, "low_acceptance", MIN_MOVE_ACCEPTANCE)
    found = {
        Status.FLAT: _is_flat(outcome.steps[0]),
        Status.ROUNDED: combined.is_rounded,
        Status.DRIFTING: second is not None and second.is_drifting(combined),
        Status.TOO_FEW_MOVES: remembers_too_much(outcome),
        Status.LOW_ESS: float(outcome.steps[-1].carried_ess.mean()) < MIN_TEMPERED_PARTICLES,
        Status.ISLANDS_DISAGREE: combined.spread > MAX_TEMPERED_SPREAD,
        Status.LOW_ACCEPTANCE: float(np.median(acceptance)) < enough,
        Status.UNADJUSTED: is_unadjusted(outcome.mover),
        Status.DIVERGED: counted["num_diverged"] + counted["num_undefined"] > 0,
        Status.PARTICLES_DROPPED: counted["dropped"] > 0,
        Status.STALLED: counted["stalled"] > 0,
        Status.ERROR_UNKNOWN: math.isnan(combined.std_error),
    }
    return tuple(flag for flag, raised in found.items() if raised)


def is_unadjusted(mover: object) -> bool:
    """Whether moves have no accept test: kernels that take a new mini-batch each time have none."""
    return isinstance(mover, Repeat) and mover.kernel.uses_batches and int(mover.num_moves) > 0


def remembers_too_much(outcome: Annealed) -> bool:
    """Whether moves in many dimensions left particles too near to where they had started.

    Where an island has fewer particles than there are parameters, its copies after resampling span
    a few directions only, and moves must take them to the others. What they still know of their
    start, over the later half of the steps, is the mean over coordinates; particles in separate
    modes, which remember their mode for ever, are rather few coordinates in that many dimensions.
    """
    num_particles, dimension = outcome.cloud.position.shape[1:]
    found = move_diagnostics(outcome).get("correlation")
    if found is None or dimension <= num_particles:
        return False
    return float(np.mean(found[len(found) // 2 :])) > MAX_MOVE_MEMORY


def _is_flat(first: StepInfo) -> bool:
    """Whether the log-likelihood is the same at every prior draw, to rounding."""
    mean, deviation = np.asarray(first.mean), np.sqrt(np.asarray(first.variance))
    same = is_same(np.concatenate([mean, mean + deviation]))
    return same and not np.any(np.asarray(first.num_infinite))


def genealogy_error(outcome: Annealed, method: Tempering) -> float | None:
    r"""Standard error of log Z from the genealogy of one run; None where it is unavailable.

    With E_i the first ancestor of particle i, after n resampling steps of N particles,

    .. math:: V = 1 - \bigl(\tfrac{N}{N-1}\bigr)^{n+1} \sum_{E_i \ne E_j} W_i W_j
    """
    if method.resampling_scheme() != "multinomial" or method.chain_length > 1:
        return None
    origin = np.asarray(outcome.cloud.origin)
    log_weight = np.asarray(outcome.cloud.log_weight)
    num_particles = origin.shape[1]
    num_resampled = sum(int(np.all(step.resampled)) for step in outcome.steps)
    variances = []
    for ancestors, weights in zip(origin, log_weight):
        share = np.exp(weights - weights.max())
        family = np.bincount(ancestors, share / share.sum(), minlength=num_particles)
        if np.count_nonzero(family) == 1:  # coalesced: nothing is left to learn from
            return None
        factor = (num_particles / (num_particles - 1)) ** (num_resampled + 1)
        variances.append(1 - factor * (1 - np.sum(family**2)))
    variance = float(np.mean(variances)) / len(variances)
    return math.sqrt(variance) if variance > 0 else None
