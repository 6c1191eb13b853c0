"""Whether posterior draws are of this model and of these data, as far as they say so themselves."""

from __future__ import annotations

from typing import Any

from weighbridge.core.errors import DataError
from weighbridge.data.fingerprint import exact_digest
from weighbridge.models.held import Held
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.posterior import Posterior


def require_origin(draws: Any, model: Model, held: Held) -> None:
    """Refuse draws that say that they are of other data, of another model or of an unfinished run.

    A posterior of ``wb.sample`` knows its rows in their order and its model, an evidence its rows
    in any order. Arrays and draws from ArviZ know nothing.

    Args:
        draws: what the user gave as draws.
        model: the model of which they should be.
        held: its data.

    >>> import numpy as np, weighbridge as wb
    >>> data, model = wb.zoo.gaussian.simulate(20, seed=1), wb.zoo.gaussian.model()
    >>> result = wb.evidence(model, data, wb.Importance(num_draws=64, num_islands=4), seed=0)
    >>> held = Held(model, "raise")
    >>> held.add(data[1:])
    >>> require_origin(result, model, held)
    Traceback (most recent call last):
    ...
    weighbridge.core.errors.DataError: The draws were made with other data, which differ in: ...
    """
    if isinstance(draws, Posterior):
        digest, origin = draws.state.get("digest"), draws.state.get("fingerprint")
        if digest is not None and digest != exact_digest(*held.contents()):
            raise DataError(
                "The draws were made with other data, which differ in: the rows, or their order. "
                "Give the data of the wb.sample call, or draw again."
            )
        if origin is not None and origin != model.fingerprint():
            raise DataError(
                "The posterior was drawn from another model. If both compute the same, give the "
                "draws alone: posterior.samples."
            )
    if isinstance(draws, Evidence) and draws.diagnostics.get("power_reached", 1.0) < 1:
        raise DataError(
            "The run of this result was stopped before the end of its path: its draws are not of "
            "the posterior. Run it again to the end."
        )
    if isinstance(draws, Evidence) and draws.fingerprint is not None:
        seen = held.fingerprint
        if seen is None or seen.num_rows != draws.fingerprint.num_rows:
            apart = ["the number of rows"]
        else:
            apart = draws.fingerprint.differences(seen)
        if apart:
            raise DataError(
                "The draws were made with other data, which differ in: "
                f"{', '.join(map(str, apart))}. Give the data of which the result is the evidence."
            )
