"""Judge a tempered path: flags, a bridge, a second look, and the choice of the answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.islands import Combined, dimension_bias
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
from weighbridge.estimators.second_look.audit import Audit, PathLoop, audit
from weighbridge.estimators.tempering.path_report import counts, move_diagnostics
from weighbridge.estimators.tempering.preparation import Prepared

if TYPE_CHECKING:
    from weighbridge.estimators.tempering.tempering import Tempering


class Judged(NamedTuple):
    """The answer, and how it was chosen.

    Attributes:
        estimates: log evidence of each island, from the path.
        decision: the answer: from the path, from a bridge, or with a mode that both missed.
        second: the second look; None if it was interrupted or not possible.
        position: posterior draws.
        log_weight: their weights.
        interrupted: whether the bridge or the second look was interrupted.
    """

    estimates: np.ndarray
    decision: Decision
    second: Audit | None
    position: np.ndarray
    log_weight: np.ndarray
    interrupted: bool


def judge(method: Tempering, prepared: Prepared, outcome: Annealed) -> Judged:
    """Compare the path with a bridge to Gaussians and with a second look, and choose."""
    model, seed, first_island = prepared.model, prepared.seed, prepared.first_island
    path = prepared.path_beyond()
    estimates = method.island_estimates(outcome, path)
    combined = method.combine(estimates)
    num_islands, num_particles, dimension = outcome.cloud.position.shape
    bias = dimension_bias(combined.spread, dimension, num_islands * num_particles)
    combined = combined._replace(std_error=math.hypot(combined.std_error, bias))
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
        # Quench in the first round only: later rounds would find the same modes. The test for a
        # drift gains from more rounds.
        loop = PathLoop(seed, prepared.islands, method.resampling_scheme(), prepared.take_step)
        second = audit(
            *(loop, outcome, path),
            roam=not holds,
            quench=first_island == 0,
            hot=prepared.hot,
        )
    except interrupts.Interrupted:
        interrupted = True  # the path has an answer anyway
    raised = path_flags(outcome, combined, second, method.disagreement)
    decision = decide(crossing, *combined[:2], raised)
    if decision.diagnostics["answer"] == "path":
        decision.diagnostics["dimension_bias"] = bias
    position, log_weight = map(np.asarray, outcome.cloud[:2])
    joined = second and second.missed(outcome.cloud, estimates, method.combine)
    if joined is not None:
        decision, included = joined.settle(decision, raised)
        if included:
            position, log_weight = joined.position, joined.log_weight
    return Judged(estimates, decision, second, position, log_weight, interrupted)


def path_flags(
    outcome: Annealed,
    combined: Combined,
    second: Audit | None,
    disagreement: float = MAX_TEMPERED_SPREAD,
) -> tuple[Status, ...]:
    """The flags of the path itself, the most serious first.

    Args:
        outcome: the path.
        combined: the evidence of its islands, combined.
        second: the second look, if there was one.
        disagreement: spread of log Z over islands (nats) above which they disagree.
    """
    counted = counts(outcome)
    acceptance = move_diagnostics(outcome).get("acceptance", np.ones(1))
    enough = getattr(outcome.mover, "low_acceptance", MIN_MOVE_ACCEPTANCE)
    found = {
        Status.FLAT: _is_flat(outcome.steps[0]),
        Status.ROUNDED: combined.is_rounded,
        Status.DRIFTING: second is not None and second.is_drifting(combined),
        Status.TOO_FEW_MOVES: remembers_too_much(outcome),
        Status.LOW_ESS: float(outcome.steps[-1].carried_ess.mean()) < MIN_TEMPERED_PARTICLES,
        Status.ISLANDS_DISAGREE: combined.spread > disagreement,
        Status.LOW_ACCEPTANCE: float(np.median(acceptance)) < enough,
        Status.UNADJUSTED: is_unadjusted(outcome.mover),
        Status.DIVERGED: counted["num_diverged"] + counted["num_undefined"] > 0,
        Status.PARTICLES_DROPPED: counted["dropped"] > 0,
        Status.STALLED: counted["stalled"] > 0,
        Status.ERROR_UNKNOWN: math.isnan(combined.std_error),
    }
    return tuple(flag for flag, raised in found.items() if raised)


def is_unadjusted(mover: object) -> bool:
    """Whether moves have no accept/reject test, as kernels with a new mini-batch each step."""
    return isinstance(mover, Repeat) and mover.kernel.uses_batches and int(mover.num_moves) > 0


def remembers_too_much(outcome: Annealed) -> bool:
    """Whether particles in many dimensions stay too correlated with their start.

    If an island has fewer particles than there are parameters, its copies after resampling span
    only a few directions, and the moves must reach the others. The test uses the correlation with
    the start, averaged over coordinates and over the later half of the steps. Particles in separate
    modes always stay correlated with their mode, but in so many dimensions this affects few
    coordinates. A smaller correlation makes the spread of the islands larger, which the error
    includes (see ``dimension_bias``).
    """
    num_particles, dimension = outcome.cloud.position.shape[1:]
    found = move_diagnostics(outcome).get("correlation")
    if found is None or dimension <= num_particles:
        return False
    return float(np.mean(found[len(found) // 2 :])) > MAX_MOVE_MEMORY


def _is_flat(first: StepInfo) -> bool:
    """Whether the log-likelihood is the same at every prior draw, up to rounding."""
    mean, deviation = np.asarray(first.mean), np.sqrt(np.asarray(first.variance))
    same = is_same(np.concatenate([mean, mean + deviation]))
    return same and not np.any(np.asarray(first.num_infinite))


def genealogy_error(outcome: Annealed, method: Tempering) -> float | None:
    r"""Standard error of log Z from the genealogy of one run; None if it is not available.

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
        if np.count_nonzero(family) == 1:  # one common ancestor: no information is left
            return None
        factor = (num_particles / (num_particles - 1)) ** (num_resampled + 1)
        variances.append(1 - factor * (1 - np.sum(family**2)))
    variance = float(np.mean(variances)) / len(variances)
    return math.sqrt(variance) if variance > 0 else None
