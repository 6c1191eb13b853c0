"""A log-likelihood of +inf is not a density: an error that names the row and the parameters."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.errors import ModelError
from weighbridge.core.types import Array
from weighbridge.models.model import Model, unravel_positions
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import Span
from weighbridge.models.targets.term import Term

# Rows, and particles, whose log-likelihoods are computed together.
ROWS_AT_ONCE = 4096
PARTICLES_AT_ONCE = 64
# Numbers of a parameter or a column shown in a message.
SHOWN = 4

_REASON = (
    "A density must be finite wherever it is not zero: check the log-likelihood for a division by "
    "zero, a standard deviation of 0 or an overflow, and return -inf where the density is zero."
)


class UnboundedError(ModelError):
    """The log-likelihood is +inf for some particle.

    Args:
        position: unconstrained, particles (or islands x particles) x coordinates; the
            log-likelihood is +inf for one of them. None if the message already has the parameters.
        where: the place, as far as it is known.
    """

    def __init__(self, position: Any, where: str = "for some parameters that were tried") -> None:
        super().__init__(f"The log-likelihood is +inf {where}. {_REASON}")
        self.position = position

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelError, (str(self),)

    def at_rows(self, model: Model, rows: Rows, first_row: int) -> UnboundedError:
        """The same error with the row and the parameters; itself if no row here gives +inf.

        Args:
            model: the model with this log-likelihood.
            rows: the rows to search; rows of weight 0 do not count.
            first_row: number of the first of these rows.
        """
        if self.position is None:
            return self
        positions = np.asarray(self.position).reshape(-1, model.dimension)
        for start in range(0, len(rows.weight), ROWS_AT_ONCE):
            piece = slice(start, start + ROWS_AT_ONCE)
            block = _taken(rows, piece)
            for first in range(0, len(positions), PARTICLES_AT_ONCE):
                some = positions[first : first + PARTICLES_AT_ONCE]
                values = np.asarray(_row_values(model, some, block.values))
                found = np.argwhere((values == np.inf) & (block.weight > 0))
                if len(found):
                    particle, row = map(int, found[0])
                    columns = _columns(_taken(block.values, row))
                    where = f"at row {first_row + start + row} (counting from 0{columns})"
                    return UnboundedError(None, f"{where} for {_named(model, some[particle])}")
        return self

    def in_term(self, model: Model, term: Term) -> UnboundedError:
        """The same error, with the row if the term has rows, and the parameters."""
        if self.position is None:
            return self
        if isinstance(term, Span):
            return self.at_rows(model, term.rows, 0)
        if isinstance(term, Rows):
            return self.at_rows(model, term, 0)
        rows = getattr(term, "rows", None)
        if isinstance(rows, Rows) and np.ndim(rows.weight) == 1:
            return self.at_rows(model, rows, 0)
        positions = np.asarray(self.position).reshape(-1, model.dimension)
        values = np.asarray(_term_values(model, positions, term))
        found = np.flatnonzero(values == np.inf)
        if not len(found):
            return self
        return UnboundedError(None, f"for {_named(model, positions[found[0]])}")


def _taken(tree: Any, which: slice | int) -> Any:
    return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf)[which], tree)


@jit
def _row_values(model: Model, positions: Array, values: Any) -> Array:
    def at(position: Array) -> Array:
        return model.row_log_likelihoods(model.transform(position)[0], values)

    return jax.vmap(at)(positions)


@jit
def _term_values(model: Model, positions: Array, term: Term) -> Array:
    return jax.vmap(lambda u: term(model, u, model.transform(u)[0]))(positions)


def _named(model: Model, position: np.ndarray) -> str:
    """Parameters as text, for a message."""
    named = unravel_positions(model, position[None])
    return describe_parameters({name: np.asarray(named[name])[0] for name in model.names})


def describe_parameters(parameters: dict[str, np.ndarray]) -> str:
    """Parameters as text, for a message; the first numbers of each.

    >>> describe_parameters({"mu": np.array(0.25), "w": np.arange(9.0)})
    'mu=0.25, w=[0, 1, 2, 3, ...]'
    """
    return ", ".join(f"{name}={_text(value)}" for name, value in parameters.items())


def _columns(row: Any) -> str:
    if isinstance(row, dict):
        return "; " + describe_parameters(row)
    leaves = jax.tree_util.tree_leaves(row)
    return "; " + ", ".join(map(_text, leaves))


def _text(value: Any) -> str:
    numbers = np.asarray(value, float).reshape(-1)
    shown = [f"{number:.6g}" for number in numbers[:SHOWN]]
    if np.ndim(value) == 0:
        return shown[0]
    return "[" + ", ".join([*shown, "..."] if len(numbers) > SHOWN else shown) + "]"
