"""Rows of a stream kept in bounded memory: a uniform sample, or the recent rows."""

from __future__ import annotations

import contextlib
import copy
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jax import tree_util

from weighbridge.core.errors import DataError
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.rollback import restored_on_error
from weighbridge.data.columns import NumpyArray
from weighbridge.data.cutting import check_weight, split
from weighbridge.data.values import Values, num_rows

_PIECE_ROWS = 1 << 18
# Rows whose weight is below this share of a new row's are dropped.
NEGLIGIBLE = 2.0**-20


class _KeptRows(ABC):
    """Kept rows, as one array per leaf and one for their weights."""

    def __init__(self) -> None:
        self.num_seen = 0
        self._layout: Any = None
        self._stores: list[NumpyArray] = []  # the leaves, then the weights

    @property
    @abstractmethod
    def num_kept(self) -> int:
        """Number of rows kept."""

    def _columns(self, values: Values, weight: NumpyArray) -> list[NumpyArray]:
        """The leaves of a block and its weights; DataError if they do not match earlier rows."""
        check_weight(weight, num_rows(values))
        if not num_rows(values):  # an empty block does not define the layout
            return []
        columns = [*tree_util.tree_leaves(values), np.asarray(weight, dtype=np.float64)]
        layout = _encode(values)
        if self._layout is None:
            self._layout = layout
            self._stores = [np.empty((0, *leaf.shape[1:]), leaf.dtype) for leaf in columns]
        fits = layout == self._layout and all(
            leaf.shape[1:] == store.shape[1:] and leaf.dtype == store.dtype
            for leaf, store in zip(columns, self._stores, strict=True)
        )
        if not fits:
            raise DataError(
                f"The rows from row {self.num_seen} on differ in structure, shape or type from "
                "those before. Pass every block through one RowChecker first."
            )
        return columns

    def gather(self, indices: NumpyArray) -> tuple[Values, NumpyArray]:
        """Some of the kept rows.

        Args:
            indices: integers in [0, num_kept), of any shape.

        Returns:
            Values whose leaves have the shape `indices.shape + trailing`, and the weights.
        """
        indices = np.asarray(indices)
        if indices.size and not 0 <= indices.min() <= indices.max() < self.num_kept:
            raise DataError(
                f"indices run from {indices.min()} to {indices.max()}, but {self.num_kept} rows "
                "are kept. Use integers from 0 to num_kept - 1."
            )
        if self._layout is None:
            raise DataError("The reservoir is empty. Append rows first.")
        *leaves, weight = [np.take(store, indices, axis=0) for store in self._stores]
        return _decode(self._layout, iter(leaves)), weight

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block that restores the rows if it ends in an error."""
        with restored_on_error(self):
            yield

    def _stored(self) -> dict[str, NumpyArray]:
        layout = json.dumps(self._layout).encode()
        return {
            "layout": np.frombuffer(layout, dtype=np.uint8).copy(),
            **{f"store_{i}": store[: self.num_kept].copy() for i, store in enumerate(self._stores)},
        }

    def _restore(self, state: Mapping[str, NumpyArray]) -> None:
        self._layout = json.loads(np.asarray(state["layout"], dtype=np.uint8).tobytes())
        num_stores = sum(name.startswith("store_") for name in state)
        self._stores = [np.array(state[f"store_{i}"]) for i in range(num_stores)]
        lengths = {len(store) for store in self._stores}
        if self.num_seen < 0 or lengths != ({self.num_kept} if self._stores else set()):
            raise DataError(
                f"The saved rows have the lengths {lengths}, but {self.num_kept} of "
                f"{self.num_seen} should have been kept. Use another copy."
            )
        if self._layout is not None:  # the layout must have this many arrays
            *leaves, _ = self._stores
            rest = iter(leaves)
            _decode(self._layout, rest)
            num_stores -= sum(1 for _ in rest)
        if num_stores != len(self._stores) or (self._layout is None) != (not self._stores):
            raise DataError("The saved rows do not fit their layout. Use another copy.")


class Reservoir(_KeptRows):
    """Uniform sample of all rows seen; it holds all rows while at most `capacity` were seen.

    Algorithm R: row t > capacity (counting from 1) replaces slot floor(u t), u ~ U(0, 1), if that
    is below capacity. Each such row uses one uniform number, so the sample does not depend on the
    blocks of the stream.

    Args:
        capacity: largest number of rows to keep; memory grows with the rows seen, up to this.
        seed: seed of the random numbers.
        first_island: first island of the run; another round of islands keeps other rows.

    Reference: Vitter (1985), Random sampling with a reservoir, ACM TOMS 11:37-57.

    >>> reservoir = Reservoir(capacity=3, seed=0)
    >>> reservoir.append(np.arange(10.0), np.ones(10))
    >>> reservoir.num_kept, reservoir.num_seen, reservoir.is_complete
    (3, 10, False)
    >>> reservoir.gather(np.array([[0, 1], [2, 2]]))[0].shape
    (2, 2)
    """

    def __init__(self, capacity: int, seed: int, first_island: int = 0) -> None:
        if capacity < 1:
            raise DataError(f"capacity is {capacity}. Keep at least one row.")
        super().__init__()
        self.capacity = capacity
        self._generator = random_numbers(seed, Stream.RESERVOIR, first_island)
        # Slots that were overwritten, with their old contents, as long as an undo is possible.
        self._replaced: list[tuple[NumpyArray, list[NumpyArray]]] | None = None

    @property
    def num_kept(self) -> int:
        """Number of rows in the sample."""
        return min(self.num_seen, self.capacity)

    @property
    def is_complete(self) -> bool:
        """Whether every row seen is kept."""
        return self.num_seen <= self.capacity

    @property
    def num_represented(self) -> int:
        """Number of rows that the kept rows represent: all rows seen."""
        return self.num_seen

    def append(self, values: Values, weight: NumpyArray) -> None:
        """Add the rows of one block, each with its weight, to the sample."""
        if columns := self._columns(values, weight):
            for piece in split(columns, _PIECE_ROWS):  # limits the memory for the slots
                self._append(piece)

    def _append(self, columns: list[NumpyArray]) -> None:
        rows = len(columns[0])
        num_free = min(rows, self.capacity - self.num_kept)
        needed = self.num_kept + num_free
        if needed > len(self._stores[0]):
            size = min(self.capacity, max(needed, 2 * len(self._stores[0])))
            self._stores = [_grown(store, size) for store in self._stores]
        times = self.num_seen + np.arange(num_free + 1, rows + 1)
        drawn = (self._generator.random(len(times)) * times).astype(np.int64)
        slots = np.concatenate([np.arange(self.num_kept, needed), drawn])
        chosen = np.flatnonzero(slots < self.capacity)
        # If several rows get the same slot, the last is kept: np.unique finds the first, so
        # reverse.
        targets, last = np.unique(slots[chosen][::-1], return_index=True)
        origins = chosen[::-1][last]
        if self._replaced is not None:
            used = targets[targets < self.num_kept]
            self._replaced.append((used, [store[used] for store in self._stores]))
        for store, leaf in zip(self._stores, columns, strict=True):
            store[targets] = leaf[origins]
        self.num_seen += rows

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block that restores the rows if it ends in an error.

        Only the rows that are replaced in the block are copied. Such blocks may be nested.

        >>> reservoir = Reservoir(capacity=3, seed=0)
        >>> reservoir.append(np.arange(3.0), np.ones(3))
        >>> with contextlib.suppress(ValueError), reservoir.undoable():
        ...     reservoir.append(np.full(50, -1.0), np.ones(50))
        ...     raise ValueError
        >>> reservoir.gather(np.arange(3))[0].tolist(), reservoir.num_seen
        ([0.0, 1.0, 2.0], 3)
        """
        bits = copy.deepcopy(self._generator.bit_generator.state)
        with super().undoable():
            around, self._replaced = self._replaced, []
            try:
                yield
            except BaseException:
                for slots, rows in reversed(self._replaced):
                    for store, old in zip(self._stores, rows, strict=True):
                        store[slots] = old
                self._generator.bit_generator.state = bits
                raise
            else:
                if around is not None:
                    around.extend(self._replaced)
            finally:
                self._replaced = around

    def state(self) -> dict[str, NumpyArray]:
        """Everything that a bit-identical continuation needs, as arrays of numbers."""
        bits: Any = self._generator.bit_generator.state
        return {
            "counts": np.array([self.capacity, self.num_seen], dtype=np.int64),
            "counter": bits["state"]["counter"].copy(),
            "key": bits["state"]["key"].copy(),
            "buffer": bits["buffer"].copy(),
            "position": np.array(
                [bits["buffer_pos"], bits["has_uint32"], bits["uinteger"]], dtype=np.int64
            ),
            **self._stored(),
        }

    def restore(self, state: Mapping[str, NumpyArray]) -> None:
        """Continue from a state that `state` returned, in a reservoir of the same capacity."""
        capacity, num_seen = (int(count) for count in state["counts"])
        if capacity != self.capacity:
            raise DataError(
                f"The saved reservoir has capacity {capacity}, this one {self.capacity}. "
                f"Create it with capacity={capacity}."
            )
        position, has_half, half = (int(entry) for entry in state["position"])
        if not 0 <= position <= len(state["buffer"]):
            raise DataError("The saved generator of a reservoir is damaged. Use another copy.")
        self._generator.bit_generator.state = {
            "bit_generator": "Philox",
            "state": {"counter": state["counter"], "key": state["key"]},
            "buffer": state["buffer"],
            "buffer_pos": position,
            "has_uint32": has_half,
            "uinteger": half,
        }
        self.num_seen = num_seen
        self._restore(state)


