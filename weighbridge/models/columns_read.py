"""Which columns a likelihood reads: found by calling it once with a row that takes notes."""

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

_abstract_array: Any = jax.ShapeDtypeStruct  # JAX leaves its constructor untyped


class _NotingRow(dict[str, Any]):
    """A row that notes what is asked of it: single names, or all that there is.

    JAX takes it apart and puts it together again where the likelihood is a compiled function, so
    one that was taken apart for good was read as a whole.
    """

    def __init__(self, columns: Mapping[str, Any], asked: set[str]) -> None:
        super().__init__(columns)
        self.asked = asked
        self.read_whole = False
        self.parts: list[_NotingRow] = []
        self.taken_apart = False

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
        """Whether it, or what became of it, was read as a whole."""
        if self.read_whole or (self.taken_apart and not self.parts):
            return True
        return any(part.everything() for part in self.parts)


@dataclass(frozen=True, eq=False)  # two rows are never the same: JAX would remember the first
class _Origin:
    row: _NotingRow
    names: tuple[str, ...]


def _take_apart(row: _NotingRow) -> tuple[list[Any], _Origin]:
    row.taken_apart = True
    return list(dict.values(row)), _Origin(row, tuple(dict.keys(row)))


def _put_together(origin: _Origin, leaves: Any) -> _NotingRow:
    part = _NotingRow(dict(zip(origin.names, leaves)), origin.row.asked)
    if all(hasattr(leaf, "shape") for leaf in leaves):  # JAX also makes some of its own marks
        origin.row.parts.append(part)
    return part


jax.tree_util.register_pytree_node(_NotingRow, _take_apart, _put_together)


def refuse_if_read(model: Model, values: PyTree, left_out: LeftOut) -> None:
    """Raise what is wrong with a column that was left out, if the model reads it.

    Args:
        model: whose likelihood is called, on one row without computing anything; a likelihood
            that does not factorise is computed once, for it may be a function of NumPy.
        values: a block of rows as the model takes them, without these columns.
        left_out: the columns, and the error of each.

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
        # Read or not: without it every row would count once, and nobody would know.
        raise left_out["weight"]
    asked, everything = columns_asked(model, values)
    for name, error in left_out.items():
        if everything or name in asked:
            raise error


def columns_needed(model: Model, values: dict[str, Any]) -> set[str] | None:
    """The columns whose values matter to the model; None if all of them may.

    That is so where the likelihood cannot be called without computing, as one of NumPy.

    >>> import weighbridge as wb
    >>> import numpyro.distributions as dist
    >>> model = wb.Model({"mu": dist.Normal(0, 1)}, lambda p, row: row["y"] * p["mu"])
    >>> columns_needed(model, {"y": np.zeros(3), "note": np.zeros(3)})
    {'y'}
    """
    asked, everything, failed = _asked(model, values)
    return None if everything or failed else asked & set(values)


def columns_asked(model: Model, values: dict[str, Any]) -> tuple[set[str], bool]:
    """The names that the likelihood asks for, and whether it looks at all columns."""
    return _asked(model, values)[:2]


@double_precision
def _asked(model: Model, values: dict[str, Any]) -> tuple[set[str], bool, bool]:
    """The names asked for, whether all columns are looked at, and whether a call failed."""
    asked: set[str] = set()
    row = _NotingRow(values, asked)
    call: Callable[[], Any]
    if model.log_likelihood is not None:
        function = model.log_likelihood
        row = _NotingRow(jax.tree_util.tree_map(_one_row, values), asked)
        position = _abstract_array((model.dimension,), np.float64)

        def call() -> Any:
            return jax.eval_shape(lambda p, r: function(model.transform(p)[0], r), position, row)
    else:
        assert model.total_log_likelihood is not None
        total = on_data(model.total_log_likelihood, row)
        draw = {name: value[0] for name, value in model.sample_prior(1).items()}

        def call() -> Any:
            return total(draw)

    # What else is wrong with the likelihood is said where it is checked, on rows as they are.
    failed = True
    with contextlib.suppress(Exception):
        call()
        failed = False
    if model.check_rows is None:
        return asked, row.everything(), failed
    checked, all_checked = _NotingRow(values, asked), False
    with contextlib.suppress(Exception):
        model.check_rows(checked)
        all_checked = True
    return asked, row.everything(), failed or not all_checked or checked.everything()


def _one_row(leaf: Any) -> Any:
    return _abstract_array(leaf.shape[1:], leaf.dtype)
