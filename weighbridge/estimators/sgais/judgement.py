"""Check the path of SGAIS against a bridge and a second look, and correct it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.islands import Combined
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_BATCH_NOISE, MAX_BRIDGE_ERRORS
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.labels import Labels
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.step import patient_step
from weighbridge.estimators.bridging.bridge import decide
from weighbridge.estimators.second_look.audit import Audit
from weighbridge.estimators.second_look.streams import amended, look_again
from weighbridge.estimators.sgais.chunk_stage import LARGE_CHUNK
from weighbridge.estimators.sgais.crossing import cross
from weighbridge.estimators.sgais.preparation import SECOND_TURN
from weighbridge.estimators.sgais.rescue import rescued
from weighbridge.results.evidence_result import Evidence

if TYPE_CHECKING:
    from weighbridge.estimators.sgais.run import SGAISRun

# A stream's path is compared with a bridge each time its rows have grown by this factor.
VERIFY_GROWTH = 2.0
# The run continues from the bridge if the path has lost mass, or if the error of the path (nats)
# is at least USELESS. It continues with the islands whose overlap with the bridge exceeds REACHED.
USELESS = 5.0
REACHED = 0.1


def verify(run: SGAISRun, num_new: int) -> None:
    """Correct the path of a stream if a bridge shows that it lost mass, or if its error is large.

    New rows can shift the posterior mass from the mode that holds all particles to another mode.
    The moves then take the particles to the new mode, but the weights do not include its mass.
    If rows come in large chunks, the bridge that ``judge`` makes for the result is enough.

    Args:
        run: the run to check.
        num_new: rows of the last chunk.
    """
    ledger, rows = run.ledger, run.ledger.num_rows
    is_due = rows >= VERIFY_GROWTH * run.verified_rows
    if not is_due or num_new >= LARGE_CHUNK * rows or not ledger.path:
        return
    run.verified_rows = rows
    log_evidence, std_error = run.stated()
    # The bridge for the result uses other random draws.
    crossing = None if math.isnan(std_error) else cross(run, SECOND_TURN)
    if crossing is None or crossing.reached is None:
        return
    is_answer, caution = crossing.judge(log_evidence, std_error)
    if not is_answer or (caution is None and std_error < USELESS):
        return
    # Islands outside the region of the bridge would continue with wrong weights.
    sound = (crossing.reached > REACHED) & np.isfinite(ledger.log_evidences)
    if sound.sum() < max(4, len(sound) / 2):
        return
    gain, chance = crossing.log_evidence - log_evidence, ledger.stated()[1]
    if gain > MAX_BRIDGE_ERRORS * math.hypot(crossing.std_error, chance):
        ledger.repaired += gain
    run.noise_bias = 0.0
    ledger.go_on_from(crossing.log_evidence, crossing.std_error, sound)
    ledger.restate(*run.stated())


def judge(run: SGAISRun, found: Evidence) -> Evidence:
    """The result of the path, or a better one from a bridge, a second look, or the mode."""
    crossing = second = None
    cloud, path_flags = run.ledger.cloud, found.flags
    try:
        crossing = cross(run)
        second, cloud = _second_look(run)
    except interrupts.Interrupted:
        path_flags = (Status.INTERRUPTED, *path_flags)
    decision = decide(crossing, found.log_evidence, found.claimed_error, path_flags)

    def combine(islands: np.ndarray) -> Combined:
        """Combine evidence of islands, or parts of it; add the variance of settled islands."""
        combined = run.method.combine(islands)
        error = math.hypot(combined.std_error, math.sqrt(run.ledger.settled_variance))
        return combined._replace(std_error=error)

    known = (run.ledger.model, cloud, run.ledger.log_evidences)
    found = amended(found, decision, second, known, combine)
    flags = found.flags
    if run.largest_noise > MAX_BATCH_NOISE and Status.NOISY in run.flags():
        # Moves on useless batches may lose modes; a bridge from their particles misses them too.
        flags = (Status.NOISY, *flags)
    found = replace(found, flags=tuple(dict.fromkeys(flags)))
    if Status.INTERRUPTED in flags:
        return found
    try:
        return rescued(run, found)
    except interrupts.Interrupted:
        return replace(found, flags=(Status.INTERRUPTED, *found.flags))


def _second_look(run: SGAISRun) -> tuple[Audit | None, Cloud]:
    """Look for a mode that path and bridge missed; return the finding and the particles used.

    There is no second look if the run has an anchor: the expansion around an anchor is valid only
    near the particles. There is none either if the run forgets, or if the user chose the kernel.
    """
    ledger, model = run.ledger, run.ledger.model
    forgets, plain = run.method.half_life is not None, run.method.kernel is None
    if not ledger.path or run.anchor is not None or forgets or not plain:
        return None, ledger.cloud
    labels = Labels(model, standing=run.labelled)
    cloud = labels.follow(ledger.cloud)
    term = run.terms.exact(*ledger.rows.gather(np.arange(ledger.rows.num_seen)))
    second = look_again(
        ledger.seed,
        ledger.islands,
        cloud,
        run.mover,
        labels.within(Path(model, (term.emptied(),), term)),
        take_step=patient_step,
        density=Path(model, (), term),
    )
    return second, cloud
