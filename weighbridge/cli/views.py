"""Models from the command line on a feed: how each of them sees the rows of a table."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from weighbridge.cli.named_models import Asked, Loaded
from weighbridge.cli.tables import (
    Columns,
    InputTable,
    competitors_of,
    features_of,
    longest_memory,
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


class Begun:
    """A feed whose first rows were looked at; they come again when it is read.

    Args:
        feed: what to look into.
        stop: while it is not set, a feed that has no rows yet is waited for.
        cursor: where a resumed run goes on. If it tells the columns, they count, and not those of
            rows that are first by now because earlier ones are gone.

    Attributes:
        first: the first rows, or none in the columns of the cursor; None if the feed ended, or was
            stopped, without one.
    """

    def __init__(self, feed: Feed, stop: threading.Event, cursor: Cursor | None = None) -> None:
        self._feed = feed
        self.seekable, self.num_rows = feed.seekable, feed.num_rows
        self._taken: list[Parcel | None] = []
        self._rest = feed.read()
        tells = getattr(feed, "no_rows", None)
        self.first: Columns | None = None
        if cursor is not None and tells is not None:
            check_cursor(cursor, feed.describe())
            self.first = tells(cursor)
        if self.first is not None:
            return
        for parcel in self._rest:
            self._taken.append(parcel)
            if parcel is not None and parcel.values is not None and num_rows(parcel.values):
                self.first = parcel.values
            if self.first is not None or stop.is_set():
                break
        close = getattr(self._rest, "close", None)
        if self.seekable and close is not None:  # it will be read anew, and need not stay open
            close()

    @property
    def left_out(self) -> list[str]:
        """Columns that do not hold numbers, as far as the feed tells them."""
        return list(getattr(self._feed, "left_out", ()))

    def describe(self) -> str:
        """As the feed itself."""
        return self._feed.describe()

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """From a place on, or on from the rows that were looked at."""
        if self.seekable:
            yield from self._feed.read(cursor)
            return
        yield from self._taken
        self._taken = []
        yield from self._rest


class Views:
    """Rows of a table as the models take them; where they differ, under a name for each.

    Args:
        views: from columns to rows, by model.
        names: the features, where the table is a series.
        order: how many predecessors a row has; 0 for no series.
    """

    def __init__(
        self, views: Mapping[str, Callable[[PyTree], PyTree]], names: list[str], order: int
    ) -> None:
        self._views, self._names = dict(views), names
        self._lags = Lagged(order) if order else None

    def __call__(self, values: PyTree) -> PyTree:
        """The rows that the models take."""
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
        """Continue from what ``state`` returned."""
        if self._lags is not None and state is not None:
            self._lags = Lagged(self._lags.order, np.array(state, np.float64))


def see(loaded: Loaded, table: InputTable, first: Columns) -> tuple[dict[str, Model], Views]:
    """The models, and what has to be done to rows of the table before these take them."""
    competitors = competitors_of(loaded, table, first)
    order = longest_memory(loaded)
    asked = next(iter(loaded.values()))  # of a series all models describe the same columns
    names = features_of(table, first, asked) if order else []
    groups = {spec: _kind_of_view(loaded[spec]) for spec in loaded}
    if len(set(groups.values())) == 1:
        view = next(iter(competitors.values())).view
        return {spec: c.model for spec, c in competitors.items()}, Views({"": view}, names, order)
    if "weight" in first and any(asked.model is not None for asked in loaded.values()):
        raise DataError(
            "A column 'weight' counts repeated rows of a model from a file, and a model of the zoo "
            "takes it for a feature: watch them one by one, or rename the column."
        )
    models = {spec: _seeing(c, groups[spec]) for spec, c in competitors.items()}
    views = {groups[spec]: c.view for spec, c in competitors.items()}
    return models, Views(views, names, order)


def _kind_of_view(asked: Asked) -> str:
    """Models of one kind take the same rows."""
    kind = "table" if asked.entry is None else f"{asked.entry.rows.__name__}, {asked.lags}"
    return kind if asked.features is None else f"{kind}, {','.join(asked.features)}"


def _seeing(competitor: Competitor, name: str) -> Model:
    """The model, on rows in which its own are found by a name."""
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
