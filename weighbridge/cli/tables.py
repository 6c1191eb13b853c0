"""Tables given to the command line, and the columns that each model gets of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weighbridge import zoo
from weighbridge.cli.named_models import Loaded, RequestedModel
from weighbridge.cli.scaling import Scales, scaled
from weighbridge.core.errors import DataError, ModelError
from weighbridge.core.types import PyTree
from weighbridge.data.feeds.base import Feed
from weighbridge.data.feeds.opening import open_feed
from weighbridge.data.row_checking import RowPolicy
from weighbridge.data.sources.csv_file import count_csv_rows
from weighbridge.data.sources.opening import open_source
from weighbridge.data.sources.requested_columns import check_present
from weighbridge.data.sources.source import Source
from weighbridge.models.columns_read import columns_needed
from weighbridge.models.response import check_responses
from weighbridge.weighing.competitor import Competitor, as_it_is

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class InputTable:
    """A table on disk or on standard input, and the columns of it that models get.

    Attributes:
        data: the file, folder or stream of the rows.
        target: the column to predict.
        features: the other columns to use, as A,B,...; None for all numeric columns.
        standardise: whether columns are scaled first.
        schema: types of columns, as a=float,b=int.
        follow: whether a watch waits for more rows.
        identifier: a field of JSON lines or of a Redis stream that identifies a row, so that a
            watch notices repeated rows.
    """

    data: str
    target: str | None = None
    features: str | None = None
    standardise: bool = False
    schema: str | None = None
    follow: bool = False
    identifier: str | None = None

    @property
    def feature_names(self) -> list[str] | None:
        """Columns named by the user, or None for all numeric columns."""
        if self.features is None:
            return None
        names = [name.strip() for name in self.features.split(",") if name.strip()]
        if not names:
            raise DataError("--features is empty: name columns as A,B,...")
        return names

    def features_for(self, loaded: Loaded) -> list[str] | None:
        """The features of all models together; None if one of them takes all numeric columns."""
        named = self.feature_names
        lists = [named if m.features is None else list(m.features) for m in loaded.values()]
        if any(names is None for names in lists):
            return None
        for spec, names in zip(loaded, lists):
            if self.target in (names or []):
                where = "--features" if loaded[spec].features is None else repr(spec)
                raise DataError(
                    f"The target {self.target!r} is also named in {where}: take it out there."
                )
        return list(dict.fromkeys(name for names in lists for name in names or []))

    def open(self, loaded: Loaded, on_bad_row: RowPolicy = "raise") -> Source:
        """Open the table, with all numeric columns or only with the named ones."""
        columns, schema = self.request(loaded)
        return open_source(self.data, columns=columns, schema=schema, on_bad_row=on_bad_row)

    def follow_rows(self, loaded: Loaded, on_bad_row: RowPolicy) -> Feed:
        """Open the table as a feed, which can be read on from a saved position."""
        columns, schema = self.request(loaded)
        return open_feed(
            self.data,
            follow=self.follow,
            columns=columns,
            schema=schema,
            identifier=self.identifier,
            on_bad_row=on_bad_row,
        )

    def request(self, loaded: Loaded) -> tuple[list[str] | None, dict[str, type] | None]:
        """The columns to read (None for all numeric ones), and their types (None to infer them).

        Integers in a named column become floats, unless one of the models is from a file.
        """
        schema = self.types
        names = self.features_for(loaded)
        if names is None:
            return None, schema or None
        named = self.feature_names or []
        twice = [name for name in named if named.count(name) > 1]
        if twice:
            raise DataError(f"--features names {twice[0]!r} twice: take one of them out.")
        columns = [*names, *([self.target] if self.target else [])]
        for name in schema:
            if name not in columns:
                raise DataError(
                    f"--schema names {name!r}, which is neither in --features nor --target."
                )
        if all(requested.model is None for requested in loaded.values()):
            schema = dict.fromkeys(columns, float) | schema
        return columns, schema or None

    @property
    def types(self) -> dict[str, type]:
        """Types of columns given by the user."""
        return _parse_schema(self.schema)

    def count_rows(self, source: Source) -> int | None:
        """The number of rows, if it can be known before the table is read; else None."""
        path = Path(self.data)
        if source.num_rows is None and path.suffix.lower() == ".csv" and path.is_file():
            return count_csv_rows(path)
        return source.num_rows


def _parse_schema(text: str | None) -> dict[str, type]:
    kinds: dict[str, type] = {"float": float, "int": int}
    schema = {}
    for item in filter(None, (text or "").split(",")):
        name, _, kind = item.rpartition("=")
        if not name.strip() or kind.strip() not in kinds:
            raise DataError(f"--schema has {item!r}; write it as column=float or column=int.")
        schema[name.strip()] = kinds[kind.strip()]
    return schema


def check_comparable(loaded: Loaded, table: InputTable) -> None:
    """Refuse models of different data: their evidences cannot be compared."""
    entries = {
        spec: requested.entry for spec, requested in loaded.items() if requested.entry is not None
    }
    describing = [spec for spec, entry in entries.items() if not entry.needs_target]
    predicting = [spec for spec, entry in entries.items() if entry.needs_target]
    if describing and predicting:
        raise DataError(
            f"{predicting[0]} predicts one column from the others, and {describing[0]} describes "
            "all columns: the evidences of different data cannot be compared."
        )
    models = {spec: entry.build(1, loaded[spec].option) for spec, entry in entries.items()}
    models |= {
        spec: requested.model for spec, requested in loaded.items() if requested.model is not None
    }
    check_responses({spec: models[spec] for spec in loaded})
    if describing and table.target is not None:
        raise DataError(
            f"The model {describing[0]!r} describes all columns and has no target: leave out "
            "--target, and choose columns with --features."
        )
    for spec in describing[1:]:
        first, own = loaded[describing[0]].features, loaded[spec].features
        if set(first or table.feature_names or ()) != set(own or table.feature_names or ()):
            raise DataError(
                f"{describing[0]} and {spec} describe different columns: the evidences of "
                "different data cannot be compared. Give both the same columns, with --features."
            )
    if table.standardise and len(entries) < len(loaded) and table.target is None:
        raise DataError(
            "--standardise scales every column except the target, and a model from a file does not "
            "define which column it predicts: name that column with --target."
        )


def longest_lag(loaded: Loaded) -> int:
    """The largest number of lags of a model; all models are compared on the rows after these."""
    longest = max(loaded, key=lambda spec: loaded[spec].lags)
    if not loaded[longest].lags:
        return 0
    if any(requested.model is not None for requested in loaded.values()):
        raise DataError(
            f"{longest} needs the previous values of each row, and a model from a file does not "
            "get them. Compare the models in Python, both on the rows of wb.lagged."
        )
    return loaded[longest].lags


def competitors_of(
    loaded: Loaded, table: InputTable, first: Columns, scales: Scales | None = None
) -> dict[str, Competitor]:
    """Every model, with the function that makes its rows from those of the table.

    Args:
        loaded: the models.
        table: the table.
        first: the first rows of the table.
        scales: means and standard deviations, to standardise; None does not.
    """
    has_past = bool(longest_lag(loaded))
    return {
        spec: _from_file(requested, table, first, scales)
        if requested.entry is None
        else _from_zoo(requested, requested.entry, table, first, scales, has_past)
        for spec, requested in loaded.items()
    }


def _from_file(
    requested: RequestedModel, table: InputTable, first: Columns, scales: Scales | None
) -> Competitor:
    """A model that reads columns by their names: all of them, or those after its ``@``."""
    assert requested.model is not None
    if requested.features is None and scales is None:
        return Competitor(requested.model, as_it_is)
    kept = list(first)
    if requested.features is not None:
        kept = [*features_of(table, first, requested), *([table.target] if table.target else [])]
    own = {n: scales[n] for n in scaled_features(table, first, requested)} if scales else {}

    def view(columns: Columns) -> Columns:
        chosen = {name: columns[name] for name in kept}
        return chosen | {n: scaled(chosen[n], *scale) for n, scale in own.items()}

    return Competitor(requested.model, view)


def _from_zoo(
    requested: RequestedModel,
    entry: zoo.Entry,
    table: InputTable,
    first: Columns,
    scales: Scales | None,
    has_past: bool,
) -> Competitor:
    if entry.needs_target and table.target is None:
        raise DataError(
            f"The model {entry.name!r} predicts one column from the others: name it with "
            f"--target. There are {', '.join(first)}."
        )
    names = features_of(table, first, requested)
    try:
        model = entry.build(len(names), requested.option)
    except ModelError as error:
        error.add_note(f"The columns are {', '.join(names)}: choose with --features.")
        raise
    if has_past:
        own = None if scales is None else [scales[name] for name in names]
        return Competitor(model, functools.partial(_rows_of_series, entry, requested.lags, own))
    return Competitor(model, _rows_maker(entry, names, table, scales))


def _rows_of_series(
    entry: zoo.Entry, num_lags: int, scales: Sequence[tuple[float, float]] | None, rows: PyTree
) -> PyTree:
    """The rows of a model from lagged features, value [n, d] and past [n, k, d]."""
    if scales is not None:
        mean, deviation = np.transpose(scales)
        rows = {name: scaled(leaf, mean, deviation) for name, leaf in rows.items()}
    if not num_lags:
        return entry.rows(rows["value"], None)
    return entry.rows(np.hstack([rows["value"], rows["past"][:, :num_lags, 0]]), None)


def features_of(table: InputTable, first: Columns, requested: RequestedModel) -> list[str]:
    """Feature columns of a model: after its @, of --features, or all numeric except the target."""
    if table.target is not None and table.target not in first:
        raise DataError(
            f"There is no column {table.target!r} for --target; there are {', '.join(first)}."
        )
    names = list(requested.features or table.feature_names or ())
    check_present(list(first), names)
    names = names or [name for name in first if name != table.target]
    if not names:
        raise DataError(
            "The table has no numeric column besides the target: there are no features."
        )
    if requested.entry is not None or table.standardise:
        for name in names:
            if first[name].ndim != 1:
                raise DataError(f"Column {name!r} does not hold one number in each row.")
    return names


def scaled_features(table: InputTable, first: Columns, requested: RequestedModel) -> list[str]:
    """The columns that --standardise scales for a model.

    Columns of a model from a file may be an index or a count, which must not be scaled. Columns of
    true/false, int columns of --schema, and the column 'weight' are therefore left as they are.
    """
    names = features_of(table, first, requested)
    if requested.entry is not None:
        return names
    as_they_are = {name for name, kind in table.types.items() if kind is int} | {"weight"}
    return [n for n in names if n not in as_they_are and first[n].dtype != np.bool_]


def columns_used(
    loaded: Loaded, table: InputTable, first: Columns, competitors: Mapping[str, Competitor]
) -> set[str] | None:
    """The columns in which a model needs every value; None if a model may read all columns."""
    used: set[str] = {table.target} if table.target is not None else set()
    for spec, requested in loaded.items():
        if requested.entry is not None:
            used |= set(features_of(table, first, requested))
            continue
        competitor = competitors[spec]
        read = columns_needed(competitor.model, competitor.view(first))
        if read is None:
            return None
        used |= read | {"weight"}
    return used


def _rows_maker(
    entry: zoo.Entry, names: list[str], table: InputTable, scales: Scales | None
) -> Callable[[Columns], PyTree]:
    def make(columns: Columns) -> PyTree:
        features = stack_columns(columns, names, scales)
        target = columns[table.target] if entry.needs_target and table.target else None
        return entry.rows(features, target)

    return make


def stack_columns(columns: Columns, names: list[str], scales: Scales | None = None) -> np.ndarray:
    """Features [n, d], standardised if there are scales."""
    stacked = [np.asarray(columns[name], np.float64) for name in names]
    if scales is not None:
        stacked = [scaled(column, *scales[name]) for name, column in zip(names, stacked)]
    return np.stack(stacked, axis=1)


def note(text: str) -> None:
    """Print a remark to standard error, apart from the results."""
    print(f"weighbridge: {text}", file=sys.stderr)
