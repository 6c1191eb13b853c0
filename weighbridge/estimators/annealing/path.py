"""The path of densities from the posterior of the past rows to that with a new chunk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import EitherProgram
from weighbridge.core.pytrees import count_numbers, register_dataclass
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
    r"""The densities between prior x past and prior x past x chunk.

    .. math:: f_\lambda(\theta) = p(\theta) \, \text{past}(\theta) \, \text{chunk}(\theta)^\lambda

    If components may be permuted, ``walls`` can restrict the path to the cell of one labelling.
    """

    model: Model
    past: tuple[Term, ...]
    chunk: Term
    walls: Walls | None = None

    @property
    def num_numbers(self) -> int:
        """Number of entries in its terms; for many, the program is compiled to run fast."""
        return count_numbers((self.past, self.chunk))

    @property
    def axes(self) -> Any:
        """The island axes of the terms, for jax.vmap; all islands share the model."""
        past = tuple(term.axes for term in self.past)
        return Path(None, past, self.chunk.axes, None)  # type: ignore[arg-type]

    def target(self, power: Array) -> Target:
        """The density at a power of the chunk's likelihood."""
        return Target(self.model, (*self.past, Tempered(self.chunk, power)))

    def permits(self, before: Array, after: Array) -> Array:
        """Which moves stay within the walls, islands x particles; all if there are no walls.

        A few particles at the edge of the prior may start outside; their moves are permitted.
        """
        if self.walls is None:
            return jnp.ones(after.shape[:2], bool)
        inside = jax.vmap(jax.vmap(partial(self.walls.allow, self.model)))
        permitted: Array = inside(after) | ~inside(before)
        return permitted

    def chunk_log_likelihood(self, position: Array) -> Array:
        """The change of the log weight when the power goes from 0 to 1."""
        return self.chunk(self.model, position, self.model.transform(position)[0])


def chunk_log_likelihoods(path: Path, position: Array) -> Array:
    """Log-likelihood of the chunk at every particle of every island; for a compiled program."""

    def island(path: Path, position: Array) -> Array:
        return jax.vmap(path.chunk_log_likelihood)(position)

    found: Array = jax.vmap(island, in_axes=(path.axes, 0))(path, position)
    return found


def evaluate_chunk(path: Path, position: np.ndarray) -> np.ndarray:
    """Log-likelihood of the chunk at every particle of every island, on the host."""
    return np.asarray(_CHUNK.for_numbers(path.num_numbers)(path, position))


_CHUNK = EitherProgram(chunk_log_likelihoods)
