"""The second look at a sequential run: has it missed a mode?

The run itself does not change. Each call of ``result`` looks again, as long as all rows are in
memory and few enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.loop import Annealed
from weighbridge.estimators.annealing.moves.mover import Mover
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.step import anneal_step
from weighbridge.estimators.bridging.bridge import Decision
from weighbridge.estimators.second_look.audit import Audit, PathLoop, audit
from weighbridge.estimators.second_look.joining import Combine
from weighbridge.estimators.sequential import posterior
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence

# First stage number of second looks; stages of chunks never reach it.
LOOKING = 1 << 61


def look_again(
    seed: int,
    islands: np.ndarray,
    cloud: Cloud,
    mover: Mover,
    path: Path,
    *,
    resampling: str = "systematic",
    take_step: Callable[..., Any] = anneal_step,
    density: Path | None = None,
) -> Audit | None:
    """Look for missed modes at powers above 1; None in later rounds, or if moves are unusable.

    Args:
        seed: of the run.
        islands: numbers of the islands. Later rounds of islands would find the same modes.
        cloud: the particles, weighted by all rows.
        mover: moves the particles.
        path: a path that ends at the posterior, in terms for which the run has a program.
        resampling: name of the resampling scheme.
        take_step: the step of the run, so that nothing new is compiled.
        density: the posterior in other terms, for which there is a program; optional.
    """
    if islands[0] != 0:
        return None
    outcome = Annealed(cloud, mover, [], [1.0], False)
    return audit(
        PathLoop(seed, islands, resampling, take_step),
        outcome,
        path,
        roam=False,
        quench=True,
        first_stage=LOOKING,
        density=density,
    )


def amended(
    found: Evidence,
    decision: Decision,
    second: Audit | None,
    run: tuple[Model, Cloud, np.ndarray],
    combine: Combine,
) -> Evidence:
    """The result with the answer of the decision, or with a mode that the second look found.

    Args:
        found: the result of the path.
        decision: the choice between path and bridge.
        second: the second look, or None.
        run: its model, its particles, and the log evidence of each island.
        combine: combines the log evidences of islands, with an error.
    """
    model, cloud, islands = run
    joined = second and second.missed(cloud, islands, combine)
    if joined is not None:
        decision, included = joined.settle(decision, found.flags)
        if included:
            samples, log_weights = posterior(model, joined.position, joined.log_weight)
            found = replace(found, samples=samples, log_weights=log_weights)
    looked = {} if second is None else second.diagnostics
    return replace(
        found,
        log_evidence=decision.log_evidence,
        std_error=decision.std_error,
        flags=decision.flags,
        diagnostics=found.diagnostics | looked | decision.diagnostics,
    )
