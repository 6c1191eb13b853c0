"""Convert one column of observations, in any container, to float64, int64 or bool."""

from __future__ import annotations

import datetime
import decimal
import numbers
from typing import Any

import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import own
from weighbridge.core.errors import DataError
from weighbridge.core.optional import is_a, require

NumpyArray = np.ndarray[Any, Any]

_REMEDIES = {
    "text": "Convert it to numbers, or leave the column out.",
    "complex": "Pass the real and the imaginary part as two columns.",
    "categorical": "Use its integer codes (in pandas column.cat.codes, in polars "
    "column.to_physical()) or one 0/1 column per category.",
    "date or time": "Convert it to a number first, such as seconds since the first row.",
    "other": "Convert it to an array of numbers, or leave the column out.",
}


class UnusableColumnError(DataError):
    """A column that does not hold numbers: text, dates, categories, objects."""


def row_name(index: int) -> str:
    """The name of a row in messages."""
    return f"row {index} (counting from 0)"


def _unusable(name: str, kind: str, detail: str = "") -> UnusableColumnError:
    what = "values that are not numbers" if kind == "other" else f"{kind} values, not numbers"
    return UnusableColumnError(f"Column {name!r} holds {what}{detail}. {_REMEDIES[kind]}")


def as_array(leaf: Any, name: str, first_row: int) -> NumpyArray:
    """A column as an array, or an UnusableColumnError if it does not hold numbers."""
    if is_a(leaf, "pandas", "Series", "Index"):
        leaf = _from_pandas(leaf, name)
    elif is_a(leaf, "polars", "Series"):
        leaf = _from_polars(leaf, name)
    elif is_a(leaf, "pyarrow", "Array", "ChunkedArray"):
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
        return own(array)
    if dtype.kind == "m":  # NumPy treats time differences as integers
        raise _unusable(name, "date or time")
    # jax's issubdtype also recognises bfloat16 and int4, which NumPy treats as raw bytes.
    if jnp.issubdtype(dtype, np.floating):
        return own(array.astype(np.float64, copy=False))
    if jnp.issubdtype(dtype, np.integer):
        if dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise DataError(f"Column {name!r} exceeds 64-bit integers. Convert it to float.")
        return own(array.astype(np.int64, copy=False))
    raise _unusable(
        name, {"c": "complex", "M": "date or time", "m": "date or time"}.get(dtype.kind, "other")
    )


def _from_pandas(series: Any, name: str) -> Any:
    dtype = series.dtype
    if is_a(dtype, "pandas", "CategoricalDtype"):
        if dtype.categories.dtype.kind not in "iufb":
            raise _unusable(name, "categorical")
        return np.asarray(series)  # the categories are numbers: use them
    if dtype.kind in "Mm":  # with a time zone, to_numpy returns objects
        raise _unusable(name, "date or time")
    if dtype.kind in "iufb" and hasattr(dtype, "numpy_dtype"):
        if series.isna().any():
            return series.to_numpy(dtype=np.float64, na_value=np.nan)
        return series.to_numpy(dtype=dtype.numpy_dtype)
    return series.to_numpy()


def _from_polars(series: Any, name: str) -> Any:
    dtype = series.dtype
    if dtype.is_temporal():
        raise _unusable(name, "date or time")
    if is_a(dtype, "polars", "Categorical", "Enum"):
        raise _unusable(name, "categorical")
    if is_a(dtype, "polars", "Array"):  # rows of equal length, such as the features of a row
        nested = np.empty((len(series), *dtype.shape), dtype=object)
        for index, row in enumerate(series.to_list()):
            nested[index] = row
        return nested
    numeric = dtype.is_float() or dtype.is_integer() or is_a(dtype, "polars", "Boolean")
    if dtype.is_decimal() or is_a(dtype, "polars", "Null") or (numeric and series.null_count()):
        return series.cast(require("polars").Float64).to_numpy()
    if numeric and not is_a(dtype, "polars", "Int128", "UInt128"):  # NumPy has at most 64 bits
        return series.to_numpy()
    objects = np.empty(len(series), dtype=object)
    objects[:] = series.to_list()
    return objects


def is_numeric_arrow(kind: Any) -> bool:
    """Whether an Arrow type becomes numbers: integer, floating, boolean, decimal or null."""
    types = require("pyarrow.types")
    names = ("integer", "floating", "boolean", "decimal", "null")
    return any(getattr(types, f"is_{name}")(kind) for name in names)


def _from_arrow(column: Any, name: str) -> NumpyArray:
    types = require("pyarrow.types")
    if types.is_dictionary(column.type):
        if not is_numeric_arrow(column.type.value_type):
            raise _unusable(name, "categorical")
        column = column.cast(column.type.value_type)
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
    """Numbers held as objects, None and NA as NaN; DataError at the first other object."""
    items = array.reshape(-1).tolist()
    missing = [item is None or type(item).__name__ == "NAType" for item in items]
    number = (numbers.Real, decimal.Decimal, np.bool_)
    offending = [
        position
        for position, item in enumerate(items)
        if not (missing[position] or isinstance(item, number))
    ]
    if offending:  # prefer a value that float() rejects
        position = next((p for p in offending if not looks_numeric(items[p])), offending[0])
        row = first_row + position // (array.size // len(array))
        detail = f": {items[position]!r} at {row_name(row)}"
        raise _unusable(name, _kind_of(items[position]), detail)
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


def _kind_of(item: Any) -> str:
    """The kind of an object that is not a number."""
    if isinstance(item, str | bytes):
        return "text"
    is_time = isinstance(item, datetime.date | datetime.time | datetime.timedelta)
    return "date or time" if is_time else "other"


def looks_numeric(item: Any) -> bool:
    """Whether `float` accepts the item."""
    try:
        float(item)
    except (TypeError, ValueError):
        return False
    return True
