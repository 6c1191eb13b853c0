"""Observations in memory: normalising them, checking rows, cutting blocks.

Throughout, *values* are a pytree of NumPy arrays (float64, int64 or bool) with one leading axis.
"""

from __future__ import annotations

import decimal
import importlib
import numbers
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import tree_util

from weighbridge.base import DataError, MissingDependencyError, PyTree
from weighbridge.quarantine import BadRow, Quarantine

Values = PyTree
NumpyArray = np.ndarray[Any, Any]
RowPolicy = Literal["raise", "skip", "quarantine"]

_REMEDIES = {
    "text": "Convert it to numbers, or leave the column out.",
    "complex": "Pass the real and the imaginary part as two columns.",
    "categorical": "Use its integer codes (column.cat.codes) or one 0/1 column per category.",
    "date or time": "Convert it to a number first, such as seconds since the first row.",
    "other": "Convert it to an array of numbers, or leave the column out.",
}


def row_name(index: int) -> str:
    """How messages name a row."""
    return f"row {index} (counting from 0)"


def _unusable(name: str, kind: str, detail: str = "") -> DataError:
    what = "values that are not numbers" if kind == "other" else f"{kind} values, not numbers"
    return DataError(f"Column {name!r} holds {what}{detail}. {_REMEDIES[kind]}")


def require(module: str) -> Any:
    """Import an optional module; MissingDependencyError tells how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"Reading this data needs {module.split('.')[0]}, which cannot be imported. "
            'Install it with: pip install "weighbridge[data]"'
        ) from error


def _is_a(thing: Any, module: str, *names: str) -> bool:
    """Whether `thing` is of a class of an optional module, without importing that module."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, tuple(getattr(loaded, name) for name in names))


# Normalising -------------------------------------------------------------------------------------


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
    if _is_a(data, "pandas", "DataFrame"):
        refuse_duplicates(list(data.columns))
        data = {name: data[name] for name in data.columns}
    elif _is_a(data, "pyarrow", "Table", "RecordBatch"):
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
    leaves = [_as_array(leaf, name, first_row) for name, (_, leaf) in pairs]
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
        or _is_a(data, "pandas", "DataFrame")
        or _is_a(data, "pyarrow", "Table", "RecordBatch")
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


def _as_array(leaf: Any, name: str, first_row: int) -> NumpyArray:
    if _is_a(leaf, "pandas", "Series"):
        leaf = _from_series(leaf, name)
    elif _is_a(leaf, "pyarrow", "Array", "ChunkedArray"):
        leaf = _from_arrow(leaf, name)
    elif isinstance(leaf, np.ma.MaskedArray) and np.ma.getmaskarray(leaf).any():
        leaf = np.ma.filled(leaf.astype(np.float64), np.nan)
    try:
        array = np.asarray(leaf)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"Column {name!r} cannot be made an array ({error}). "
            "Pass rows of equal shape, as a NumPy array."
        ) from error
    if array.ndim == 0:
        raise DataError(
            f"Column {name!r} is a single value ({leaf!r}), not an array with one entry per row. "
            "Repeat it for every row, or leave it out."
        )
    if array.dtype.kind in "OUST":
        array = _from_objects(array, name, first_row)
    dtype = array.dtype
    if dtype == np.bool_:
        return array
    # jax's issubdtype also knows bfloat16 and int4, which NumPy takes for raw bytes.
    if jnp.issubdtype(dtype, np.floating):
        return array.astype(np.float64, copy=False)
    if jnp.issubdtype(dtype, np.integer):
        if dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise DataError(f"Column {name!r} exceeds 64-bit integers. Convert it to float.")
        return array.astype(np.int64, copy=False)
    raise _unusable(
        name, {"c": "complex", "M": "date or time", "m": "date or time"}.get(dtype.kind, "other")
    )


