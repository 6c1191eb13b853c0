"""What the command line does: models by name, tables as observations, several in one pass."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from weighbridge import zoo
from weighbridge.base import DataError, MethodError, ModelError, PyTree
from weighbridge.data import RowChecker, num_rows
from weighbridge.estimators import Method
from weighbridge.lags import lagged
from weighbridge.model import Model
from weighbridge.progress import Reporter, Silent
from weighbridge.result import Evidence
from weighbridge.rounds import Limits
from weighbridge.run import Competitor, RowPolicy, as_it_is, weigh_together
from weighbridge.sources import Source, count_csv_rows, open_source

Columns = dict[str, np.ndarray]
Parsed = tuple[zoo.Entry, str | None]


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
        """Open the table, with all its numeric columns or just those that were named.

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
        return open_source(self.data, columns=columns, schema=schema or None)

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


def _load(spec: str) -> Model | Parsed:
    if spec.endswith(".py"):
        raise ModelError(f"Name the model in {spec}: {spec}:NAME.")
    return load_model(spec) if ".py:" in spec else zoo.parse(spec)


def weigh(
    specs: Sequence[str],
    table: Table,
    method: Method,
    seed: int,
    on_bad_row: RowPolicy,
    reporter: Reporter,
    limits: Limits,
) -> dict[str, Evidence]:
    """The evidence of each model, all in one pass over the table; more with a tolerance."""
    limits.check(method)
    if len(set(specs)) < len(specs):
        raise MethodError(f"A model is named twice in {list(specs)}.")
    loaded = {spec: _load(spec) for spec in specs}
    _check_question(loaded, table)
    any_user_model = any(isinstance(model, Model) for model in loaded.values())
    source = table.open(as_floats=not any_user_model)
    if source.ignored_columns:
        _note(f"left out columns that are not numbers: {', '.join(source.ignored_columns)}")
    if table.target in source.ignored_columns:
        raise DataError(
            f"The target {table.target!r} does not hold numbers. Turn its values into numbers "
            "first (labels into 0, 1, 2, ...)."
        )
    order = _longest_memory(loaded)
    scale = _measure(source, table) if table.standardise else None
    blocks = source.blocks()
    first = next((block for block in blocks if num_rows(block)), None)
    if first is None:
        raise DataError(f"{table.data} has no rows.")
    competitors = {
        spec: Competitor(model, as_it_is)
        if isinstance(model, Model)
        else _zoo_competitor(model, table, first, scale, bool(order))
        for spec, model in loaded.items()
    }
    # What was read to see the columns is not read again, for a pipe has it only once.
    begun = [itertools.chain([first], blocks)]

    def start() -> Iterator[Columns]:
        everything = begun.pop() if begun else source.blocks()
        return iter(everything) if on_bad_row == "skip" else _finite_or_named(everything)

    named = Source(
        start,
        num_rows=None if isinstance(reporter, Silent) else table.count_rows(source),
        reopenable=source.reopenable,
    )
    if order:
        named = _lag(named, _features(table, first), scale, order)
    try:
        return weigh_together(
            competitors,
            named,
            method,
            seed=seed,
            limits=limits,
            on_bad_row=on_bad_row,
            reporter=reporter,
        )
    except DataError as error:
        if "column 'y'" in str(error) and "y" not in first:  # the name that the zoo gives it
            error.add_note(f"Here 'y' is the target, column {table.target!r}.")
        raise


def _check_question(loaded: Mapping[str, Model | Parsed], table: Table) -> None:
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


def _longest_memory(loaded: Mapping[str, Model | Parsed]) -> int:
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


def _lag(
    rows: Source,
    names: list[str],
    scale: tuple[np.ndarray, np.ndarray] | None,
    order: int,
) -> Source:
    """The features of a table as a series: rows with their predecessors."""
    first = "row, a predecessor" if order == 1 else f"{order} rows, predecessors"
    _note(f"the evidence is conditional on the first {first} only")
    # As one array: a column that is named 'weight' or 'past' means nothing here.
    series = Source(
        lambda: (_stack(block, names, scale) for block in rows.blocks()),
        num_rows=rows.num_rows,
        reopenable=rows.reopenable,
    )
    source: Source = lagged(series, order)
    return source


def _finite_or_named(blocks: Iterable[Columns]) -> Iterator[Columns]:
    """Blocks without bad numbers; an error names the column as the table does.

    The models would refuse them too, but know the columns by other names.
    """
    check = RowChecker("raise")
    for block in blocks:
        yield check(block)


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
    names = _features(table, first)
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


def _features(table: Table, first: Columns) -> list[str]:
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
        features = _stack(columns, names, scale)
        target = columns[table.target] if entry.needs_target and table.target else None
        return entry.rows(features, target)

    return make


def _stack(
    columns: Columns, names: list[str], scale: tuple[np.ndarray, np.ndarray] | None = None
) -> np.ndarray:
    """Features [n, d], standardised if there is a scale."""
    features = np.stack([np.asarray(columns[name], np.float64) for name in names], axis=1)
    return features if scale is None else (features - scale[0]) / scale[1]


def _measure(source: Source, table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every feature, in a pass of its own."""
    if not source.reopenable:
        raise DataError(
            "--standardise needs two passes over the data, and a stream can be read only once. "
            "Give a file."
        )
    names: list[str] = []
    count, mean, squares = 0.0, np.zeros(0), np.zeros(0)
    for block in _finite_blocks(source, table, names):
        if not count:
            mean, squares = np.zeros(block.shape[1]), np.zeros(block.shape[1])
        # Chan, Golub & LeVeque (1983): moments of two blocks combined without cancellation.
        block_mean = block.mean(axis=0)
        total = count + len(block)
        shift = block_mean - mean
        squares += ((block - block_mean) ** 2).sum(axis=0) + shift**2 * count * len(block) / total
        mean = mean + shift * len(block) / total
        count = total
    if not count:
        raise DataError(f"{table.data} has no rows.")
    deviation = np.sqrt(squares / count)
    flat = [name for name, value in zip(names, deviation) if value == 0]
    if flat:
        raise DataError(f"Column {flat[0]!r} is constant and cannot be standardised; leave it out.")
    scales = ", ".join(f"{n} ({m:.4g}, {s:.4g})" for n, m, s in zip(names, mean, deviation))
    _note(f"standardised, with column (mean, standard deviation): {scales}")
    _note("the evidence is that of the standardised columns")
    return mean, deviation


def _finite_blocks(source: Source, table: Table, names: list[str]) -> Iterator[np.ndarray]:
    for columns in source.blocks():
        if not names:
            names.extend(_features(table, columns))
        block = _stack(columns, names)
        block = block[np.isfinite(block).all(axis=1)]
        if len(block):
            yield block


def _note(text: str) -> None:
    print(f"weighbridge: {text}", file=sys.stderr)
