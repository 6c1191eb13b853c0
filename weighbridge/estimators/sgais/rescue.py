"""A doubtful answer of SGAIS held against importance sampling around the mode, on all rows.

Mini-batches of rows with heavy tails, or with a few outliers, can mislead the path, its bridge and
their errors all at once. Importance sampling around the mode uses neither particles nor batches,
so that it fails for other reasons.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_BRIDGE_ERRORS, MAX_UNDOUBTED_ERROR
from weighbridge.estimators.bridging.bridge import OF_THE_PATH
from weighbridge.estimators.sgais.at_once import MOST_PARAMETERS, evidence_at_once
from weighbridge.estimators.sgais.bridge_rows import ALL_AT_ONCE
from weighbridge.results.evidence_result import Evidence

if TYPE_CHECKING:
    from weighbridge.estimators.sgais.run import SGAISRun

# Flags that do not apply to the answer of the mode; with PATH_LOST, a reason to look for it.
NOT_OF_THE_MODE = (*OF_THE_PATH, Status.BRIDGE_SHORT, Status.DRIFTING, Status.STALLED)


def is_doubtful(found: Evidence) -> bool:
    """Whether an answer is flagged, has a large error, or is not that of its bridge."""
    seen = found.diagnostics
    path, bridge = seen["path_log_evidence"], seen.get("bridge_log_evidence", math.nan)
    error = math.hypot(seen["path_error"], seen.get("bridge_error", 0.0))
    return (
        any(flag in (*NOT_OF_THE_MODE, Status.PATH_LOST) for flag in found.flags)
        or not found.claimed_error <= MAX_UNDOUBTED_ERROR
        or abs(bridge - path) > MAX_BRIDGE_ERRORS * error
    )


def rescued(run: SGAISRun, found: Evidence) -> Evidence:
    """The answer, or that of the mode where it is doubtful and a Gaussian fits the posterior.

    Importance sampling with all rows is never far too high (by Markov's inequality), so it is the
    answer if it is not clearly lower. If it is, there may be a mode that it does not cover; but the
    path on mini-batches can also be too high, where no batch holds the rows that matter. The bridge
    tells: it has particles of all modes, and all rows.

    Args:
        run: the run with the rows.
        found: its answer.
    """
    if not (_is_plain(run) and is_doubtful(found)):
        return found
    ledger = run.ledger
    values, weight = ledger.rows.gather(np.arange(ledger.rows.num_seen))
    by_mode = evidence_at_once(
        run.method, ledger.model, values, weight, ledger.seed, ledger.first_island
    )
    if by_mode is None:
        return found
    seen = {
        "mode_log_evidence": by_mode.log_evidence,
        "mode_error": by_mode.std_error,
        "mode_khat": by_mode.diagnostics["mode_khat"],
        "mode_ess": by_mode.diagnostics["mode_ess"],
    }
    bridge = found.diagnostics.get("bridge_log_evidence", math.nan)
    is_confirmed = (
        by_mode.log_evidence >= found.log_evidence
        or _agree(by_mode, bridge, found.diagnostics.get("bridge_error", 0.0))
        or _agree(by_mode, found.log_evidence, found.claimed_error)
    )
    if not is_confirmed:
        flags = tuple(dict.fromkeys((Status.BRIDGE_SHORT, *found.flags)))
        return replace(found, flags=flags, diagnostics=found.diagnostics | seen)
    flags = tuple(flag for flag in found.flags if flag not in NOT_OF_THE_MODE)
    return replace(
        found,
        log_evidence=by_mode.log_evidence,
        std_error=by_mode.std_error,
        samples=by_mode.samples,
        log_weights=by_mode.log_weights,
        flags=tuple(dict.fromkeys((*by_mode.flags, *flags))),
        diagnostics=found.diagnostics | seen | {"answer": "mode"},
    )


def _is_plain(run: SGAISRun) -> bool:
    """Whether the answer is an integral over all rows, which are kept, in one labelling.

    With fewer than four islands no error could be stated.
    """
    ledger, method = run.ledger, run.method
    rows, model = ledger.rows, ledger.model
    return (
        bool(ledger.path)
        and method.num_islands >= 4
        and method.half_life is None
        and method.kernel is None
        and not model.exchangeable
        and model.dimension <= MOST_PARAMETERS
        and rows.is_complete
        and rows.num_seen * model.dimension <= ALL_AT_ONCE
    )


def _agree(by_mode: Evidence, other: float, error: float) -> bool:
    """Whether the answer of the mode differs from another one by no more than chance allows."""
    error = math.hypot(by_mode.std_error, 0.0 if math.isnan(error) else error)
    return abs(by_mode.log_evidence - other) <= MAX_BRIDGE_ERRORS * error
