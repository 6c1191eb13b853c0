"""Dataclasses as pytrees, and the size of a pytree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from weighbridge.core.pickling import travels
from weighbridge.core.types import PyTree

Class = TypeVar("Class", bound=type)


def register_dataclass(cls: Class, data_fields: Sequence[str], meta_fields: Sequence[str]) -> Class:
    """Make a dataclass a pytree whose structure names its class; pickled by its public name.

    Like ``jax.tree_util.register_dataclass``. In jax 0.10 the structures of that function compare
    equal for different classes with the same number of leaves, although their hashes differ. If two
    such structures meet in a table of compiled programs, a kernel may get the program of another
    kernel.

    Args:
        cls: the class.
        data_fields: fields that are leaves, or pytrees.
        meta_fields: fields that are part of the structure; they must be hashable.

    >>> from dataclasses import dataclass
    >>> from functools import partial
    >>> @partial(register_dataclass, data_fields=["x"], meta_fields=["name"])
    ... @dataclass(frozen=True)
    ... class Named:
    ...     x: float
    ...     name: str
    >>> jax.tree_util.tree_map(lambda leaf: 2 * leaf, Named(1.0, "a"))
    Named(x=2.0, name='a')
    """
    data, meta = tuple(data_fields), tuple(meta_fields)
    keys = tuple(map(jax.tree_util.GetAttrKey, data))

    def flatten(node: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(node, f) for f in data), tuple(getattr(node, f) for f in meta)

    def flatten_with_keys(node: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        leaves, rest = flatten(node)
        return tuple(zip(keys, leaves)), rest

    def unflatten(rest: tuple[Any, ...], leaves: Iterable[Any]) -> Any:
        return cls(**dict(zip(meta, rest)), **dict(zip(data, leaves)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return travels()(cls)


def count_numbers(tree: PyTree) -> int:
    """Number of entries of all leaves.

    >>> count_numbers({"x": np.zeros((3, 2)), "y": np.zeros(3)})
    9
    """
    return sum(int(np.size(leaf)) for leaf in jax.tree_util.tree_leaves(tree))