def _from_series(series: Any, name: str) -> Any:
    dtype = series.dtype
    if _is_a(dtype, "pandas", "CategoricalDtype"):
        raise _unusable(name, "categorical")
    if dtype.kind == "M":  # with a time zone it would become an array of objects
        raise _unusable(name, "date or time")
    if dtype.kind in "iufb" and hasattr(dtype, "numpy_dtype"):
        if series.isna().any():
            return series.to_numpy(dtype=np.float64, na_value=np.nan)
        return series.to_numpy(dtype=dtype.numpy_dtype)
    return series.to_numpy()


def is_numeric_arrow(kind: Any) -> bool:
    """Whether an Arrow type becomes numbers: integer, floating, boolean, decimal or null."""
    types = require("pyarrow.types")
    names = ("integer", "floating", "boolean", "decimal", "null")
    return any(getattr(types, f"is_{name}")(kind) for name in names)


def _from_arrow(column: Any, name: str) -> NumpyArray:
    types = require("pyarrow.types")
    if types.is_dictionary(column.type):
        raise _unusable(name, "categorical")
    if types.is_temporal(column.type):
        raise _unusable(name, "date or time")
    if not is_numeric_arrow(column.type):
        objects = np.empty(len(column), dtype=object)
        objects[:] = column.to_pylist()
        return objects
    if column.null_count or types.is_decimal(column.type) or types.is_null(column.type):
        column = column.cast("float64")
    array: NumpyArray = np.asarray(column)
    return array


def _from_objects(array: NumpyArray, name: str, first_row: int) -> NumpyArray:
    """Numbers held as objects, with None and NA for missing; DataError at the first other."""
    items = array.reshape(-1).tolist()
    missing = [item is None or type(item).__name__ == "NAType" for item in items]
    number = (numbers.Real, decimal.Decimal, np.bool_)
    offending = [
        position
        for position, item in enumerate(items)
        if not (missing[position] or isinstance(item, number))
    ]
    if offending:  # name the first that does not even look like a number
        position = next((p for p in offending if not looks_numeric(items[p])), offending[0])
        row = first_row + position // (array.size // len(array))
        is_text = isinstance(items[position], str | bytes)
        detail = f": {items[position]!r} at {row_name(row)}"
        raise _unusable(name, "text" if is_text else "other", detail)
    dtype: type = np.float64
    if items and all(isinstance(item, bool | np.bool_) for item in items):
        dtype = np.bool_
    elif items and all(isinstance(item, numbers.Integral) for item in items):
        dtype = np.int64
    try:
        filled = [np.nan if gone else item for gone, item in zip(missing, items, strict=True)]
        return np.array(filled, dtype=dtype).reshape(array.shape)
    except OverflowError as error:
        raise DataError(
            f"Column {name!r} holds a number too large ({error}). Rescale it."
        ) from None


def looks_numeric(item: Any) -> bool:
    """Whether `float` accepts the item."""
    try:
        float(item)
    except (TypeError, ValueError):
        return False
    return True


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


# Checking ----------------------------------------------------------------------------------------


