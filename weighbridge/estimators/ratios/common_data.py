"""The same observations for several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weighbridge.core.errors import DataError
from weighbridge.data.sources.opening import open_source
from weighbridge.models.held import Held
from weighbridge.models.model import Model


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
