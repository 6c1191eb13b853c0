"""Tables of results as pandas or polars data frames."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core.errors import MissingDependencyError


class Frame(NamedTuple):
    """The contents of a table, independent of any library.

    Attributes:
        columns: the numbers or texts of all rows, by the name of the column.
        names: the name of each row; None if rows have only numbers.
        called: the heading of the names, such as "model".
    """

    columns: Mapping[str, Any]
    names: Sequence[str] | None = None
    called: str = "name"


def frame_of_models(
    columns: Mapping[str, Mapping[str, float | str]], names: Sequence[str]
) -> Frame:
    """A table with a row for each model, from columns of values by model name.

    >>> frame_of_models({"elpd": {"a": -9.0, "b": -7.0}}, ["b", "a"]).columns
    {'elpd': [-7.0, -9.0]}
    """
    return Frame({c: [found[n] for n in names] for c, found in columns.items()}, names, "model")


class Tabular(ABC):
    """Base of classes that can become a data frame; a subclass defines ``_frame``."""

    @abstractmethod
    def _frame(self) -> Frame:
        """The contents of the table."""

    def to_pandas(self) -> Any:
        """The table as a pandas data frame, indexed by row name (extra ``data``)."""
        frame = self._frame()
        names, pandas = frame.names, _imported("pandas", "to_pandas")
        index = None if names is None else pandas.Index(list(names), name=frame.called)
        return pandas.DataFrame(plain_columns(frame), index=index)

    def to_polars(self) -> Any:
        """The table as a polars data frame; the row names are its first column."""
        frame = self._frame()
        names = {} if frame.names is None else {frame.called: list(frame.names)}
        return _imported("polars", "to_polars").DataFrame({**names, **plain_columns(frame)})


def plain_columns(frame: Frame) -> dict[str, Any]:
    """Columns of numbers or of texts; an array column is split into one column per entry."""
    found: dict[str, Any] = {}
    for name, values in frame.columns.items():
        array = np.asarray(values)
        if array.ndim > 1:
            for index in np.ndindex(array.shape[1:]):
                label = f"{name}[{','.join(map(str, index))}]"
                found[label] = np.ascontiguousarray(array[(slice(None), *index)])
        else:
            found[name] = array if array.dtype.kind in "biuf" else list(values)
    return found


def _imported(package: str, caller: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingDependencyError(
            f"{caller}() needs {package}, which cannot be imported. Install it with: "
            f"pip install {package}"
        ) from error
