"""The interface of a term of the log-likelihood, and what exact terms have in common."""

from __future__ import annotations

from typing import Any, Protocol, Self, cast

import jax.numpy as jnp

from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.models.priors import Parameters


class Term(Protocol):
    """A term of the log-likelihood: exact, tempered or estimated on a mini-batch."""

    @property
    def axes(self) -> Any:
        """The island axis of each leaf, for jax.vmap; None for leaves without one."""
        ...

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """Value of the term at a position; ``parameters`` are the parameters there."""
        ...

    def subsample(self, step: Array) -> Term:
        """The same term on the mini-batch of this step; an exact term returns itself."""
        ...

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """Variance of the term's gradient over mini-batches, per coordinate."""
        ...

    def guide(self) -> Term:
        """A cheaper term whose gradient may guide moves that this term accepts or rejects."""
        ...

    def guide_noise(self) -> Array | float:
        """Variance of the difference between the guide and this term, up to a constant."""
        ...


class OwnGuide:
    """Base of terms whose own gradient guides the moves."""

    def guide(self) -> Term:
        """The term itself."""
        return cast(Term, self)

    def guide_noise(self) -> Array | float:
        """Zero, since the guide is the term itself."""
        return 0.0


class ExactTerm(OwnGuide):
    """Base of exact terms: no mini-batch, no noise, the same for all islands."""

    @property
    def axes(self) -> None:
        """No leaf has an island axis."""
        return

    def subsample(self, step: Array) -> Self:
        """An exact term does not change."""
        return self

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """An exact term has no gradient noise."""
        return jnp.zeros_like(position)
