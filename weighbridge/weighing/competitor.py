"""A model among several that are weighed on common data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weighbridge.core.types import PyTree
from weighbridge.models.model import Model


@dataclass(frozen=True)
class Competitor:
    """A model, and the function that takes its values out of a block of the common data."""

    model: Model
    view: Callable[[PyTree], PyTree]


def as_it_is(values: PyTree) -> PyTree:
    """The view of a model that takes the common data unchanged."""
    return values
