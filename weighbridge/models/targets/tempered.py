"""A term of the log-likelihood raised to a power."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.models.priors import Parameters
from weighbridge.models.targets.term import Term


@partial(register_dataclass, data_fields=["term", "power"], meta_fields=[])
@dataclass(frozen=True)
class Tempered:
    """The likelihood of a term raised to a power: power * log p(rows | theta)."""

    term: Term
    power: Array | float

    @property
    def axes(self) -> Any:
        """The axes of the term; all islands share the power."""
        return Tempered(self.term.axes, None)  # type: ignore[arg-type]

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """The power times the term."""
        return self.power * self.term(model, position, parameters)

    def subsample(self, step: Array) -> Tempered:
        """Temper the term on its mini-batch."""
        return replace(self, term=self.term.subsample(step))

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """The variance of the term, times the squared power."""
        return self.power**2 * self.term.gradient_variance(model, position)

    def guide(self) -> Tempered:
        """The guide of the term, raised to the same power."""
        guide = self.term.guide()
        return self if guide is self.term else replace(self, term=guide)

    def guide_noise(self) -> Array | float:
        """The noise of the term's guide, times the squared power."""
        return self.power**2 * self.term.guide_noise()
