"""Observations in memory as *values*: a pytree of arrays with one leading axis."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import tree_util

from weighbridge.core.errors import DataError
from weighbridge.core.optional import is_a
from weighbridge.core.types import PyTree
from weighbridge.data.columns import NumpyArray, UnusableColumnError, as_array

Values = PyTree
# Columns that were left out, by name, each with the error to raise if a model reads it.
LeftOut = dict[str, DataError]


class UsableColumns(NamedTuple):
    """Observations, and the columns that were left out because they do not hold numbers."""

    values: Values
    left_out: LeftOut


def as_values(data: Any, first_row: int = 0) -> Values:
    """Convert observations to a pytree of float64, int64 or bool NumPy arrays.

    Args:
        data: an array or a list of numbers; a dict or any pytree of arrays with one common
            leading axis; a pandas or polars DataFrame or Series; a pyarrow Table or RecordBatch.
        first_row: number of the first row in its stream, for messages that name a row.

    Returns:
        The same structure (a dict of columns for a table). Missing entries become NaN.

    >>> as_values({"y": [1, 2], "x": [[0.5, 1.0], [2.0, None]]})["x"]
    array([[0.5, 1. ],
           [2. , nan]])
    """
    values, left_out = take_columns(data, first_row)
    for error in left_out.values():
        raise error
    return values


def take_columns(data: Any, first_row: int = 0) -> UsableColumns:
    """Like ``as_values``, but columns of a table that do not hold numbers are left out.

    Such columns are text, dates, categories and objects; most of them are names and labels that no
    model reads. A model that reads one gets the error that explains what is wrong with it.

    >>> values, left_out = take_columns({"y": [1.5, 2.0], "city": ["Oslo", "Bonn"]})
    >>> values, list(left_out)
    ({'y': array([1.5, 2. ])}, ['city'])
    """
    data = _by_column(data)
    try:
        entries, treedef = tree_util.tree_flatten_with_path(data, is_leaf=_is_array_like)
    except ValueError as error:  # jax sorts the keys of a dict
        raise DataError(f"Column names must all be text ({error}).") from error
    if not entries:
        raise DataError("The data has no columns. Pass an array, or a dict of arrays.")
    names, leaves, left_out = [], [], LeftOut()
    for path, leaf in entries:
        name = _leaf_name(path)
        try:
            leaves.append(as_array(leaf, name, first_row))
            names.append(name)
        except UnusableColumnError as error:
            if not isinstance(data, dict) or len(path) != 1:
                raise
            left_out[path[0].key] = error
    if not leaves:
        raise next(iter(left_out.values()))
    _check_lengths(names, leaves)
    if left_out:
        kept = {name: column for name, column in data.items() if name not in left_out}
        treedef = tree_util.tree_structure(kept, is_leaf=_is_array_like)
    return UsableColumns(tree_util.tree_unflatten(treedef, leaves), left_out)


def _by_column(data: Any) -> Any:
    """A table as a dict of its columns; other data unchanged."""
    if is_a(data, "pandas", "DataFrame"):
        refuse_duplicates(list(data.columns))
        return {name: data[name] for name in data.columns}
    if is_a(data, "polars", "DataFrame"):
        return dict(zip(data.columns, data.get_columns(), strict=True))
    if is_a(data, "polars", "LazyFrame"):
        raise DataError(
            "The data is a polars LazyFrame, which holds no rows yet. Pass frame.collect(); or, if "
            "it does not fit into memory, write it with frame.sink_parquet(PATH) and pass the path."
        )
    if is_a(data, "pyarrow", "Table", "RecordBatch"):
        refuse_duplicates(data.schema.names)
        return dict(zip(data.schema.names, data.columns, strict=True))
    return dict(data) if isinstance(data, Mapping) else data


def _check_lengths(names: Sequence[str], leaves: Sequence[NumpyArray]) -> None:
    for name, leaf in zip(names, leaves, strict=True):
        if len(leaf) != len(leaves[0]):
            raise DataError(
                f"Columns {names[0]!r} and {name!r} have {len(leaves[0])} and {len(leaf)} rows. "
                "All columns need the same number of rows."
            )


class TableReader:
    """Converts the pieces of one table, one after the other, to values with the same columns.

    A column that was left out once stays out, even if a later piece has numbers in it. A column
    that was kept must hold numbers in all later pieces.

    Attributes:
        left_out: the columns left out so far, with the reason for each.

    >>> reader = TableReader()
    >>> reader({"y": [1.0], "code": ["a7"]}), reader({"y": [2.0], "code": [8]})
    ({'y': array([1.])}, {'y': array([2.])})
    """

    def __init__(self) -> None:
        self.left_out: LeftOut = {}
        self._kept: set[Any] = set()

    def __call__(self, data: Any, first_row: int = 0) -> Values:
        """The values of one piece; after an error the reader is unchanged."""
        values, left_out = take_columns(data, first_row)
        for name, error in left_out.items():
            if name in self._kept:
                raise error
        if isinstance(values, dict):
            kept = {name: leaf for name, leaf in values.items() if name not in self.left_out}
            values = kept or values
            if num_rows(values):  # an empty column does not show its type
                self._kept |= set(values)
        self.left_out |= {n: error for n, error in left_out.items() if n not in self.left_out}
        return values

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block that restores the reader if it ends in an error."""
        left_out, kept = dict(self.left_out), set(self._kept)
        try:
            yield
        except BaseException:
            self.left_out.clear()  # other objects share this dict
            self.left_out.update(left_out)
            self._kept = kept
            raise


def is_table(data: Any) -> bool:
    """Whether `data` has named columns: a mapping, a data frame, an Arrow Table or RecordBatch."""
    return (
        isinstance(data, Mapping)
        or is_a(data, "pandas", "DataFrame")
        or is_a(data, "polars", "DataFrame", "LazyFrame")
        or is_a(data, "pyarrow", "Table", "RecordBatch")
    )


def _is_array_like(node: Any) -> bool:
    """Whether a node is one array; jax would treat a nested list of numbers as a tree."""
    if isinstance(node, list):
        leaves = tree_util.tree_leaves(node)
        return not any(hasattr(leaf, "__array__") and np.ndim(leaf) for leaf in leaves)
    return node is None


def _leaf_name(path: tuple[Any, ...]) -> str:
    if not path or isinstance(path[0], tree_util.SequenceKey):
        return "data" + tree_util.keystr(path)
    return tree_util.keystr(path, simple=True, separator=".")


def refuse_duplicates(names: Sequence[Any]) -> None:
    """Raise a DataError if a column name occurs twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"Column name {twice[0]!r} occurs more than once. Rename one of them.")


def num_rows(values: Values) -> int:
    """Number of rows of values.

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


def left_out_before(name: str) -> UnusableColumnError:
    """The error for a column that was left out before the run was saved."""
    return UnusableColumnError(
        f"The column {name!r} did not hold numbers when this run was saved, and was left out of "
        "all rows so far. Begin a new run to use it."
    )


def columns_remark(names: Sequence[str]) -> list[str]:
    """A remark about columns that were left out: one line, or none.

    >>> columns_remark(["city", "when"]), columns_remark([])
    (['left out columns that are not numbers: city, when'], [])
    """
    return [f"left out columns that are not numbers: {', '.join(names)}"] if names else []
