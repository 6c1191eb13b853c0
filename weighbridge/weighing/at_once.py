"""Rounds of a method for chunks that first tries to weigh all rows in memory at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weighbridge.core import interrupts
from weighbridge.core.progress.announcing import announce
from weighbridge.estimators.protocols import SequentialMethod
from weighbridge.models.held import Held
from weighbridge.results.evidence_result import Evidence
from weighbridge.weighing.one_round import OneRound, Weighing, hold_rows

CLIMBING = "looking for the mode"


def at_once_first(weighing: Weighing, method: SequentialMethod, in_chunks: OneRound) -> OneRound:
    """Rounds that take the rows in chunks only for models that cannot be weighed at once.

    Args:
        weighing: the models and the data.
        method: the method of one round.
        in_chunks: a round in one pass over the data.
    """
    competitors, source, seed, _, reporter, _ = weighing
    found = {name: method.at_once(c.model) for name, c in competitors.items()}
    ways = {name: way for name, way in found.items() if way is not None}
    if not (ways and source.in_memory):
        return in_chunks
    holders: dict[str, Held] = {}

    def at_once(name: str, first_island: int) -> Evidence | None:
        announce(reporter, CLIMBING)
        if not holders:
            holders.update(hold_rows(weighing, list(ways)))
        held = holders[name]
        rows, weight = held.contents()
        assert weight is not None, "a method for chunks has rows"
        result = ways[name](rows, weight, seed, first_island)
        if result is None:  # nor will it do in another round
            del ways[name], holders[name]
            return None
        noticed = {**result.diagnostics, **held.noticed(), "row_order": "at once"}
        return replace(result, diagnostics=noticed, fingerprint=held.fingerprint)

    def one_round(first_island: int, names: Sequence[str]) -> dict[str, Evidence]:
        results: dict[str, Evidence] = {}
        for name in names:
            if name not in ways:
                continue
            try:
                result = at_once(name, first_island)
            except interrupts.Interrupted:
                return results
            if result is not None:
                results[name] = result
                interrupts.keep()
        rest = [name for name in names if name not in results]
        if rest:
            results |= in_chunks(first_island, rest)
        return {name: results[name] for name in names if name in results}

    return one_round
