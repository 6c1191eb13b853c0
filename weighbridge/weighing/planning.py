"""How a method runs its rounds: on data in memory, or in passes over the data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from weighbridge.estimators.protocols import BatchMethod
from weighbridge.estimators.registry import Method
from weighbridge.models.held import Held
from weighbridge.weighing.at_once import at_once_first
from weighbridge.weighing.one_round import (
    Weighing,
    held_rounds,
    hold_rows,
    is_shuffled,
    streamed_rounds,
)
from weighbridge.weighing.rounds import Limits, Rounds


def plan_rounds(
    weighing: Weighing,
    method: Method,
    limits: Limits,
    *,
    resume: str | Path | None = None,
    holders: Mapping[str, Held] | None = None,
) -> Rounds:
    """The rounds of a method.

    Args:
        weighing: the models and the data.
        method: the method.
        limits: when to stop.
        resume: the file of the run, for a method that can go on from it, and one model.
        holders: the rows of the models, if they were loaded before.
    """
    competitors, source = weighing.competitors, weighing.source
    if isinstance(method, BatchMethod):
        least, numbered = method.num_islands, limits.tolerance is not None
        if numbered:
            method = method.of_a_round(max(c.model.dimension for c in competitors.values()))
        method = method.within(limits.tolerance, limits.time_limit)
        held = hold_rows(weighing, list(competitors)) if holders is None else holders
        one_round = held_rounds(weighing, method, held, numbered=numbered, resume=resume)
        return Rounds(one_round, method, repeatable=True, least=least)
    rows = source.num_rows if source.in_memory else None
    if rows:
        method = method.with_reservoir_for(rows)
    one_round = streamed_rounds(weighing, method, shuffled=is_shuffled(method, source))
    one_round = at_once_first(weighing, method, one_round)
    return Rounds(one_round, method, repeatable=source.reopenable)
