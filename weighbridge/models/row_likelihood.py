"""Check that the log-likelihood of one row fits the rows of the data."""

from __future__ import annotations

import weakref
from typing import Any

import jax
import numpy as np

from weighbridge.core.errors import DataError, ModelError
from weighbridge.core.types import Array, PyTree
from weighbridge.models.model import LogLikelihood, Model
from weighbridge.models.program_text import traced_text

_abstract_array: Any = jax.ShapeDtypeStruct  # JAX has no types for its constructor
# Results by model and layout of the rows: a trace takes as long as a small run.
_CHECKED: weakref.WeakKeyDictionary[Model, dict[Any, bool]] = weakref.WeakKeyDictionary()


def check_row_function(model: Model, values: PyTree) -> bool:
    """Check the log-likelihood of one row by tracing it; nothing is computed.

    Returns whether a column named ``weight`` counts repeated rows: this is so if the data has such
    a column and the log-likelihood does not read it.
    """
    leaves, structure = jax.tree_util.tree_flatten(values)
    layout = (structure, *((leaf.shape[1:], str(leaf.dtype)) for leaf in leaves))
    known = _CHECKED.setdefault(model, {})
    if layout not in known:
        known[layout] = _check_row_function(model, values)
    return known[layout]


def _check_row_function(model: Model, values: PyTree) -> bool:
    function = model.require_rows()
    row = jax.tree_util.tree_map(lambda leaf: _abstract_array(leaf.shape[1:], leaf.dtype), values)
    position = _abstract_array((model.dimension,), np.float64)

    def trace() -> Any:
        # A new closure for each trace: JAX would return the cached trace of the same closure.
        def evaluate(position: Array, row: Any) -> Any:
            return function(model.transform(position)[0], row)

        with jax.enable_x64(True):
            return jax.make_jaxpr(evaluate)(position, row)

    programs = []
    for _ in range(2):
        try:
            program = trace()
        except (ModelError, DataError):
            raise
        except Exception as error:
            raise ModelError(
                f"The log-likelihood fails on one row {_describe_row(row)}: "
                f"{type(error).__name__}: {str(error).splitlines()[0]} Check the names and the "
                "number of columns, and use jax.numpy inside the function."
            ) from error
        programs.append(program)
    shapes = [tuple(value.shape) for value in programs[0].out_avals]
    if shapes != [()]:
        raise ModelError(
            f"The log-likelihood of one row must be a scalar; it has the shape "
            f"{shapes[0] if len(shapes) == 1 else shapes} for a row {_describe_row(row)}. Sum it "
            "over the columns, and check that the number of columns is the one the model expects."
        )
    if not np.issubdtype(programs[0].out_avals[0].dtype, np.floating):
        raise ModelError(
            "The log-likelihood of one row must be a real number; it is of type "
            f"{programs[0].out_avals[0].dtype}."
        )
    if traced_text(programs[0]) != traced_text(programs[1]):
        raise ModelError(
            "The log-likelihood is random from call to call: two traces of it differ. Take the "
            "random numbers out of it; a latent variable belongs in the prior."
        )
    if not (isinstance(values, dict) and "weight" in values):
        return False
    return not _depends_on(lambda p, r: function(model.transform(p)[0], r), position, row, "weight")


def _depends_on(function: LogLikelihood, position: Any, row: Any, column: str) -> bool:
    """Whether a column can change the result: if so, JAX refuses out_axes=None for the result."""
    varied = {name: 0 if name == column else None for name in row}
    batch = row | {column: _abstract_array((2, *row[column].shape), row[column].dtype)}
    with jax.enable_x64(True):
        try:
            fixed = jax.vmap(function, in_axes=(None, varied), out_axes=None)
            jax.eval_shape(fixed, position, batch)
        except ValueError:
            return True
    return False


def _describe_row(row: PyTree) -> str:
    if isinstance(row, dict):
        columns = ", ".join(f"{name}: {_describe_leaf(leaf)}" for name, leaf in row.items())
        return "{" + columns + "}"
    leaves = jax.tree_util.tree_leaves(row)
    return ", ".join(_describe_leaf(leaf) for leaf in leaves)


def _describe_leaf(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}" if leaf.shape else f"{leaf.dtype} scalar"


def split_weight(values: PyTree, counts_rows: bool) -> tuple[PyTree, np.ndarray]:
    """Split the row weights from a block; without a weight column each row counts once."""
    leaves = jax.tree_util.tree_leaves(values)
    if not counts_rows:
        return values, np.ones(len(leaves[0]))
    weight = np.asarray(values["weight"], np.float64)
    if weight.ndim != 1 or not np.all((weight >= 0) & np.isfinite(weight)):
        raise DataError(
            "The column 'weight' counts repeated rows (the log-likelihood does not read it): it "
            "must be one finite non-negative number per row. Rename it if it means something else."
        )
    return {name: column for name, column in values.items() if name != "weight"}, weight
