"""Rows with their predecessors: autoregressive models become models of single rows."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jax import tree_util

from weighbridge.core.errors import DataError
from weighbridge.data.columns import NumpyArray
from weighbridge.data.cutting import join
from weighbridge.data.quarantine import Unread
from weighbridge.data.sources.opening import open_source
from weighbridge.data.sources.source import Source
from weighbridge.data.values import (
    TableReader,
    Values,
    as_values,
    column_names,
    columns_remark,
    num_rows,
)


def lagged(data: Any, order: int) -> Any:
    r"""Turn a series into rows that include their predecessors, for conditionally Markov models.

    .. math:: \log p(y_{k+1}, \ldots, y_n | y_1, \ldots, y_k, \theta)
              = \sum_{t > k} \log p(y_t | y_{t-1}, \ldots, y_{t-k}, \theta)

    is a sum over rows. So the rows can be used one by one, in mini-batches and in any order. The
    first k rows are only predecessors: the evidence is conditional on them. Models are compared on
    the same rows, so use the largest order for all of them.

    A row of a plain array (or a tuple) is ``{"value": y_t, "past": [y_{t-1}, ..., y_{t-k}]}``, with
    the most recent value first. A row of named columns keeps them and adds their predecessors by
    name, ``{"x": x_t, "y": y_t, "past": {"x": [x_{t-1}, ...], "y": [y_{t-1}, ...]}}``. Row i of the
    result is row i + k of the series. A row with a missing predecessor (NaN) is a bad row, like a
    row that is missing itself.

    A column ``weight`` may only be 0 or 1, because a series has no repeated rows. A row of weight 0
    is only a predecessor, such as the first rows of each of several series in a sequence.

    Columns that do not hold numbers are left out, with a warning.

    Args:
        data: any data that ``wb.evidence`` accepts: an array or a pytree of arrays, a data frame, a
            file, or an iterator of chunks; rows at the boundaries of chunks are kept.
        order: number k of predecessors of a row.

    Returns:
        Arrays, as views of the data, if the data are in memory in one piece; otherwise a source
        that computes them while reading. Both are data for ``wb.evidence`` and ``wb.compare``. For
        ``wb.Online`` use a ``wb.Lagged``.

    >>> lagged([1.0, 2.0, 3.0, 4.0], order=2)
    {'value': array([3., 4.]), 'past': array([[2., 1.],
           [3., 2.]])}
    >>> chunks = iter([{"y": [1, 2]}, {"y": [3]}, {"y": [4]}])
    >>> [int(rows["past"]["y"][0, 0]) for rows in lagged(chunks, order=1).blocks()]
    [1, 2, 3]

    Reference: Cameron (2020), MSc thesis, Stellenbosch University, equation 1.11.
    """
    order = _check_order(order)
    source = open_source(data)
    if source.num_rows is not None:
        _check_length(source.num_rows, order)
    if source.in_memory and source.num_rows is not None:
        _tell_left_out(source.ignored_columns)
        return Lagged(order)(join(list(source.blocks())))
    return Source(
        lambda: _lag_blocks(source, order),
        num_rows=None if source.num_rows is None else source.num_rows - order,
        reopenable=source.reopenable,
        in_memory=source.in_memory,
        left_out=source.left_out,
        unread=_Shifted(source.unread, order),
        set_aside=source.set_aside,
    )


class _Shifted(Mapping[int, Unread]):
    """Information about unread rows, with row numbers shifted because the first rows are gone."""

    def __init__(self, unread: Mapping[int, Unread], gone: int) -> None:
        self._unread, self._gone = unread, gone

    def __getitem__(self, row: int) -> Unread:
        return self._unread[row + self._gone]

    def __iter__(self) -> Iterator[int]:
        return (row - self._gone for row in self._unread if row >= self._gone)

    def __len__(self) -> int:
        return sum(row >= self._gone for row in self._unread)


class Lagged:
    """Turns chunks of a series into rows like ``wb.lagged``, and keeps the last rows in between.

    For ``wb.Online``, whose updates come one by one: ``online.update(lags(chunk))``. The first
    ``order`` rows give no rows of the result, because they have too few predecessors.

    Attributes:
        order: number of predecessors of a row.
        tail: the last rows of the series, at most ``order`` of them; None before the first chunk.
            Save it with the run to continue later, with ``Lagged(order, tail)``. If an update
            failed and its chunk will be given again, set it back to its earlier value.

    >>> lags = Lagged(order=1)
    >>> lags([1.0, 2.0, 3.0])["past"].tolist(), lags.tail
    ([[1.0], [2.0]], array([3.]))
    >>> Lagged(order=1, tail=lags.tail)([5.0])
    {'value': array([5.]), 'past': array([[3.]])}
    """

    def __init__(self, order: int, tail: Any = None) -> None:
        self.order = _check_order(order)
        self.tail: Values = None if tail is None else _last(as_values(tail), self.order)
        self._reader = TableReader()

    def __call__(self, chunk: Any) -> Values:
        """The rows that a chunk completes; after an error the tail is unchanged."""
        with self._reader.undoable():
            known = len(self._reader.left_out)
            values = self._reader(chunk)
            _tell_left_out(list(self._reader.left_out)[known:])
        if self.tail is not None:
            values = join([self.tail, _like(values, self.tail)])
        rows = _with_past(values, self.order)
        if num_rows(values):  # an empty list does not define the columns
            self.tail = _last(values, self.order)
        return rows


def _check_order(order: Any) -> int:
    try:
        count = operator.index(order)
    except TypeError:
        count = 0
    if isinstance(order, bool) or count < 1:
        raise DataError(
            f"order must be a whole number of at least 1, the number of predecessors of a row; not "
            f"{order!r}. Rows without predecessors need no wb.lagged."
        )
    return count


def _check_length(rows: int, order: int) -> None:
    if rows <= order:
        raise DataError(
            f"The series has {rows} rows, but with order={order} the first {order} are "
            f"predecessors only: give at least {order + 1} rows, or a smaller order."
        )


def _tell_left_out(names: list[str]) -> None:
    """Warn about columns that were left out, since there is no result that could list them."""
    for remark in columns_remark(names):
        warnings.warn(f"wb.lagged: {remark}", UserWarning, stacklevel=3)


def _lag_blocks(source: Source, order: int) -> Iterator[Values]:
    lags, rows = Lagged(order), 0
    for block in source.blocks():
        rows += num_rows(block)
        completed = lags(block)
        if num_rows(completed):
            yield completed
    _check_length(rows, order)


def _last(values: Values, order: int) -> Values:
    # A copy: a view would keep the whole chunk in memory, and would change with it.
    return tree_util.tree_map(lambda leaf: leaf[-order:].copy(), values)


def _like(values: Values, tail: Values) -> Values:
    """The values, converted to the types of the tail; DataError if their structure differs."""
    if num_rows(values) == 0:
        return tree_util.tree_map(lambda leaf: leaf[:0], tail)
    expected, names = column_names(tail), column_names(values)
    structure: Any = tree_util.tree_structure(values)
    if structure != tree_util.tree_structure(tail):
        raise DataError(
            f"The columns of the series changed: expected {', '.join(expected)}; got "
            f"{', '.join(names)}. Give every chunk the same columns, in the same containers."
        )
    matched = []
    pairs = zip(tree_util.tree_leaves(tail), tree_util.tree_leaves(values), strict=True)
    for name, (old, new) in zip(names, pairs, strict=True):
        if (old.dtype, new.dtype) == (np.float64, np.int64):
            new = new.astype(np.float64)
        if (old.dtype, old.shape[1:]) != (new.dtype, new.shape[1:]):
            raise DataError(
                f"Column {name!r} of the series changed: expected rows of {old.dtype} "
                f"{old.shape[1:]}, got {new.dtype} {new.shape[1:]}. Give every chunk columns of "
                "one type and shape."
            )
        matched.append(new)
    return tree_util.tree_unflatten(structure, matched)


def _with_past(values: Values, order: int) -> Values:
    """The rows after the first ``order``, each with its predecessors."""

    def past(leaf: NumpyArray) -> NumpyArray:
        if len(leaf) <= order:
            return np.empty((0, order, *leaf.shape[1:]), leaf.dtype)
        windows = np.lib.stride_tricks.sliding_window_view(leaf[:-1], order, axis=0)
        return np.moveaxis(windows, -1, 1)[:, ::-1]

    present = tree_util.tree_map(lambda leaf: leaf[order:], values)
    if not isinstance(values, dict):
        return {"value": present, "past": tree_util.tree_map(past, values)}
    if "past" in values:
        raise DataError(
            "A column is named 'past', which is reserved for the predecessors. Rename it."
        )
    series = {name: column for name, column in values.items() if name != "weight"}
    if "weight" in values:
        _check_weight(values["weight"])
        if not series:
            raise DataError("The column 'weight' is alone. Give the columns of the series too.")
    return {**present, "past": tree_util.tree_map(past, series)}


def _check_weight(weight: Any) -> None:
    for leaf in tree_util.tree_leaves(weight):
        # A missing weight makes a bad row, which is handled where rows are checked.
        wrong = np.isfinite(leaf) & (leaf != 0) & (leaf != 1)
        if wrong.any():
            raise DataError(
                f"Column 'weight' is {leaf[wrong][0]}: it counts repeated rows, and a series has "
                "none. Use 1, or 0 for a row that is a predecessor only; rename the column if it "
                "means something else."
            )
