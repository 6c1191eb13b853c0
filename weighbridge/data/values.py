"""Observations in memory as *values*: a pytree of arrays with one leading axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax import tree_util

from weighbridge.base import DataError, PyTree
from weighbridge.data.columns import as_array
from weighbridge.data.optional import is_a

Values = PyTree


def as_values(data: Any, first_row: int = 0) -> Values:
    """Normalise observations to a pytree of float64, int64 or bool NumPy arrays.

    Args:
        data: an array or a list of numbers; a dict or any pytree of arrays with one common
            leading axis; a pandas DataFrame; a pyarrow Table or RecordBatch.
        first_row: of the data within its stream, for messages that name a row.

    Returns:
        The same structure (a dict of columns for a table). Missing entries become NaN.

    >>> as_values({"y": [1, 2], "x": [[0.5, 1.0], [2.0, None]]})["x"]
    array([[0.5, 1. ],
           [2. , nan]])
    """
    if is_a(data, "pandas", "DataFrame"):
        refuse_duplicates(list(data.columns))
        data = {name: data[name] for name in data.columns}
    elif is_a(data, "pyarrow", "Table", "RecordBatch"):
        refuse_duplicates(data.schema.names)
        data = dict(zip(data.schema.names, data.columns, strict=True))
    elif isinstance(data, Mapping):
        data = dict(data)
    try:
        entries, treedef = tree_util.tree_flatten_with_path(data, is_leaf=_is_array_like)
    except ValueError as error:  # jax sorts the keys of a dict
        raise DataError(f"Column names must all be text ({error}).") from error
    names = [_leaf_name(path) for path, _ in entries]
    if not names:
        raise DataError("The data has no columns. Pass an array, or a dict of arrays.")
    pairs = zip(names, entries, strict=True)
    leaves = [as_array(leaf, name, first_row) for name, (_, leaf) in pairs]
    for name, leaf in zip(names, leaves, strict=True):
        if len(leaf) != len(leaves[0]):
            raise DataError(
                f"Columns {names[0]!r} and {name!r} have {len(leaves[0])} and {len(leaf)} rows. "
                "All columns need the same number of rows."
            )
    return tree_util.tree_unflatten(treedef, leaves)


def is_table(data: Any) -> bool:
    """Whether `data` has named columns: a mapping, a DataFrame, an Arrow Table or RecordBatch."""
    return (
        isinstance(data, Mapping)
        or is_a(data, "pandas", "DataFrame")
        or is_a(data, "pyarrow", "Table", "RecordBatch")
    )


def _is_array_like(node: Any) -> bool:
    """A nested list of numbers is one array, where jax would see a tree of scalars."""
    if isinstance(node, list):
        leaves = tree_util.tree_leaves(node)
        return not any(hasattr(leaf, "__array__") and np.ndim(leaf) for leaf in leaves)
    return node is None


def _leaf_name(path: tuple[Any, ...]) -> str:
    if not path or isinstance(path[0], tree_util.SequenceKey):
        return "data" + tree_util.keystr(path)
    return tree_util.keystr(path, simple=True, separator=".")


def refuse_duplicates(names: Sequence[Any]) -> None:
    """DataError if a column name occurs twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"Column name {twice[0]!r} occurs more than once. Rename one of them.")


def num_rows(values: Values) -> int:
    """Number of rows of normalised values.

    >>> num_rows({"x": np.zeros((3, 2))})
    3
    """
    return len(tree_util.tree_leaves(values)[0])


def column_names(values: Values) -> list[str]:
    """Names of the leaves, in tree order: the dict key, or "data" for a plain array.

    >>> column_names({"x": np.zeros((3, 2)), "y": np.zeros(3)}), column_names(np.zeros(3))
    (['x', 'y'], ['data'])
    """
    return [_leaf_name(path) for path, _ in tree_util.tree_flatten_with_path(values)[0]]
