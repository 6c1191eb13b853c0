"""The same observations for several models, and for the draws that were made with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weighbridge.core.errors import DataError
from weighbridge.data.fingerprint import exact_digest
from weighbridge.data.sources.opening import open_source
from weighbridge.models.held import Held
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.posterior import Posterior


def hold_for_all(models: Sequence[Model], data: Any, caller: str) -> list[Held]:
    """All observations, checked for each model; a source is read once."""
    held = [Held(model, "raise") for model in models]
    if data is None:
        if any(model.log_likelihood is not None for model in models):
            raise DataError(f"{caller} needs rows for this model: give it data.")
        return held
    source = open_source(data)
    for one in held:
        one.left_out, one.checker.unread = source.left_out, source.unread
    for block in source.blocks():
        for one in held:
            one.add(block)
    return held


def require_same_data(posterior: Any, held: Held) -> None:
    """Refuse draws that were made with other data, as far as they say with which.

    A posterior has a digest of the rows in their order, an evidence a fingerprint of them in any
    order; arrays say nothing.
    """
    unequal: list[str] = []
    if isinstance(posterior, Posterior) and posterior.state.get("digest") is not None:
        if posterior.state["digest"] != exact_digest(*held.contents()):
            unequal = ["the rows, or their order"]
    elif isinstance(posterior, Evidence) and posterior.fingerprint is not None:
        found = held.fingerprint
        if found is None or found.num_rows != posterior.fingerprint.num_rows:
            unequal = ["the number of rows"]
        else:
            unequal = posterior.fingerprint.differences(found)
    if unequal:
        raise DataError(
            f"The draws were made with other data: {' and '.join(unequal[:3])} "
            f"{'differs' if len(unequal) == 1 else 'differ'}. A ratio of evidences needs the same "
            "data for both models: give the data of the draws, or draw again."
        )