class Window(_KeptRows):
    """Rows whose weight decreases with age until it is negligible and they are dropped.

    It holds the rows of the last twenty half-lives.

    >>> window = Window()
    >>> window.append(np.arange(3.0), np.ones(3))
    >>> window.fade(0.5)
    >>> window.append(np.array([3.0]), np.ones(1))
    >>> window.gather(np.arange(4))[1].tolist(), window.num_seen
    ([0.5, 0.5, 0.5, 1.0], 4)
    >>> window.fade(1e-9)
    >>> window.append(np.array([4.0]), np.ones(1))
    >>> window.num_kept, window.num_seen
    (1, 5)
    """

    capacity = sys.maxsize
    is_complete = True

    @property
    def num_kept(self) -> int:
        """Number of rows kept."""
        return len(self._stores[-1]) if self._stores else 0

    @property
    def num_represented(self) -> int:
        """Number of rows that the kept rows represent: themselves; dropped rows do not count."""
        return self.num_kept

    def fade(self, factor: float) -> None:
        """Multiply the weight of every row by a factor."""
        if self._stores:
            self._stores[-1] = self._stores[-1] * factor

    def append(self, values: Values, weight: NumpyArray) -> None:
        """Keep the rows of one block, and drop rows whose weight has become negligible."""
        if not (columns := self._columns(values, weight)):
            return
        # Weights decrease with age, except for weights that a user gave. Only rows before the first
        # with a weight above the limit are dropped.
        counts = np.flatnonzero(self._stores[-1] > NEGLIGIBLE)
        first = int(counts[0]) if len(counts) else self.num_kept
        self._stores = [
            np.concatenate([store[first:], leaf])
            for store, leaf in zip(self._stores, columns, strict=True)
        ]
        self.num_seen += len(columns[-1])

    def state(self) -> dict[str, NumpyArray]:
        """Everything that a bit-identical continuation needs, as arrays of numbers."""
        return {"counts": np.array([self.num_seen], dtype=np.int64), **self._stored()}

    def restore(self, state: Mapping[str, NumpyArray]) -> None:
        """Continue from a state that `state` returned."""
        (self.num_seen,) = (int(count) for count in state["counts"])
        self._restore(state)


def _grown(store: NumpyArray, size: int) -> NumpyArray:
    larger = np.empty((size, *store.shape[1:]), store.dtype)
    larger[: len(store)] = store
    return larger


def _encode(tree: Values) -> Any:
    """Nested dicts, lists and tuples of arrays as JSON, since a treedef cannot be saved."""
    if type(tree) is dict:
        return {"dict": [[key, _encode(tree[key])] for key in sorted(tree)]}
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [_encode(item) for item in tree]}
    if not tree_util.all_leaves([tree]):
        raise DataError(f"A reservoir cannot hold a {type(tree).__name__}. Use a dict of arrays.")
    return "array"


def _decode(layout: Any, leaves: Iterator[NumpyArray]) -> Values:
    if layout == "array":
        return next(leaves)
    ((kind, items),) = layout.items()
    if kind == "dict":
        return {key: _decode(item, leaves) for key, item in items}
    decoded = [_decode(item, leaves) for item in items]
    return decoded if kind == "list" else tuple(decoded)
