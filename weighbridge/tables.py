"""What the command line is given: models by name, and tables as their observations."""

from __future__ import annotations

import functools
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from weighbridge import zoo
from weighbridge.base import DataError, MethodError, ModelError, PyTree
from weighbridge.competitor import Competitor, as_it_is
from weighbridge.model import Model
from weighbridge.sources import Source, count_csv_rows, open_source

Columns = dict[str, np.ndarray]
Parsed = tuple[zoo.Entry, str | None]
Loaded = Mapping[str, Model | Parsed]


@dataclass(frozen=True)
class Table:
    """A table on disk or standard input, and which of its columns a zoo model gets."""

    data: str
    target: str | None = None
    features: str | None = None
    standardise: bool = False
    schema: str | None = None

    @property
    def feature_names(self) -> list[str] | None:
        """Columns named by the user, or None for all that are numeric."""
        if self.features is None:
            return None
        names = [name.strip() for name in self.features.split(",") if name.strip()]
        if not names:
            raise DataError("--features is empty: name columns as A,B,...")
        return names

    def open(self, as_floats: bool) -> Source:
        """Open the table, with all its numeric columns or just those that were named."""
        columns, schema = self.request(as_floats)
        return open_source(self.data, columns=columns, schema=schema)

    def request(self, as_floats: bool) -> tuple[list[str] | None, dict[str, type] | None]:
        """The columns to read and their types; None for all that are numeric, and as they come.

        Args:
            as_floats: whether whole numbers in a column that was named become floats.
        """
        schema = _parse_schema(self.schema)
        names = self.feature_names
        columns = None
        if names is not None:
            if self.target in names:
                raise DataError(
                    f"The target {self.target!r} is also named in --features: take it out there."
                )
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise DataError(f"--features names {twice[0]!r} twice: take one of them out.")
            columns = [*names, *([self.target] if self.target else [])]
            for name in schema:
                if name not in columns:
                    raise DataError(
                        f"--schema names {name!r}, which is neither in --features nor --target."
                    )
            schema = dict.fromkeys(columns, float) | schema if as_floats else schema
        return columns, schema or None

    def count_rows(self, source: Source) -> int | None:
        """Rows of the table, as far as they can be known before it is read."""
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


def load_model(spec: str) -> Model:
    """The model ``file.py:name``; the name may be a ``wb.Model`` or a function that makes one."""
    file_name, _, name = spec.rpartition(":")
    module = _load_file(file_name)
    found = getattr(module, name, None) if name else None
    if callable(found) and not isinstance(found, Model):
        try:
            found = found()
        except Exception as error:
            raise ModelError(
                f"{name}() in {file_name} fails: {type(error).__name__}: {error}. It must be a "
                "wb.Model, or a function without arguments that returns one."
            ) from error
    if not isinstance(found, Model):
        known = [key for key, value in vars(module).items() if isinstance(value, Model)]
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise ModelError(f"{file_name} has no wb.Model named {name!r}; {has}.")
    return found


@functools.cache  # two models of one file are loaded once
def _load_file(file_name: str) -> ModuleType:
    path = Path(file_name)
    if not path.is_file():
        raise ModelError(f"There is no file {file_name!r} to take a model from. Check the path.")
    module_name = f"weighbridge_user_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise ModelError(f"{file_name!r} is not a Python file.")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module  # dataclasses look their module up there
    sys.path.insert(0, str(path.resolve().parent))  # its own imports stand beside it
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        where = _line_in(file_name, error)
        raise ModelError(f"{file_name} fails{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module


def _line_in(file_name: str, error: BaseException) -> str:
    """Where in the user's file an error arose."""
    path = Path(file_name).resolve()
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path]
    return f" at line {lines[-1]}" if lines else ""


def load_all(specs: Sequence[str]) -> Loaded:
    """The models of several texts, by these texts."""
    if len(set(specs)) < len(specs):
        raise MethodError(f"A model is named twice in {list(specs)}.")
    return {spec: _load(spec) for spec in specs}


def _load(spec: str) -> Model | Parsed:
    if spec.endswith(".py"):
        raise ModelError(f"Name the model in {spec}: {spec}:NAME.")
    return load_model(spec) if ".py:" in spec else zoo.parse(spec)


