"""The second look at a run that takes rows as they come: has it missed a mode?

The run itself goes on as it was. Each result that is asked for looks anew, as long as all rows are
at hand and few enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.loop import Annealed, anneal
from weighbridge.estimators.annealing.moves.mover import Mover
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.step import anneal_step
from weighbridge.estimators.bridging.bridge import Decision
from weighbridge.estimators.second_look.audit import Audit, audit
from weighbridge.estimators.second_look.joining import Combine
from weighbridge.estimators.sequential import posterior
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence

# Where the numbers of its stages begin, far from those of chunks.
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
    """Quench the particles; None if their moves cannot be, or if others have looked already.

    Args:
        seed: of the run.
        islands: their numbers. Further rounds of islands would fall into the same modes.
        cloud: the particles, weighted by all rows.
        mover: how they move.
        path: whose end is the posterior, with the terms that the run's own programs are for.
        resampling: name of the scheme.
        take_step: as the run takes its steps, so that nothing is compiled anew.
        density: the posterior in other terms, where there is a program for those.
    """
    if islands[0] != 0:
        return None
    go = partial(anneal, seed, islands=islands, resampling=resampling, take_step=take_step)
    outcome = Annealed(cloud, mover, [], [1.0], False)
    return audit(
        seed,
        go,
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
    """A result as it was decided, or with the mode that the second look has found.

    Args:
        found: the result by the path.
        decision: which of path and bridge is the answer.
        second: what was found, if it was looked for.
        run: its model, its particles, and the log evidence of each island.
        combine: makes one log evidence of those of islands, with its error.
    """
    model, cloud, islands = run
    joined = second and second.missed(cloud, islands, combine)
    if joined is not None and not joined.is_missed:
        decision = joined.widened(decision)
    elif joined is not None and joined.overrules(decision):
        decision = decision.overruled(joined.log_evidence, joined.std_error, found.flags)
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
