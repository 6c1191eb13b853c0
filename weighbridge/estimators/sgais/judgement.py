"""Judge the path of SGAIS: hold it against a bridge and a second look, and put it right."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.islands import Combined
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_BRIDGE_ERRORS
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.labels import Labels
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.step import patient_step
from weighbridge.estimators.batch_noise import TOO_NOISY
from weighbridge.estimators.bridging.bridge import decide
from weighbridge.estimators.second_look.audit import Audit
from weighbridge.estimators.second_look.streams import amended, look_again
from weighbridge.estimators.sgais.crossing import cross
from weighbridge.estimators.sgais.preparation import SECOND_TURN
from weighbridge.estimators.sgais.stage import LARGE_CHUNK
from weighbridge.results.evidence_result import Evidence

if TYPE_CHECKING:
    from weighbridge.estimators.sgais.run import SGAISRun

# A stream's path is held against a bridge when its rows have grown by this factor.
VERIFY_GROWTH = 2.0
# It goes on from there where it has lost mass, or where its own error (nats) says that it knows
# nothing; with the islands of which the bridge reaches this share.
USELESS = 5.0
REACHED = 0.1


def verify(run: SGAISRun, num_new: int) -> None:
    """Put a stream's path right where a bridge shows that it has lost mass, or itself.

    A mode that takes over from another one, in which all particles are, takes their moves along,
    but not their weights. Where rows come in large chunks the result's bridge is enough.

    Args:
        run: whose path it is.
        num_new: rows of the last chunk.
    """
    ledger, rows = run.ledger, run.ledger.num_rows
    is_due = rows >= VERIFY_GROWTH * run.verified_rows
    if not is_due or num_new >= LARGE_CHUNK * rows or not ledger.path:
        return
    run.verified_rows = rows
    log_evidence, std_error = run.stated()
    # What the result will be held against is another bridge.
    crossing = None if math.isnan(std_error) else cross(run, SECOND_TURN)
    if crossing is None or crossing.reached is None:
        return
    is_answer, caution = crossing.judge(log_evidence, std_error)
    if not is_answer or (caution is None and std_error < USELESS):
        return
    # Islands that are elsewhere would go on with weights that are not theirs.
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
    """The result by the path, or by what a bridge and a second look make of it."""
    crossing = second = None
    cloud, path_flags = run.ledger.cloud, found.flags
    try:
        crossing = cross(run)
        second, cloud = _second_look(run)
    except interrupts.Interrupted:
        path_flags = (Status.INTERRUPTED, *path_flags)
    decision = decide(crossing, found.log_evidence, found.std_error, path_flags)

    def combine(islands: np.ndarray) -> Combined:
        """Of islands' evidence, or a part of it, with the error made before they were settled."""
        combined = run.method.combine(islands)
        error = math.hypot(combined.std_error, math.sqrt(run.ledger.settled_variance))
        return combined._replace(std_error=error)

    known = (run.ledger.model, cloud, run.ledger.log_evidences)
    found = amended(found, decision, second, known, combine)
    flags = found.flags
    if run.largest_noise > TOO_NOISY and Status.NOISY in run.flags():
        # Moves that followed nothing may have lost modes, and so would a bridge from there.
        flags = (Status.NOISY, *flags)
    return replace(found, flags=tuple(dict.fromkeys(flags)))


def _second_look(run: SGAISRun) -> tuple[Audit | None, Cloud]:
    """Look for a mode that path and bridge have missed, and the particles it is held against.

    It is looked for while all rows are used: an anchor is where the particles are, and shows
    nothing of other places.
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
