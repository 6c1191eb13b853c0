"""The arguments of a NumPyro model function: names, example rows, and a key for the others."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Hashable, Mapping
from typing import Any

import jax
import numpy as np

from weighbridge.core.compilation import own
from weighbridge.core.errors import DataError, ModelError

NUM_CHECK_ROWS = 100


def check_names(model_fn: Any, data: Any, static: Mapping[str, Any]) -> None:
    """Require that each argument of the function is named once, in data or in static."""
    if not callable(model_fn):
        raise ModelError(f"model_fn must be a NumPyro model function, not {model_fn!r}.")
    if not isinstance(data, Mapping) or not data:
        raise DataError(
            "data must map the names of the model function's data arguments to arrays of example "
            'rows: {"x": x, "y": y}.'
        )
    both = sorted(set(data) & set(static))
    if both:
        raise ModelError(f"The arguments {both} are in data and in static; give each once.")
    try:
        inspect.signature(model_fn).bind(**data, **static)
    except TypeError as error:
        raise ModelError(
            f"The model function cannot be called with data {list(data)} and static "
            f"{list(static)}: {error}. Name each of its arguments in one of the two."
        ) from None


def example_rows(data: Mapping[str, Any]) -> dict[str, Any]:
    """Two to a hundred rows spread over the data, with floats in double precision."""
    lengths: dict[tuple[str, int], int] = {}
    for name, column in data.items():
        leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(column)]
        if not leaves or any(leaf.dtype.kind not in "fiub" or not leaf.ndim for leaf in leaves):
            raise DataError(
                f"data[{name!r}] must be an array of numbers with the rows along its first axis; "
                "pass other arguments with static={...}."
            )
        lengths |= {(name, index): len(leaf) for index, leaf in enumerate(leaves)}
    sizes = set(lengths.values())
    if len(sizes) > 1 or 0 in sizes:
        counts = {name: length for (name, _), length in lengths.items()}
        raise DataError(f"The columns of data must have one length of at least 1, not {counts}.")
    count = sizes.pop()
    # A single row is used twice, which still shows what grows with the number of rows.
    chosen = np.linspace(0, count - 1, min(max(count, 2), NUM_CHECK_ROWS)).astype(int)

    def pick(leaf: Any) -> np.ndarray:
        rows: np.ndarray = np.asarray(leaf)[chosen]
        return rows.astype(np.float64) if rows.dtype.kind == "f" else rows

    return {name: jax.tree_util.tree_map(pick, column) for name, column in data.items()}


def as_numbers(leaf: Any) -> np.ndarray:
    """An argument as an array of our own, with floats in double precision.

    >>> as_numbers(np.ones(2, np.float32)).dtype
    dtype('float64')
    """
    array = np.asarray(leaf)
    if array.dtype.kind not in "fiub":
        raise DataError("data must hold arrays of numbers; pass other arguments with static={...}.")
    return own(array.astype(np.float64) if array.dtype.kind == "f" else array)


class _Opaque:
    """A static argument that cannot be compared; it equals only itself."""


def static_key(static: Mapping[str, Any]) -> Hashable:
    """A key that is equal for equal static arguments; arrays are compared by content."""
    leaves, structure = jax.tree_util.tree_flatten(dict(static))
    return str(structure), tuple(_leaf_key(leaf) for leaf in leaves)


def _leaf_key(leaf: Any) -> Hashable:
    if isinstance(leaf, np.ndarray | jax.Array):
        array = np.asarray(leaf)
        return array.shape, str(array.dtype), hashlib.sha256(array.tobytes()).hexdigest()
    try:
        hash(leaf)
    except TypeError:
        return _Opaque()
    return type(leaf).__name__, leaf
