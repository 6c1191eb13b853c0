"""What the command line does: models by name, tables as observations, several in one pass."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weighbridge import zoo
from weighbridge.base import DataError, MethodError, ModelError, PyTree
from weighbridge.data import num_rows
from weighbridge.estimators import SGAIS
from weighbridge.model import Model
from weighbridge.progress import Reporter
from weighbridge.result import Evidence
from weighbridge.run import Competitor, weigh_together
from weighbridge.sources import Source, open_source

Columns = dict[str, np.ndarray]


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

    def open(self, all_columns: bool) -> Source:
        """Open the table, with all its numeric columns or just those that were named."""
        schema = _parse_schema(self.schema)
        columns = None
        if self.feature_names is not None and not all_columns:
            columns = [*self.feature_names, *([self.target] if self.target else [])]
            schema = dict.fromkeys(columns, float) | schema
        return open_source(self.data, columns=columns, schema=schema or None)


def _parse_schema(text: str | None) -> dict[str, type]:
    kinds: dict[str, type] = {"float": float, "int": int}
    schema = {}
    for item in filter(None, (text or "").split(",")):
        name, equals, kind = item.partition("=")
        if not equals or kind.strip() not in kinds:
            raise DataError(f"--schema has {item!r}; write it as column=float or column=int.")
        schema[name.strip()] = kinds[kind.strip()]
    return schema


def load_model(spec: str) -> Model:
    """The model ``file.py:name``; the name may be a ``wb.Model`` or a function that makes one."""
    file_name, _, name = spec.rpartition(":")
    path = Path(file_name)
    if not path.is_file():
        raise ModelError(f"There is no file {file_name!r} (in the model {spec!r}).")
    module_spec = importlib.util.spec_from_file_location(f"weighbridge_user_{path.stem}", path)
    if module_spec is None or module_spec.loader is None:
        raise ModelError(f"{file_name!r} is not a Python file.")
    module = importlib.util.module_from_spec(module_spec)
    sys.path.insert(0, str(path.resolve().parent))  # its own imports stand beside it
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise ModelError(f"{file_name} fails: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    found = getattr(module, name, None)
    if callable(found) and not isinstance(found, Model):
        found = found()
    if not isinstance(found, Model):
        known = [key for key, value in vars(module).items() if isinstance(value, Model)]
        raise ModelError(f"{file_name} has no wb.Model named {name!r}; it has {known}.")
    return found


def _is_file_spec(spec: str) -> bool:
    return ".py:" in spec


def weigh(
    specs: Sequence[str],
    table: Table,
    method: SGAIS,
    seed: int,
    on_bad_row: str,
    reporter: Reporter,
) -> dict[str, Evidence]:
    """The evidence of each model, all in one pass over the table."""
    if len(set(specs)) < len(specs):
        raise MethodError(f"A model is named twice in {list(specs)}.")
    if on_bad_row not in ("raise", "skip"):
        raise MethodError(f"--on-bad-row must be raise or skip, not {on_bad_row!r}.")
    loaded = {spec: load_model(spec) if _is_file_spec(spec) else zoo.parse(spec) for spec in specs}
    any_user_model = any(isinstance(model, Model) for model in loaded.values())
    if any_user_model and (table.standardise or table.features):
        raise DataError(
            "--features and --standardise are for zoo models; a model from a file gets all "
            "columns as they are."
        )
    source = table.open(all_columns=any_user_model)
    if source.ignored_columns:
        _note(f"left out columns that are not numbers: {', '.join(source.ignored_columns)}")
    scale = _measure(source, table) if table.standardise else None
    blocks = source.blocks()
    first = next((block for block in blocks if num_rows(block)), None)
    if first is None:
        raise DataError(f"{table.data} has no rows.")
    competitors = {
        spec: Competitor(model, _as_it_is)
        if isinstance(model, Model)
        else _zoo_competitor(model, table, first, scale)
        for spec, model in loaded.items()
    }
    return weigh_together(
        competitors,
        itertools.chain([first], blocks),
        method,
        seed=seed,
        on_bad_row="skip" if on_bad_row == "skip" else "raise",
        reporter=reporter,
        total=source.num_rows,
    )


def _as_it_is(columns: Columns) -> PyTree:
    return columns


def _zoo_competitor(
    parsed: tuple[zoo.Entry, str | None],
    table: Table,
    first: Columns,
    scale: tuple[np.ndarray, np.ndarray] | None,
) -> Competitor:
    entry, option = parsed
    if entry.needs_target and table.target is None:
        raise DataError(
            f"The model {entry.name!r} predicts one column from the others: name it with "
            f"--target. There are {list(first)}."
        )
    names = _features(table, first)
    return Competitor(entry.build(len(names), option), _rows_maker(entry, names, table, scale))


def _features(table: Table, first: Columns) -> list[str]:
    """Feature columns: those named, or all numeric ones but the target."""
    if table.target is not None and table.target not in first:
        raise DataError(f"There is no column {table.target!r}; there are {list(first)}.")
    names = table.feature_names or [name for name in first if name != table.target]
    if table.target in names:
        raise DataError(f"The target {table.target!r} is also named among the features.")
    if not names:
        raise DataError("There is no numeric column left for the features.")
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
        features = np.stack([np.asarray(columns[name], np.float64) for name in names], axis=1)
        if scale is not None:
            features = (features - scale[0]) / scale[1]
        target = columns[table.target] if entry.needs_target and table.target else None
        return entry.rows(features, target)

    return make


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
        block = np.stack([np.asarray(columns[name], np.float64) for name in names], axis=1)
        block = block[np.isfinite(block).all(axis=1)]
        if len(block):
            yield block


def _note(text: Any) -> None:
    print(f"weighbridge: {text}", file=sys.stderr)
