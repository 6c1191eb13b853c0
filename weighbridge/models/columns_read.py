"""Which columns a likelihood reads: found by calling it once with a recording row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from weighbridge.core.compilation import double_precision
from weighbridge.core.types import PyTree
from weighbridge.data.values import LeftOut
from weighbridge.models.model import Model
from weighbridge.models.targets.total import on_data

_abstract_array: Any = jax.ShapeDtypeStruct  # JAX has no types for its constructor


class _RecordingRow(dict[str, Any]):
    """A row that records which columns are read: single names, or all of them.

    If the likelihood is a compiled function, JAX flattens the row and rebuilds it. A row that was
    flattened and not rebuilt was read as a whole.
    """

    def __init__(self, columns: Mapping[str, Any], asked: set[str]) -> None:
        super().__init__(columns)
        self.asked = asked
        self.read_whole = False
        self.parts: list[_RecordingRow] = []
        self.flattened = False

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)

    def __iter__(self) -> Iterator[str]:
        self.read_whole = True
        return super().__iter__()

    def __len__(self) -> int:
        self.read_whole = True
        return super().__len__()

    def keys(self) -> Any:
        self.read_whole = True
        return super().keys()

    def values(self) -> Any:
        self.read_whole = True
        return super().values()

    def items(self) -> Any:
        self.read_whole = True
        return super().items()

    def everything(self) -> bool:
        """Whether the row, or a row rebuilt from it, was read as a whole."""
        if self.read_whole or (self.flattened and not self.parts):
            return True
        return any(part.everything() for part in self.parts)


@dataclass(frozen=True, eq=False)  # never equal: JAX would reuse the first one
class _Origin:
    row: _RecordingRow
    names: tuple[str, ...]


def _flatten(row: _RecordingRow) -> tuple[list[Any], _Origin]:
    row.flattened = True
    return list(dict.values(row)), _Origin(row, tuple(dict.keys(row)))


def _rebuild(origin: _Origin, leaves: Any) -> _RecordingRow:
    part = _RecordingRow(dict(zip(origin.names, leaves)), origin.row.asked)
    if all(hasattr(leaf, "shape") for leaf in leaves):  # JAX also rebuilds with placeholders
        origin.row.parts.append(part)
    return part


jax.tree_util.register_pytree_node(_RecordingRow, _flatten, _rebuild)


def refuse_if_read(model: Model, values: PyTree, left_out: LeftOut) -> None:
    """Raise the error of a column that was left out, if the model reads that column.

    Args:
        model: its likelihood is traced on one row, without computing anything. A likelihood that
            does not factorise is computed once, because it may be a NumPy function.
        values: a block of rows in the model's form, without these columns.
        left_out: the columns, with the error of each.

    >>> import weighbridge as wb
    >>> import numpyro.distributions as dist
    >>> model = wb.Model({"mu": dist.Normal(0, 1)}, lambda p, row: row["city"] * p["mu"])
    >>> refuse_if_read(model, {"y": np.zeros(3)}, {"city": wb.DataError("It is text.")})
    Traceback (most recent call last):
        ...
    weighbridge.core.errors.DataError: It is text.
    """
    if not left_out or not isinstance(values, dict):
        return
    if "weight" in left_out and model.log_likelihood is not None:
        # Even if the model does not read it: without it every row would silently get weight 1.
        raise left_out["weight"]
    asked, everything = columns_asked(model, values)
    for name, error in left_out.items():
        if everything or name in asked:
            raise error


def columns_needed(model: Model, values: dict[str, Any]) -> set[str] | None:
    """The columns whose values matter to the model; None if any column may matter.

    All may matter if the likelihood cannot be traced, such as a NumPy function.

    >>> import weighbridge as wb
    >>> import numpyro.distributions as dist
    >>> model = wb.Model({"mu": dist.Normal(0, 1)}, lambda p, row: row["y"] * p["mu"])
    >>> columns_needed(model, {"y": np.zeros(3), "note": np.zeros(3)})
    {'y'}
    """
    asked, everything, failed = _asked(model, values)
    return None if everything or failed else asked & set(values)


def columns_asked(model: Model, values: dict[str, Any]) -> tuple[set[str], bool]:
    """The names that the likelihood reads, and whether it reads all columns."""
    return _asked(model, values)[:2]


@double_precision
def _asked(model: Model, values: dict[str, Any]) -> tuple[set[str], bool, bool]:
    """The names read, whether all columns are read, and whether a call failed."""
    asked: set[str] = set()
    row = _RecordingRow(values, asked)
    call: Callable[[], Any]
    if model.log_likelihood is not None:
        function = model.log_likelihood
        row = _RecordingRow(jax.tree_util.tree_map(_one_row, values), asked)
        position = _abstract_array((model.dimension,), np.float64)

        def call() -> Any:
            return jax.eval_shape(lambda p, r: function(model.transform(p)[0], r), position, row)
    else:
        assert model.total_log_likelihood is not None
        total = on_data(model.total_log_likelihood, row)
        draw = {name: value[0] for name, value in model.sample_prior(1).items()}

        def call() -> Any:
            return total(draw)

    # Other errors of the likelihood are reported where it is checked on the original rows.
    failed = True
    with contextlib.suppress(Exception):
        call()
        failed = False
    if model.check_rows is None:
        return asked, row.everything(), failed
    checked, all_checked = _RecordingRow(values, asked), False
    with contextlib.suppress(Exception):
        model.check_rows(checked)
        all_checked = True
    return asked, row.everything(), failed or not all_checked or checked.everything()


def _one_row(leaf: Any) -> Any:
    return _abstract_array(leaf.shape[1:], leaf.dtype)
