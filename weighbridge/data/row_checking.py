"""The row policy: blocks of a stream must match the first block, and bad rows are found."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from jax import tree_util

from weighbridge.core.errors import DataError
from weighbridge.data.columns import NumpyArray, row_name
from weighbridge.data.quarantine import BadRow, Quarantine, Unread
from weighbridge.data.values import Values, as_values, column_names, num_rows

# Maps a block to the names of the columns that models read; None if all may be read.
ColumnsRead = Callable[[Values], "set[str] | None"]
RowPolicy = Literal["raise", "skip", "quarantine"]
_Named = tuple[str, NumpyArray]


class RowChecker:
    """Checks every block of a stream: same structure as the first, no bad rows.

    A bad row has a NaN or an infinity in a column that is read, or is flagged by `check_rows`.
    After a DataError the checker is unchanged.

    Args:
        on_bad_row: "raise" a DataError, "skip" the row and count it, or "quarantine" it: count it
            and append it to a file.
        check_rows: maps a block (rows with NaN included) to {reason: boolean mask of its bad rows}.
        quarantine: the file for bad rows, or a `Quarantine` that several checkers of the same rows
            share.
        columns_read: returns the columns in which a missing value makes a row bad; all by default.
            It is called only for blocks with missing values.

    Attributes:
        unread: rows that could not be parsed, by their number in the stream, with the reason.
        gaps: columns with missing values in accepted rows, because no model reads them.

    >>> checker = RowChecker(on_bad_row="skip")
    >>> checker({"y": np.array([1.0, np.nan, 3.0])}), checker.rows_read, checker.rows_skipped
    ({'y': array([1., 3.])}, 3, 1)
    """

    def __init__(
        self,
        on_bad_row: RowPolicy = "raise",
        check_rows: Callable[[Values], Mapping[str, NumpyArray]] | None = None,
        quarantine: str | os.PathLike[str] | Quarantine | None = None,
        columns_read: ColumnsRead | None = None,
    ) -> None:
        self.columns_read = columns_read
        self.unread: Mapping[int, Unread] = {}
        self.gaps: set[str] = set()
        self.on_bad_row = on_bad_row
        self.check_rows = check_rows
        self.quarantine = open_quarantine(on_bad_row, quarantine)
        self.rows_read = 0
        self.rows_skipped = 0
        self.rows_quarantined = 0
        self._structure: list[tuple[str, tuple[int, ...], str]] | None = None
        self._treedef: Any = None

    def __call__(
        self, values: Values, unusable: NumpyArray | None = None, shown: Values | None = None
    ) -> Values:
        """Check one block and return it without its bad rows.

        Args:
            values: the block.
            unusable: rows that another checker of the same rows has found bad. They are left out
                and counted here too, but the other checker writes them to the quarantine.
            shown: the same rows in their original form, for the quarantine; by default the block.
        """
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
        if rows == 0:  # an empty block does not define the structure
            return values
        flags = self._flags(values, rows)
        counted, uncounted = self._split(values, list(zip(names, raw)))
        bad = _bad_rows([leaf for _, leaf in counted], flags, rows)
        own = np.flatnonzero(bad).tolist()
        if unusable is not None:
            bad |= unusable
        num_bad = int(bad.sum())
        if num_bad:
            if self.on_bad_row == "raise":
                raise self._bad_row(int(bad.argmax()), num_bad, counted, flags)
            if self.quarantine is not None:
                reasons = {row: "; ".join(_problems(row, counted, flags)) for row in own}
                self._set_aside(self.quarantine, reasons, values if shown is None else shown)
            values = tree_util.tree_map(lambda leaf: leaf[~bad], values)
        self.gaps |= {name for name, leaf in uncounted if not _all_finite(leaf[~bad])}
        self._structure = self._structure or structure
        self._treedef = treedef
        self.rows_read += rows
        if self.quarantine is None:
            self.rows_skipped += num_bad
        else:
            self.rows_quarantined += num_bad
        return values

    def find_bad(self, values: Values) -> NumpyArray:
        """Which rows of a block are bad; nothing is counted, raised or quarantined.

        >>> RowChecker().find_bad({"y": np.array([1.0, np.nan])})
        array([False,  True])
        """
        rows = num_rows(values)
        named = list(zip(column_names(values), tree_util.tree_leaves(values), strict=True))
        counted, _ = self._split(values, named)
        return _bad_rows([leaf for _, leaf in counted], self._flags(values, rows), rows)

    @property
    def rows_left_out(self) -> int:
        """Number of bad rows so far, skipped or quarantined."""
        return self.rows_skipped + self.rows_quarantined

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, as values that JSON can hold."""
        known = self._structure
        structure = None if known is None else [[n, list(shape), kind] for n, shape, kind in known]
        return {
            "structure": structure,
            "rows_read": self.rows_read,
            "rows_skipped": self.rows_skipped,
            "rows_quarantined": self.rows_quarantined,
            "quarantine_size": 0 if self.quarantine is None else self.quarantine.size,
            "gaps": sorted(self.gaps),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        structure = state["structure"]
        self._structure = structure and [(n, tuple(shape), kind) for n, shape, kind in structure]
        self._treedef = None  # set by the next block, after comparing names
        self.rows_read = int(state["rows_read"])
        self.rows_skipped = int(state["rows_skipped"])
        self.rows_quarantined = int(state["rows_quarantined"])
        self.gaps = {str(name) for name in state.get("gaps", ())}  # missing in older files
        if self.quarantine is not None:
            self.quarantine.resume(int(state["quarantine_size"]))

    def _split(self, values: Values, named: list[_Named]) -> tuple[list[_Named], list[_Named]]:
        """The columns in which missing values count, and those that no model reads."""
        if self.columns_read is None or not isinstance(values, dict):
            return named, []
        if all(_all_finite(leaf) for _, leaf in named):
            return named, []
        read = self.columns_read(values)
        if read is None:
            return named, []
        # Leaves are in the order of the sorted names; a column that is a tree has several leaves.
        owners = [n for n in sorted(values) for _ in tree_util.tree_leaves(values[n])]
        counted = [one for owner, one in zip(owners, named, strict=True) if owner in read]
        return counted, [one for owner, one in zip(owners, named) if owner not in read]

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
        more = f" ({num_bad} bad rows in this block)" if num_bad > 1 else ""
        return DataError(
            f"Bad {row_name(self.rows_read + row)}: {problems[0]}{more}. Correct it, or pass "
            "on_bad_row='skip', which drops such rows and counts them."
        )

    def _set_aside(
        self,
        quarantine: Quarantine,
        reasons: Mapping[int, str],
        shown: Values,
    ) -> None:
        columns = list(zip(column_names(shown), tree_util.tree_leaves(shown), strict=True))
        bad = []
        for row, reason in reasons.items():
            number = self.rows_read + row
            unread = self.unread.get(number)
            values = {name: leaf[row].tolist() for name, leaf in columns}
            bad.append(BadRow(number, unread.reason if unread else reason, values, unread))
        quarantine.add(self.rows_read, bad)

    def _may_have_gaps(self, leaf: NumpyArray) -> bool:
        """Whether a column may be floats only because of missing values, here or in other rows."""
        return self.on_bad_row != "raise" or not _all_finite(leaf)

    def _match(
        self, structure: list[tuple[str, tuple[int, ...], str]], raw: list[NumpyArray], treedef: Any
    ) -> list[NumpyArray]:
        """The leaves, converted to the types of the first block; DataError if they do not fit."""
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
            # A true/false column whose first block had a bad row was read as floats.
            bools = new_kind == "bool" and self.on_bad_row != "raise"
            if kind == "float64" and (new_kind == "int64" or bools):
                leaf = leaf.astype(np.float64)
            elif (kind, new_kind) == ("bool", "float64") and self._may_have_gaps(leaf):
                filled = np.where(np.isfinite(leaf), leaf, 0.0)
                if np.isin(filled, (0.0, 1.0)).all():
                    leaf = filled.astype(np.bool_)
            elif (kind, new_kind) == ("int64", "float64") and self._may_have_gaps(leaf):
                # Whole numbers with missing values, in this block or in rows read together with it,
                # are stored as floats. The missing values are bad rows.
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


def _bad_rows(leaves: list[NumpyArray], flags: Mapping[str, NumpyArray], rows: int) -> NumpyArray:
    bad = np.zeros(rows, dtype=bool)
    for leaf in leaves:
        if not _all_finite(leaf):
            bad |= ~np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))
    for mask in flags.values():
        bad |= mask
    return bad


def _all_finite(leaf: NumpyArray) -> bool:
    if leaf.dtype != np.float64:
        return True
    with np.errstate(over="ignore", invalid="ignore"):  # the sum needs no memory for a mask
        return bool(np.isfinite(leaf.sum())) or bool(np.isfinite(leaf).all())
