"""Densities on the way from all rows before to all rows with a chunk of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array
from weighbridge.models.exchangeable import Walls
from weighbridge.models.model import Model
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.tempered import Tempered
from weighbridge.models.targets.term import Term


@partial(
    register_dataclass,
    data_fields=["model", "past", "chunk", "walls"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Path:
    r"""Densities from prior times past to prior times past times chunk.

    .. math:: f_\lambda(\theta) = p(\theta) \, \text{past}(\theta) \, \text{chunk}(\theta)^\lambda

    Where components may be permuted, ``walls`` may restrict them to the cell of one labelling.
    """

    model: Model
    past: tuple[Term, ...]
    chunk: Term
    walls: Walls | None = None

    @property
    def axes(self) -> Any:
        """Where the island axes of its terms lie, for jax.vmap; the model is common to all."""
        past = tuple(term.axes for term in self.past)
        return Path(None, past, self.chunk.axes, None)  # type: ignore[arg-type]

    def target(self, power: Array) -> Target:
        """The density at a power of the chunk's likelihood."""
        return Target(self.model, (*self.past, Tempered(self.chunk, power)))

    def permits(self, before: Array, after: Array) -> Array:
        """Which moves, islands x particles, do not leave the walls, if there are any.

        A few particles at the edge of the prior may begin outside; those may go on.
        """
        if self.walls is None:
            return jnp.ones(after.shape[:2], bool)
        inside = jax.vmap(jax.vmap(partial(self.walls.allow, self.model)))
        permitted: Array = inside(after) | ~inside(before)
        return permitted

    def chunk_log_likelihood(self, position: Array) -> Array:
        """What the weights grow by when the power goes from 0 to 1."""
        return self.chunk(self.model, position, self.model.transform(position)[0])


def chunk_log_likelihoods(path: Path, position: Array) -> Array:
    """Log-likelihood of the chunk at every particle of every island."""

    def island(path: Path, position: Array) -> Array:
        return jax.vmap(path.chunk_log_likelihood)(position)

    found: Array = jax.vmap(island, in_axes=(path.axes, 0))(path, position)
    return found
