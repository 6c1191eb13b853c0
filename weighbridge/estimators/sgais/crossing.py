"""The evidence of a run of SGAIS from a bridge between its particles and Gaussians."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.thresholds import MAX_BATCH_NOISE
from weighbridge.estimators.annealing.cloud import Cloud, centre
from weighbridge.estimators.annealing.labels import one_labelling
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.bridging.bridge import Bridged
from weighbridge.estimators.bridging.gaussians import bridge_to_gaussians
from weighbridge.estimators.sgais.anchoring import anchor_error, set_anchor
from weighbridge.estimators.sgais.bridge_rows import batch_error, every_row
from weighbridge.estimators.sgais.preparation import BRIDGE_PROBES, FIRST_TURN
from weighbridge.models.targets.term import Term

if TYPE_CHECKING:
    from weighbridge.estimators.sgais.run import SGAISRun

# Allowed noise of the bridge's batches, as a fraction of the allowed noise of the moves' batches.
BRIDGE_NOISE = 0.01


def cross(run: SGAISRun, turn: int = FIRST_TURN) -> Bridged | None:
    """The evidence from a bridge between the particles and Gaussians; None without a bridge.

    The bridge uses all rows if they are kept and not too many. Otherwise it uses mini-batches
    around an anchor, and their noise is part of its error. If all rows are kept, this anchor is set
    at the centre of the particles. There is no bridge if the mini-batches are too noisy. There is
    none if the run forgets: then the evidence is not an integral, but a sum over chunks.

    Args:
        run: the run with the particles.
        turn: number of the turn; each turn has its own random draws.
    """
    if run.method.half_life is not None:
        return None
    interrupts.check()
    ledger = run.ledger
    cloud, cell = one_labelling(ledger.model, ledger.cloud, agreed=run.labelled)
    found = _likelihood(run, cloud, turn)
    if found is None:
        return None
    term, variance = found
    bridge = partial(
        bridge_to_gaussians,
        ledger.seed,
        ledger.first_island,
        Path(ledger.model, (), term),
        differentiable=True,
        adjust=cell,
        stage=ledger.num_chunks,
    )
    crossing = bridge(cloud, turn=2 * turn)
    if crossing is not None and math.isnan(crossing.std_error) and len(ledger.islands) >= 4:
        # One island has all the weight, perhaps since the path lost mass: use equal weights.
        crossing = bridge(_alike(cloud), turn=2 * turn + 1)
    if crossing is None:
        return None
    return crossing._replace(std_error=math.hypot(crossing.std_error, math.sqrt(variance)))


def _likelihood(run: SGAISRun, cloud: Cloud, turn: int) -> tuple[Term, float] | None:
    """The term of all rows, exact or on mini-batches, and the variance that batches add to log Z.

    None if the mini-batches are too noisy.
    """
    model, rows = run.ledger.model, run.ledger.rows
    if run.anchor is None:
        return run.terms.exact(*rows.gather(np.arange(rows.num_seen))), 0.0
    # Bridges within a stream (the other turns) use only programs that are already compiled.
    if turn == FIRST_TURN and (exact := every_row(model, rows)) is not None:
        return exact, 0.0
    anchor = run.anchor
    if rows.is_complete:
        anchor = set_anchor(model, centre(cloud), rows, None)
    preparation = run.preparation()
    estimate = preparation.of_all_rows(anchor, cloud, BRIDGE_NOISE * run.method.noise, turn)
    if not sum(estimate.noise) <= MAX_BATCH_NOISE:
        return None
    probes = preparation.probes(cloud, BRIDGE_PROBES, turn)
    of_batches = batch_error(model, rows, estimate, probes)
    return estimate.term, anchor_error(anchor, cloud) ** 2 + sum(estimate.floor) + of_batches**2


def _alike(cloud: Cloud) -> Cloud:
    """The particles, with weights that add up to 1 in each island."""
    log_weight = np.asarray(cloud.log_weight)
    log_total = np.logaddexp.reduce(log_weight, axis=1, keepdims=True)
    alike = log_weight - np.where(np.isfinite(log_total), log_total, 0.0)
    return cloud._replace(log_weight=alike)
