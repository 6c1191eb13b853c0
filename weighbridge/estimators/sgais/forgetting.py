"""How a run of SGAIS forgets: before each chunk, the weight of all past rows is reduced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import numpy as np

from weighbridge.estimators.annealing.loop import PathSeed, anneal
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings
from weighbridge.estimators.annealing.step import patient_step
from weighbridge.estimators.sgais.chunk_stage import RESAMPLE_BELOW, ChunkRows, Stage
from weighbridge.models.targets.anchored import Anchored

if TYPE_CHECKING:
    from weighbridge.estimators.sgais.run import SGAISRun

# First number of the stages in which a run forgets; stages of chunks never reach it.
FORGETTING = 1 << 62


def forget(run: SGAISRun, stage: Stage, chunk: ChunkRows) -> Stage:
    r"""Reduce the weight of all rows before a chunk of c observations, and move the particles.

    .. math:: p(\theta) L(\theta) \to p(\theta) L(\theta)^a, \qquad a = 2^{-c / \text{half-life}}

    The log evidence does not change here: only chunks add to it.
    """
    ledger, half_life = run.ledger, run.method.half_life
    if half_life is None or not ledger.num_rows:
        return stage
    fade = 0.5 ** ((ledger.seen_with(chunk) - ledger.num_observations) / half_life)
    past = cast(Anchored, stage.path.past[0])
    nothing = stage.chunk.term.emptied()
    # For a Gaussian of D dimensions, a step of the power by this factor keeps most of the ESS.
    step = 1.0 - 1.0 / math.sqrt(max(ledger.model.dimension, 2))
    num_steps = max(math.ceil(math.log(fade) / math.log(step)), 1)
    found = anneal(
        PathSeed(ledger.seed, FORGETTING + ledger.num_chunks, ledger.islands),
        stage.cloud,
        lambda _: stage.labels.within(Path(ledger.model, (nothing,), past)),
        run.mover,
        Settings(
            run.method.target_ess,
            RESAMPLE_BELOW,
            schedule=fade ** (np.arange(1, num_steps + 1) / num_steps),
            start=1.0,
        ),
        take_step=patient_step,
        between=stage.labels.follow,
    )
    change = found.steps[-1].log_evidence - ledger.log_evidences
    cloud = found.cloud._replace(log_weight=found.cloud.log_weight - change[:, None])
    return stage.faded(fade)._replace(cloud=cloud)


def memory(run: SGAISRun) -> dict[str, float]:
    """Diagnostics of a run that forgets: half-life, and weight of the kept rows; else empty."""
    if run.method.half_life is None:
        return {}
    rows = run.ledger.rows
    weight = rows.gather(np.arange(rows.num_kept))[1]
    return {"half_life": run.method.half_life, "rows_remembered": float(weight.sum())}