def check_question(loaded: Loaded, table: Table) -> None:
    """Refuse models that do not describe the same thing: their evidences say nothing together."""
    entries = {spec: model[0] for spec, model in loaded.items() if not isinstance(model, Model)}
    describing = [spec for spec, entry in entries.items() if not entry.needs_target]
    predicting = [spec for spec, entry in entries.items() if entry.needs_target]
    if describing and predicting:
        raise DataError(
            f"{predicting[0]} predicts one column from the others, and {describing[0]} describes "
            "all columns: the evidences of different data cannot be compared."
        )
    if describing and table.target is not None:
        raise DataError(
            f"The model {describing[0]!r} describes all columns and has no target: leave out "
            "--target, and choose columns with --features."
        )
    if table.standardise and len(entries) < len(loaded):
        raise DataError(
            "--standardise is for zoo models; a model from a file gets its columns as they are."
        )


def longest_memory(loaded: Loaded) -> int:
    """The most predecessors that a model needs: all of them are weighed on the rows after these."""
    lags = {spec: m[0].lags(m[1]) for spec, m in loaded.items() if not isinstance(m, Model)}
    longest = max(lags, key=lags.__getitem__, default=None)
    if longest is None or not lags[longest]:
        return 0
    if len(lags) < len(loaded):
        raise DataError(
            f"{longest} describes rows with their predecessors, and a model from a file gets its "
            "rows as they are. Compare them in Python, both on the rows of wb.lagged."
        )
    return lags[longest]


def competitors_of(
    loaded: Loaded,
    table: Table,
    first: Columns,
    scale: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, Competitor]:
    """Every model with its view of the table, of which the first rows are known."""
    has_past = bool(longest_memory(loaded))
    return {
        spec: Competitor(model, as_it_is)
        if isinstance(model, Model)
        else _zoo_competitor(model, table, first, scale, has_past)
        for spec, model in loaded.items()
    }


def _zoo_competitor(
    parsed: Parsed,
    table: Table,
    first: Columns,
    scale: tuple[np.ndarray, np.ndarray] | None,
    has_past: bool,
) -> Competitor:
    entry, option = parsed
    if entry.needs_target and table.target is None:
        raise DataError(
            f"The model {entry.name!r} predicts one column from the others: name it with "
            f"--target. There are {', '.join(first)}."
        )
    names = features_of(table, first)
    try:
        model = entry.build(len(names), option)
    except ModelError as error:
        error.add_note(f"The columns are {', '.join(names)}: choose with --features.")
        raise
    if has_past:
        return Competitor(model, functools.partial(_rows_of_series, entry, entry.lags(option)))
    return Competitor(model, _rows_maker(entry, names, table, scale))


def _rows_of_series(entry: zoo.Entry, num_lags: int, rows: PyTree) -> PyTree:
    """What a model sees of lagged features, value [n, d] and past [n, k, d]."""
    if not num_lags:
        return entry.rows(rows["value"], None)
    return entry.rows(np.hstack([rows["value"], rows["past"][:, :num_lags, 0]]), None)


def features_of(table: Table, first: Columns) -> list[str]:
    """Feature columns: those named, or all numeric ones but the target."""
    if table.target is not None and table.target not in first:
        raise DataError(
            f"There is no column {table.target!r} for --target; there are {', '.join(first)}."
        )
    names = table.feature_names or [name for name in first if name != table.target]
    if not names:
        raise DataError("There is no column of numbers besides the target: there are no features.")
    for name in names:
        if first[name].ndim != 1:
            raise DataError(f"Column {name!r} is not a plain column of numbers.")
    return names


def _rows_maker(
    entry: zoo.Entry,
    names: list[str],
    table: Table,
    scale: tuple[np.ndarray, np.ndarray] | None,
) -> Callable[[Columns], PyTree]:
    def make(columns: Columns) -> PyTree:
        features = stack_columns(columns, names, scale)
        target = columns[table.target] if entry.needs_target and table.target else None
        return entry.rows(features, target)

    return make


def stack_columns(
    columns: Columns, names: list[str], scale: tuple[np.ndarray, np.ndarray] | None = None
) -> np.ndarray:
    """Features [n, d], standardised if there is a scale."""
    features = np.stack([np.asarray(columns[name], np.float64) for name in names], axis=1)
    return features if scale is None else (features - scale[0]) / scale[1]


def note(text: str) -> None:
    """Tell the user something beside the results."""
    print(f"weighbridge: {text}", file=sys.stderr)