class RowChecker:
    """The gate that every block of a stream passes: same structure, no bad rows.

    A bad row has a NaN or an infinity, or is flagged by `check_rows`. After a DataError the
    checker is as it was before the block.

    Args:
        on_bad_row: "raise" a DataError, "skip" the row and count it, or "quarantine" it: count it
            and append it to a file.
        check_rows: maps a block (NaN rows included) to {reason: boolean mask of its bad rows}.
        quarantine: that file, or a `Quarantine` that several checkers of the same rows share.

    >>> checker = RowChecker(on_bad_row="skip")
    >>> checker({"y": np.array([1.0, np.nan, 3.0])}), checker.rows_read, checker.rows_skipped
    ({'y': array([1., 3.])}, 3, 1)
    """

    def __init__(
        self,
        on_bad_row: RowPolicy = "raise",
        check_rows: Callable[[Values], Mapping[str, NumpyArray]] | None = None,
        quarantine: str | os.PathLike[str] | Quarantine | None = None,
    ) -> None:
        self.on_bad_row = on_bad_row
        self.check_rows = check_rows
        self.quarantine = open_quarantine(on_bad_row, quarantine)
        self.rows_read = 0
        self.rows_skipped = 0
        self.rows_quarantined = 0
        self._structure: list[tuple[str, tuple[int, ...], str]] | None = None
        self._treedef: Any = None

    def __call__(self, values: Values) -> Values:
        """Check one block and return it without its bad rows."""
        values = as_values(values, self.rows_read)
        names = column_names(values)
        raw, treedef = tree_util.tree_flatten(values)
        structure = [
            (name, leaf.shape[1:], str(leaf.dtype)) for name, leaf in zip(names, raw, strict=True)
        ]
        if self._structure is not None:
            leaves = self._match(structure, raw, treedef)
            values = tree_util.tree_unflatten(treedef, leaves)
        rows = num_rows(values)
        if rows == 0:  # too little to fix the structure by
            return values
        flags = self._flags(values, rows)
        bad = np.zeros(rows, dtype=bool)
        for leaf in raw:
            if not _all_finite(leaf):
                bad |= ~np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))
        for mask in flags.values():
            bad |= mask
        num_bad = int(bad.sum())
        if num_bad:
            columns = list(zip(names, raw))
            if self.on_bad_row == "raise":
                raise self._bad_row(int(bad.argmax()), num_bad, columns, flags)
            if self.quarantine is not None:
                self._set_aside(self.quarantine, np.flatnonzero(bad).tolist(), columns, flags)
            values = tree_util.tree_map(lambda leaf: leaf[~bad], values)
        self._structure = self._structure or structure
        self._treedef = treedef
        self.rows_read += rows
        if self.quarantine is None:
            self.rows_skipped += num_bad
        else:
            self.rows_quarantined += num_bad
        return values

    @property
    def rows_left_out(self) -> int:
        """Bad rows so far, skipped or quarantined."""
        return self.rows_skipped + self.rows_quarantined

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs, as plain JSON-able values."""
        known = self._structure
        structure = None if known is None else [[n, list(shape), kind] for n, shape, kind in known]
        return {
            "structure": structure,
            "rows_read": self.rows_read,
            "rows_skipped": self.rows_skipped,
            "rows_quarantined": self.rows_quarantined,
            "quarantine_size": 0 if self.quarantine is None else self.quarantine.size,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        structure = state["structure"]
        self._structure = structure and [(n, tuple(shape), kind) for n, shape, kind in structure]
        self._treedef = None  # taken from the next block, whose names are compared
        self.rows_read = int(state["rows_read"])
        self.rows_skipped = int(state["rows_skipped"])
        self.rows_quarantined = int(state["rows_quarantined"])
        if self.quarantine is not None:
            self.quarantine.resume(int(state["quarantine_size"]))

    def _flags(self, values: Values, rows: int) -> dict[str, NumpyArray]:
        flags = {} if self.check_rows is None else dict(self.check_rows(values))
        for reason, mask in flags.items():
            flags[reason] = np.asarray(mask)
            if flags[reason].shape != (rows,) or flags[reason].dtype != np.bool_:
                raise DataError(
                    f"check_rows returned {flags[reason].dtype} of shape {flags[reason].shape} "
                    f"for {reason!r}. Return one boolean per row, shape ({rows},)."
                )
        return flags

    def _bad_row(
        self,
        row: int,
        num_bad: int,
        columns: list[tuple[str, NumpyArray]],
        flags: dict[str, NumpyArray],
    ) -> DataError:
        problems = _problems(row, columns, flags)
        more = f" ({num_bad} such rows in this block)" if num_bad > 1 else ""
        return DataError(
            f"Bad {row_name(self.rows_read + row)}: {problems[0]}{more}. Correct it, or pass "
            "on_bad_row='skip', which drops such rows and counts them."
        )

    def _set_aside(
        self,
        quarantine: Quarantine,
        rows: list[int],
        columns: list[tuple[str, NumpyArray]],
        flags: dict[str, NumpyArray],
    ) -> None:
        quarantine.add(
            self.rows_read,
            [
                BadRow(
                    self.rows_read + row,
                    "; ".join(_problems(row, columns, flags)),
                    {name: leaf[row].tolist() for name, leaf in columns},
                )
                for row in rows
            ],
        )

    def _match(
        self, structure: list[tuple[str, tuple[int, ...], str]], raw: list[NumpyArray], treedef: Any
    ) -> list[NumpyArray]:
        """The leaves in the types of the first block; DataError if they do not fit it."""
        expected = self._structure or []
        here = f"in the block that starts at {row_name(self.rows_read)}"
        names, now = [entry[0] for entry in expected], [entry[0] for entry in structure]
        if names != now or (self._treedef is not None and self._treedef != treedef):
            raise DataError(
                f"The columns changed {here}: expected {', '.join(names)}; got {', '.join(now)}. "
                "Give every block the same columns, in the same containers."
            )
        leaves = []
        for (name, shape, kind), (_, new_shape, new_kind), leaf in zip(
            expected, structure, raw, strict=True
        ):
            if shape != new_shape:
                raise DataError(
                    f"Column {name!r} changed shape {here}: expected {shape} per row, got "
                    f"{new_shape}. Give every row the same number of features."
                )
            if (kind, new_kind) == ("float64", "int64"):
                leaf = leaf.astype(np.float64)
            elif (kind, new_kind) == ("int64", "float64") and not _all_finite(leaf):
                # Whole numbers with gaps are floats only because of the gaps: these are bad rows.
                filled = np.where(np.isfinite(leaf), leaf, 0.0)
                if (filled == np.round(filled)).all() and (np.abs(filled) < 2.0**53).all():
                    leaf = filled.astype(np.int64)
            if str(leaf.dtype) != kind:
                raise DataError(
                    f"Column {name!r} changed type {here}: expected {kind}, got {new_kind}. "
                    f"Convert every block to one type; for a file or chunks, open_source(..., "
                    f"schema={{{name!r}: float}}) does it."
                )
            leaves.append(leaf)
        return leaves


def open_quarantine(
    on_bad_row: RowPolicy, quarantine: str | os.PathLike[str] | Quarantine | None
) -> Quarantine | None:
    """The file for bad rows where the row policy wants one; DataError if the two do not fit."""
    if on_bad_row not in ("raise", "skip", "quarantine"):
        raise DataError(f"on_bad_row is {on_bad_row!r}. Use 'raise' or 'skip' or 'quarantine'.")
    if on_bad_row != "quarantine":
        if quarantine is not None:
            raise DataError(
                f"A quarantine file is named, but on_bad_row is {on_bad_row!r}. Pass "
                "on_bad_row='quarantine', or leave the file out."
            )
        return None
    if quarantine is None:
        raise DataError(
            "on_bad_row='quarantine' writes bad rows to a file: name it with quarantine=PATH."
        )
    return quarantine if isinstance(quarantine, Quarantine) else Quarantine(quarantine)


def _problems(
    row: int, columns: list[tuple[str, NumpyArray]], flags: Mapping[str, NumpyArray]
) -> list[str]:
    """What is wrong with a row of a block: first its numbers, then what `check_rows` says."""
    problems = [reason for reason, mask in flags.items() if mask[row]]
    for name, leaf in reversed(columns):
        where = np.argwhere(~np.isfinite(leaf[row]))
        if len(where):
            element = "[" + ", ".join(map(str, where[0])) + "]" if leaf.ndim > 1 else ""
            value = leaf[(row, *where[0])]
            problems.insert(0, f"column '{name}{element}' is {value}")
    return problems


def _all_finite(leaf: NumpyArray) -> bool:
    if leaf.dtype != np.float64:
        return True
    with np.errstate(over="ignore", invalid="ignore"):  # the sum needs no memory for a mask
        return bool(np.isfinite(leaf.sum())) or bool(np.isfinite(leaf).all())


# Cutting -----------------------------------------------------------------------------------------


def _check_size(size: int) -> None:
    if size < 1:
        raise DataError(f"size is {size}. Use a chunk size of at least one row.")


def slice_rows(values: Values, start: int, stop: int | None) -> Values:
    """Some rows of a block, as views."""
    return tree_util.tree_map(lambda leaf: leaf[start:stop], values)


def split(values: Values, size: int) -> Iterator[Values]:
    """Cut one block into views of at most `size` rows.

    >>> list(split(np.arange(5), 2))
    [array([0, 1]), array([2, 3]), array([4])]
    """
    _check_size(size)
    return (slice_rows(values, i, i + size) for i in range(0, num_rows(values), size))


def rechunk(blocks: Iterable[Values], size: int | Callable[[int], int]) -> Iterator[Values]:
    """Cut a stream of blocks anew into chunks of exactly `size` rows and one last, shorter one.

    Args:
        blocks: values of any number of rows.
        size: rows per chunk, or a function of the rows in all chunks before.

    Returns:
        The chunks, in order; a chunk that lies within one block is a view of it.

    >>> list(rechunk([np.arange(3), np.arange(3, 5)], 2))
    [array([0, 1]), array([2, 3]), array([4])]
    >>> list(rechunk([np.arange(5)], lambda before: max(before, 1)))
    [array([0]), array([1]), array([2, 3]), array([4])]
    """
    if callable(size):
        return _rechunk(blocks, size)
    _check_size(size)
    return _rechunk(blocks, lambda _: size)


def _rechunk(blocks: Iterable[Values], size_after: Callable[[int], int]) -> Iterator[Values]:
    pending: list[Values] = []
    num_pending, before = 0, 0
    size = size_after(before)
    for block in blocks:
        start, rows = 0, num_rows(block)
        while start < rows:
            stop = min(rows, start + size - num_pending)
            pending.append(slice_rows(block, start, stop))
            num_pending += stop - start
            start = stop
            if num_pending == size:
                yield join(pending)
                before += size
                pending, num_pending, size = [], 0, size_after(before)
    if pending:
        yield join(pending)


def join(pieces: Sequence[Values]) -> Values:
    """One block of several, one after the other; a single one is not copied."""
    if len(pieces) == 1:
        return pieces[0]
    return tree_util.tree_map(lambda *leaves: np.concatenate(leaves), *pieces)


def pad(values: Values, weight: NumpyArray, size: int) -> tuple[Values, NumpyArray]:
    """Pad to `size` rows by repeating the first row with weight 0.

    A row of zeros could give a gradient of 0 * NaN; a row of the data is valid for the model.

    Args:
        values: at least one and at most `size` rows.
        weight: one weight per row.
        size: the number of rows wanted.

    Returns:
        The padded values and weights.

    >>> pad(np.array([3.0, 4.0]), np.ones(2), 4)
    (array([3., 4., 3., 3.]), array([1., 1., 0., 0.]))
    """
    rows = num_rows(values)
    check_weight(weight, rows)
    if not 1 <= rows <= size:
        raise DataError(f"Cannot pad {rows} rows to size {size}. Use 1 to {size} rows.")
    extra = np.zeros(size - rows, dtype=np.int64)
    if not len(extra):
        return values, weight
    padded = tree_util.tree_map(lambda leaf: np.concatenate([leaf, leaf[extra]]), values)
    return padded, np.concatenate([weight, np.zeros(len(extra))])


def check_weight(weight: NumpyArray, rows: int) -> None:
    """DataError unless there is one weight per row."""
    if np.shape(weight) != (rows,):
        raise DataError(
            f"weight has shape {np.shape(weight)}, and there are {rows} rows. "
            f"Pass one weight per row, shape ({rows},)."
        )
