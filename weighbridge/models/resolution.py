"""Rows with values so large that double precision cannot compute their log-likelihood.

The log-likelihood of a row, and its change with the last digit of the row's values, is computed for
some parameters. If its rounding error exceeds one nat for all of them, the row is a bad row: its
contribution to the evidence, and that of other rows summed with it, is lost in rounding.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import double_precision, jit
from weighbridge.core.random import random_key
from weighbridge.core.types import Array, PyTree
from weighbridge.data.cutting import pad, split
from weighbridge.data.values import column_names, num_rows
from weighbridge.models.model import Model, draw_positions

# Rows without values above this are not examined: nothing is computed.
LARGE = 1e7
# Above this, double precision does not represent every whole number.
HUGE = 2.0**53
# The largest allowed rounding error of a row's log-likelihood, in nats.
RESOLUTION = 1.0
# Number of prior draws tried, and number of draws that are also shrunk towards the middle of the
# parameters: a column of large values, such as incomes, may have a small coefficient.
NUM_DRAWS, NUM_SHRUNK = 64, 8
SHRUNK = (1e-3, 1e-6, 1e-9, 1e-12, 1e-15)
# Rows examined together.
ROWS_AT_ONCE = 64
# Relative change of the values, to find the effect of their last digit.
CHANGE = 2.0**-45


@double_precision
def unresolved(model: Model, values: PyTree, counts_rows: bool) -> dict[str, np.ndarray]:
    """Rows whose log-likelihood has a rounding error above one nat, by reason.

    Args:
        model: a model with a log-likelihood of rows.
        values: a block of rows; rows with a NaN or an infinity are not examined.
        counts_rows: whether a column ``weight`` counts repeated rows.

    Returns:
        A mask of the rows for each reason; the reason names the column and the value.

    >>> import weighbridge as wb
    >>> found = unresolved(wb.zoo.gaussian.model(), np.array([1.0, 1e18]), False)
    >>> [reason[:25] for reason in found]
    ["column 'data' is about 1e"]
    """
    rows = {n: v for n, v in values.items() if n != "weight"} if counts_rows else values
    sizes = _Sizes(rows)
    suspects = np.flatnonzero((sizes.largest > LARGE) & np.isfinite(sizes.largest))
    if not len(suspects):
        return {}
    chosen = jax.tree_util.tree_map(lambda leaf: leaf[suspects], rows)
    bad = suspects[_is_unresolved(model, chosen, sizes.largest[suspects] > HUGE)]
    found: dict[str, np.ndarray] = {}
    for row in bad.tolist():
        reason = (
            f"column {sizes.column(row)!r} is about {sizes.largest[row]:.0e}, so large that double "
            "precision cannot compute the log-likelihood to within one nat for any parameters from "
            "the prior (rescale the column if all its values are so large)"
        )
        found.setdefault(reason, np.zeros(num_rows(values), bool))[row] = True
    return found


def largest_value(values: PyTree, admitted: PyTree) -> tuple[int, str, float] | None:
    """Row, column and size of the largest accepted value, if it is large; else None.

    Args:
        values: a block of rows.
        admitted: the rows of the block that were accepted.

    >>> largest_value({"x": np.array([1.0, 1e20, -1e18])}, {"x": np.array([1.0, -1e18])})
    (2, 'x', 1e+18)
    """
    if not num_rows(admitted):
        return None
    most = float(_Sizes(admitted).largest.max())
    if not most > LARGE:
        return None
    sizes = _Sizes(values)
    row = int(np.argmax(sizes.largest == most))
    return row, sizes.column(row), most


class _Sizes:
    """The largest absolute value in each row, and its place; 0 for columns without large values."""

    def __init__(self, values: PyTree) -> None:
        self._names, leaves = column_names(values), jax.tree_util.tree_leaves(values)
        self._is_scalar = [leaf.ndim == 1 for leaf in leaves]
        size = num_rows(values)
        self.largest = np.zeros(size)
        self._leaf, self._entry = np.zeros(size, int), np.zeros(size, int)
        for number, leaf in enumerate(leaves):
            if leaf.dtype == np.bool_ or not leaf.size or not _exceeds(leaf):
                continue
            sizes = np.abs(leaf.astype(np.float64)).reshape(size, -1)
            entry, own = sizes.argmax(axis=1), sizes.max(axis=1)
            larger = ~(own <= self.largest)  # also true for NaN: such a row is bad already
            self.largest = np.where(larger, own, self.largest)
            self._leaf = np.where(larger, number, self._leaf)
            self._entry = np.where(larger, entry, self._entry)

    def column(self, row: int) -> str:
        """The name of the column, with its entry, that holds the largest value of a row."""
        number = int(self._leaf[row])
        name = self._names[number]
        return name if self._is_scalar[number] else f"{name}[{self._entry[row]}]"


def _exceeds(leaf: np.ndarray) -> bool:
    """Whether some value is large; does not allocate an array as large as the column."""
    return bool(leaf.max() > LARGE or leaf.min() < -LARGE or np.isnan(leaf.max()))


def _is_unresolved(model: Model, rows: PyTree, is_huge: np.ndarray) -> np.ndarray:
    """Which rows have a rounding error above one nat for all parameters tried.

    For values too large to be exact whole numbers, only the unshrunk prior draws count.
    """
    draws = np.asarray(draw_positions(model, random_key(0), NUM_DRAWS))
    shrunk = [share * draws[:NUM_SHRUNK] for share in SHRUNK]
    positions = np.concatenate([draws, *shrunk])
    pieces = []
    for block, ones in split((rows, np.ones(len(is_huge))), ROWS_AT_ONCE):
        padded = pad(block, ones, ROWS_AT_ONCE)[0]
        pieces.append(np.asarray(_errors(model, positions, padded))[:, : len(ones)])
    errors = np.concatenate(pieces, axis=1)
    # If the density is zero or NaN, rounding is not the problem.
    resolved = ~(errors > RESOLUTION)
    return np.asarray(~np.where(is_huge, resolved[:NUM_DRAWS].any(axis=0), resolved.any(axis=0)))


@jit
def _errors(model: Model, positions: Array, values: PyTree) -> Array:
    """Rounding error of the log-likelihood of each row at each position, in nats.

    The relative rounding error of the log-likelihood, plus its change when the values change in
    their last digit: the difference of two large, nearly equal numbers may be small but inaccurate.
    """
    leaves, structure = jax.tree_util.tree_flatten(values)
    last_digit = float(np.finfo(np.float64).eps)

    def changed(sign: float) -> PyTree:
        moved = []
        for number, leaf in enumerate(leaves):
            if leaf.dtype != jnp.float64:
                moved.append(leaf)
                continue
            # Alternating signs from entry to entry, so that the changes do not cancel.
            signs = 1 - 2.0 * ((jnp.arange(leaf[0].size) + number) % 2)
            moved.append(leaf * (1 + sign * CHANGE * signs.reshape(leaf.shape[1:])))
        return jax.tree_util.tree_unflatten(structure, moved)

    def at(position: Array) -> Array:
        parameters = model.transform(position)[0]
        height, above, below = (
            model.row_log_likelihoods(parameters, rows)
            for rows in (values, changed(1.0), changed(-1.0))
        )
        slope = jnp.abs(above - below) / (2 * CHANGE)
        return last_digit * (jnp.abs(height) + slope)

    return jax.vmap(at)(positions)
