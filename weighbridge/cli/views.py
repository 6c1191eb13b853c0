"""Models from the command line on a feed: the rows that each model gets of a table."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from weighbridge.cli.named_models import Loaded, RequestedModel
from weighbridge.cli.tables import (
    Columns,
    InputTable,
    competitors_of,
    features_of,
    longest_lag,
    stack_columns,
)
from weighbridge.core.errors import DataError
from weighbridge.core.types import Array, PyTree
from weighbridge.data.feeds.base import Cursor, Feed, Parcel
from weighbridge.data.feeds.cursors import check_cursor
from weighbridge.data.lags import Lagged
from weighbridge.data.values import num_rows
from weighbridge.models.model import Model
from weighbridge.models.priors import Parameters
from weighbridge.weighing.competitor import Competitor


class PeekedFeed:
    """A feed whose first rows were read to learn its columns; ``read`` still yields them.

    Args:
        feed: the feed.
        stop: the wait for the first rows ends when this event is set.
        cursor: where a resumed run continues. If it holds the columns, they are used: the rows
            from which they were learned may be gone, and the rows that come first now may differ.

    Attributes:
        first: the first rows, or zero rows with the columns of the cursor; None if the feed ended,
            or was stopped, before its first row.
    """

    def __init__(self, feed: Feed, stop: threading.Event, cursor: Cursor | None = None) -> None:
        self._feed = feed
        self.seekable, self.num_rows = feed.seekable, feed.num_rows
        self._taken: list[Parcel | None] = []
        self._rest = feed.read()
        columns_at = getattr(feed, "no_rows", None)
        self.first: Columns | None = None
        if cursor is not None and columns_at is not None:
            check_cursor(cursor, feed.describe())
            self.first = columns_at(cursor)
        if self.first is not None:
            return
        for parcel in self._rest:
            self._taken.append(parcel)
            if parcel is not None and parcel.values is not None and num_rows(parcel.values):
                self.first = parcel.values
            if self.first is not None or stop.is_set():
                break
        close = getattr(self._rest, "close", None)
        if self.seekable and close is not None:  # it will be read again from the start
            close()

    @property
    def left_out(self) -> list[str]:
        """Columns that do not hold numbers, if the feed lists them."""
        return list(getattr(self._feed, "left_out", ()))

    def describe(self) -> str:
        """The description of the feed itself."""
        return self._feed.describe()

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """Read from the cursor; a feed that cannot seek is read from its first rows."""
        if self.seekable:
            yield from self._feed.read(cursor)
            return
        yield from self._taken
        self._taken = []
        yield from self._rest


class Views:
    """Makes the rows of the models from those of a table.

    If all models take the same rows, the result is these rows. Else it is a dict with the rows of
    each kind of model by name.

    Args:
        views: functions from columns to rows, by kind of model; the key "" if there is one kind.
        names: the features, if the table is a series.
        order: the number of previous values of a row; 0 if the table is not a series.
    """

    def __init__(
        self, views: Mapping[str, Callable[[PyTree], PyTree]], names: list[str], order: int
    ) -> None:
        self._views, self._names = dict(views), names
        self._lags = Lagged(order) if order else None

    def __call__(self, values: PyTree) -> PyTree:
        """The rows of the models."""
        if self._lags is not None:
            values = self._lags(stack_columns(values, self._names))
        if list(self._views) == [""]:
            return self._views[""](values)
        return {name: view(values) for name, view in self._views.items()}

    def state(self) -> Any:
        """The last rows of a series, as plain JSON."""
        tail = None if self._lags is None else self._lags.tail
        return None if tail is None else np.asarray(tail).tolist()

    def restore(self, state: Any) -> None:
        """Continue from a saved ``state``."""
        if self._lags is not None and state is not None:
            self._lags = Lagged(self._lags.order, np.array(state, np.float64))


def models_and_views(
    loaded: Loaded, table: InputTable, first: Columns
) -> tuple[dict[str, Model], Views]:
    """The models, and the views that make their rows from those of the table."""
    competitors = competitors_of(loaded, table, first)
    order = longest_lag(loaded)
    requested = next(iter(loaded.values()))  # all models of a series describe the same columns
    names = features_of(table, first, requested) if order else []
    groups = {spec: _kind_of_view(loaded[spec]) for spec in loaded}
    if len(set(groups.values())) == 1:
        view = next(iter(competitors.values())).view
        return {spec: c.model for spec, c in competitors.items()}, Views({"": view}, names, order)
    if "weight" in first and any(requested.model is not None for requested in loaded.values()):
        raise DataError(
            "The column 'weight' counts repeated rows for a model from a file, but is a feature "
            "for a model of the zoo: watch the models one by one, or rename the column."
        )
    models = {spec: _taking_named_rows(c, groups[spec]) for spec, c in competitors.items()}
    views = {groups[spec]: c.view for spec, c in competitors.items()}
    return models, Views(views, names, order)


def _kind_of_view(requested: RequestedModel) -> str:
    """The kind of a model's rows; models of one kind take the same rows."""
    kind = (
        "table" if requested.entry is None else f"{requested.entry.rows.__name__}, {requested.lags}"
    )
    return kind if requested.features is None else f"{kind}, {','.join(requested.features)}"


def _taking_named_rows(competitor: Competitor, name: str) -> Model:
    """The model on dicts of rows, of which it takes the entry with this name."""
    model = copy.copy(competitor.model)
    model.log_likelihood = partial(_log_likelihood, competitor.model.require_rows(), name)
    if competitor.model.check_rows is not None:
        model.check_rows = partial(_check_rows, competitor.model.check_rows, name)
    return model


def _log_likelihood(
    function: Callable[[Parameters, PyTree], Array], name: str, parameters: Parameters, row: PyTree
) -> Array:
    return function(parameters, row[name])


def _check_rows(
    function: Callable[[PyTree], Mapping[str, np.ndarray]], name: str, values: PyTree
) -> Mapping[str, np.ndarray]:
    return function(values[name])
