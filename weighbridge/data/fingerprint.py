"""A fingerprint of rows shows whether two results were computed on the same data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from jax import tree_util

from weighbridge.core.pickling import travels
from weighbridge.data.values import column_names, num_rows

# Pairs of columns are hashed up to this number of columns; further columns only by themselves.
PAIRED = 16
# Number of values hashed at once; they fit into the processor's cache.
BLOCK_VALUES = 16_384
# Mixing of bits: Steele, Lea & Flood (2014), "Fast splittable pseudorandom number generators".
STEP = np.uint64(0x9E3779B97F4A7C15)
MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
LAST_SHIFT = np.uint64(31)
WHOLE = 2.0**53

Column = tuple[tuple[int, ...], int, int | None]


@travels()
@dataclass(frozen=True)
class Fingerprint:
    r"""A fingerprint of the rows on which a model was weighed.

    For each column, the sum over rows of a hash of the row's numbers, modulo 2^64; for each pair of
    columns, the sum of the products of their hashes:

    .. math:: D_c = \sum_i w_i h(x_{ic}), \qquad D_{cd} = \sum_i w_i h(x_{ic}) h(x_{id})

    The fingerprint does not depend on the blocks or on the order of the rows, and a row of weight 2
    equals two rows. It does depend on which values are in the same row. Where the order has a
    meaning (a likelihood that does not factorise), there is also a sum that includes each row's
    position.

    Attributes:
        num_rows: number of rows.
        columns: for each column, by name: its shape in one row, its sum, and the sum with positions
            or None.
        pairs: sums for pairs of columns.

    >>> rows = {"x": np.array([[1.0, 2.0], [3.0, 4.0]]), "y": np.array([5, 6])}
    >>> seen = Fingerprint().add(rows, np.ones(2))
    >>> shuffled = {name: column[::-1] for name, column in rows.items()}
    >>> Fingerprint().add(shuffled, np.ones(2)).differences(seen)
    []
    >>> Fingerprint().add({"x": rows["x"][:, :1], "y": rows["y"]}, np.ones(2)).differences(seen)
    []
    >>> Fingerprint().add(rows | {"y": np.array([6, 5])}, np.ones(2)).differences(seen)
    ["how the columns 'x' and 'y' belong together"]
    """

    num_rows: int = 0
    columns: Mapping[str, Column] = field(default_factory=dict)
    pairs: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def add(self, values: Any, weight: np.ndarray, *, ordered: bool = False) -> Fingerprint:
        """The fingerprint of the rows so far and these rows.

        Args:
            values: the rows, a pytree of arrays.
            weight: how often each row counts.
            ordered: whether the order of the rows has a meaning.
        """
        names, leaves = column_names(values), tree_util.tree_leaves(values)
        shapes = {name: leaf.shape[1:] for name, leaf in zip(names, leaves)}
        sums = dict.fromkeys(names, 0)
        in_order = dict.fromkeys(names, 0)
        pairs = dict.fromkeys(combinations(sorted(names)[:PAIRED], 2), 0)
        for start, stop in _blocks(leaves):
            hashes = {n: _row_hashes(leaf[start:stop]) for n, leaf in zip(names, leaves)}
            counts, odd = _counts(weight[start:stop])
            for name, hashed in hashes.items():
                sums[name] += int(np.sum(counts * (hashed ^ odd)))
                if ordered:
                    places = np.arange(self.num_rows + start, self.num_rows + stop, dtype=np.uint64)
                    in_order[name] += int(np.sum(_mixed(hashed ^ _mixed(places * STEP))))
            for first, second in pairs:
                product = hashes[first] * hashes[second]
                pairs[first, second] += int(np.sum(counts * (product ^ odd)))
        return self._joined(Fingerprint(
            num_rows(values),
            {n: (shapes[n], sums[n], in_order[n] if ordered else None) for n in names},
            pairs,
        ))  # fmt: skip

    def _joined(self, later: Fingerprint) -> Fingerprint:
        columns = {}
        for name, (shape, total, in_order) in later.columns.items():
            _, before, before_in_order = self.columns.get(name, (shape, 0, 0))
            ordered = None
            if in_order is not None and before_in_order is not None:
                ordered = (before_in_order + in_order) % 2**64
            columns[name] = (shape, (before + total) % 2**64, ordered)
        pairs = {pair: (self.pairs.get(pair, 0) + n) % 2**64 for pair, n in later.pairs.items()}
        return Fingerprint(self.num_rows + later.num_rows, columns, pairs)

    def differences(self, other: Fingerprint) -> list[str]:
        """The differences, in words; columns with another name or shape are not compared."""
        common = [
            name
            for name, (shape, *_) in self.columns.items()
            if name in other.columns and other.columns[name][0] == shape
        ]
        found = [f"the column {n!r}" for n in common if self.columns[n][1] != other.columns[n][1]]
        if found:
            return found
        for first, second in self.pairs.keys() & other.pairs.keys():
            both = first in common and second in common
            if both and self.pairs[first, second] != other.pairs[first, second]:
                found.append(f"how the columns {first!r} and {second!r} belong together")
        for name in common:
            mine, yours = self.columns[name][2], other.columns[name][2]
            if mine is not None and yours is not None and mine != yours:
                found.append(f"the order of the column {name!r}")
        return sorted(found)

    def same_beside_features(self, other: Fingerprint) -> list[str]:
        """Columns that agree, if all columns that differ may be other features of the same rows.

        Features have several numbers per row, as a matrix of features does. Only the user knows
        whether such columns are features: a response may have several numbers per row too.

        >>> x, y = np.arange(6.0).reshape(3, 2), np.arange(3.0)
        >>> seen = Fingerprint().add({"x": x, "y": y}, np.ones(3))
        >>> Fingerprint().add({"x": x + 1, "y": y}, np.ones(3)).same_beside_features(seen)
        ['y']
        >>> Fingerprint().add({"x": x, "y": y + 1}, np.ones(3)).same_beside_features(seen)
        []
        """
        common = self.columns.keys() & other.columns.keys()
        alike = [n for n in common if self.columns[n][:2] == other.columns[n][:2]]
        unlike = [n for n in common if n not in alike and not self.columns[n][0]]
        return [] if unlike else sorted(alike)

    def plain(self) -> dict[str, Any]:
        """Its entries as plain values, for a file."""
        return {
            "num_rows": self.num_rows,
            "columns": [
                [name, list(shape), f"{total:x}", None if in_order is None else f"{in_order:x}"]
                for name, (shape, total, in_order) in self.columns.items()
            ],
            "pairs": [[*names, f"{total:x}"] for names, total in self.pairs.items()],
        }

    @staticmethod
    def from_plain(entries: Mapping[str, Any]) -> Fingerprint:
        """A fingerprint from the entries that ``plain`` returned.

        >>> seen = Fingerprint().add(np.array([1.0, 2.0]), np.ones(2), ordered=True)
        >>> Fingerprint.from_plain(seen.plain()) == seen
        True
        """
        columns: dict[str, Column] = {}
        for name, shape, total, in_order in entries["columns"]:
            ordered = None if in_order is None else int(in_order, 16)
            columns[str(name)] = tuple(map(int, shape)), int(total, 16), ordered
        pairs = {(str(a), str(b)): int(total, 16) for a, b, total in entries["pairs"]}
        return Fingerprint(int(entries["num_rows"]), columns, pairs)


def exact_digest(values: Any, weight: np.ndarray | None) -> str:
    """A hash of rows in their order, to the bit: whether a saved run belongs to these data.

    >>> rows = np.array([1.0, 2.0])
    >>> exact_digest(rows, None) == exact_digest(rows[::-1], None)
    False
    """
    found = hashlib.sha256()
    for leaf in tree_util.tree_leaves((values, weight)):
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()[:16]


def _blocks(leaves: list[np.ndarray]) -> Iterator[tuple[int, int]]:
    rows = len(leaves[0])
    widest = max(leaf.size // max(rows, 1) for leaf in leaves)
    step = max(1, BLOCK_VALUES // max(widest, 1))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def _row_hashes(leaf: np.ndarray) -> np.ndarray:
    """A hash of each row's numbers; equal for whole numbers and for floats of the same value."""
    # Adding zero turns -0.0 into 0.0, which is the same number.
    numbers = np.ascontiguousarray(leaf.reshape(len(leaf), -1), np.float64) + 0.0
    words = numbers.view(np.uint64)
    places = np.arange(1, words.shape[1] + 1, dtype=np.uint64) * STEP
    return _mixed(_mixed(words + places).sum(axis=1, dtype=np.uint64))


def _mixed(words: np.ndarray) -> np.ndarray:
    """Mix 64 bits so that each output bit depends on every input bit."""
    for shift, factor in MIX:
        words = (words ^ (words >> shift)) * factor
    return np.asarray(words ^ (words >> LAST_SHIFT))


def _counts(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How often each row counts; for a fractional weight: once, with the weight hashed too."""
    whole = (weight == np.floor(weight)) & (weight < WHOLE)
    counts = np.where(whole, weight, 1.0).astype(np.uint64)
    bits = np.ascontiguousarray(weight, np.float64).view(np.uint64)
    return counts, np.where(whole, np.uint64(0), _mixed(bits))
