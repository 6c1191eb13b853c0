"""The models of the zoo by name, such as ``mixture:5``."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weighbridge.core.errors import DataError, ModelError
from weighbridge.core.types import PyTree
from weighbridge.models.model import Model
from weighbridge.zoo import autoregressive, gaussian, linear, logistic, mixture

# Other common names of these models.
OTHER_NAMES = {
    "logistic": "softmax",
    "regression": "linear",
    "gmm": "mixture",
    "normal": "gaussian",
    "ar": "autoregressive",
}


def _no_lags(option: str | None) -> int:
    """Rows of most models need no previous values."""
    return 0


@dataclass(frozen=True)
class Entry:
    """A model with a name, and how to make its observations from a table.

    Attributes:
        name: name of the model.
        summary: one line for a list of models.
        option: meaning of the text that may follow the name after a colon.
        needs_target: whether the model predicts one column of the table from the others.
        build: ``build(num_features, option)``, the model for that many feature columns.
        rows: ``rows(features [n, d], target [n] or None)``, the observations. For a model with
            lags the features are [n, 1 + k]: a value, then its k previous values, latest first.
        lags: ``lags(option)``, the number of previous values that a row needs.
    """

    name: str
    summary: str
    option: str
    needs_target: bool
    build: Callable[[int, str | None], Model]
    rows: Callable[[np.ndarray, np.ndarray | None], PyTree]
    lags: Callable[[str | None], int] = _no_lags


def entries() -> dict[str, Entry]:
    """All models by name.

    >>> list(entries())
    ['linear', 'softmax', 'mixture', 'gaussian', 'autoregressive']
    """
    return {entry.name: entry for entry in ENTRIES}


def parse(spec: str) -> tuple[Entry, str | None]:
    """The entry and the option of a text such as ``linear`` or ``mixture:5``.

    >>> entry, option = parse("mixture:3")
    >>> entry.name, option, entry.build(2, option).dimension
    ('mixture', '3', 14)
    """
    name, colon, text = (part.strip() for part in spec.partition(":"))
    known = entries()
    if name not in known:
        raise ModelError(
            f"There is no model {name!r}.{_suggest(name)} Choose one of {list(known)}."
        )
    option = text if colon else None
    known[name].build(1, option)  # report a bad option here, before any data is read
    return known[name], option


def _suggest(name: str) -> str:
    names = {entry.name: entry.name for entry in ENTRIES} | OTHER_NAMES
    near = difflib.get_close_matches(name.lower(), names, n=1)
    return f" Did you mean {names[near[0]]!r}?" if near else ""


# --- options: convert a text to a number; an error names the option -------------------------


def _read_number(name: str, option: str | None, default: float) -> float:
    if option is None:
        return default
    try:
        number = float(option)
    except ValueError:
        number = -1.0
    if not 0.0 < number < float("inf"):
        raise ModelError(
            f"The option of {name!r} is the noise, a finite number above 0 (such as "
            f"{name}:{default / 2}), not {option!r}."
        )
    return number


def _read_count(name: str, what: str, option: str | None, default: int, least: int) -> int:
    if option is None:
        return default
    count = int(option) if option.isascii() and option.isdigit() else -1
    if count < least:
        raise ModelError(
            f"The option of {name!r} is the number of {what}, an integer of at least {least} "
            f"(such as {name}:{default}), not {option!r}."
        )
    return count


# --- one pair of functions per model ---------------------------------------------------------


def _build_linear(num_features: int, option: str | None) -> Model:
    return linear.model(num_features, _read_number("linear", option, 1.0))


def _rows_linear(features: np.ndarray, target: np.ndarray | None) -> PyTree:
    return {"x": _numbers(features), "y": _numbers(_require_target("linear", target))}


def _build_softmax(num_features: int, option: str | None) -> Model:
    return logistic.model(num_features, _read_count("softmax", "classes", option, 4, 2))


def _rows_softmax(features: np.ndarray, target: np.ndarray | None) -> PyTree:
    # Labels stay floats: the model reports a row whose label is not an integer.
    return {"x": _numbers(features), "y": _numbers(_require_target("softmax", target))}


def _build_mixture(num_features: int, option: str | None) -> Model:
    return mixture.model(_read_count("mixture", "components", option, 5, 1), num_features)


def _rows_mixture(features: np.ndarray, target: np.ndarray | None) -> PyTree:
    _refuse_target("mixture", target)
    return _numbers(features)


def _build_gaussian(num_features: int, option: str | None) -> Model:
    if num_features != 1:
        raise ModelError(
            f"The model 'gaussian' describes one column, not {num_features}. Choose one column, "
            "or the model 'mixture'."
        )
    return gaussian.model(noise=_read_number("gaussian", option, 1.0))


def _rows_gaussian(features: np.ndarray, target: np.ndarray | None) -> PyTree:
    _refuse_target("gaussian", target)
    values = _numbers(features)
    if values.ndim != 2 or values.shape[1] != 1:
        raise DataError(f"The model 'gaussian' describes one column; got {list(values.shape)}.")
    return values[:, 0]


def _read_order(option: str | None) -> int:
    return _read_count("autoregressive", "previous values", option, 1, 1)


def _build_autoregressive(num_features: int, option: str | None) -> Model:
    if num_features != 1:
        raise ModelError(
            f"The model 'autoregressive' describes one column, not {num_features}. Choose one "
            "column."
        )
    return autoregressive.model(_read_order(option))


def _rows_autoregressive(features: np.ndarray, target: np.ndarray | None) -> PyTree:
    _refuse_target("autoregressive", target)
    values = _numbers(features)
    if values.ndim != 2 or values.shape[1] < 2:
        raise DataError(
            "The model 'autoregressive' describes a value and its previous values; got "
            f"{list(values.shape)}."
        )
    return {"value": values[:, 0], "past": values[:, 1:]}


def _numbers(values: Any) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "The models of the zoo need numbers, but a column holds other values. Choose other "
            "columns, or convert its values to numbers (labels to 0, 1, 2, ...)."
        ) from None


def _require_target(name: str, target: np.ndarray | None) -> np.ndarray:
    if target is None:
        raise DataError(
            f"The model {name!r} predicts one column from the others: name that target."
        )
    return target


def _refuse_target(name: str, target: np.ndarray | None) -> None:
    if target is not None:
        raise DataError(f"The model {name!r} describes all columns and has no target: give none.")


ENTRIES = (
    Entry(
        "linear",
        "linear regression of the target, with known noise (1 unless given)",
        "noise",
        True,
        _build_linear,
        _rows_linear,
    ),
    Entry(
        "softmax",
        "logistic regression of a target with labels 0, 1, ... (4 classes unless given)",
        "classes",
        True,
        _build_softmax,
        _rows_softmax,
    ),
    Entry(
        "mixture",
        "mixture of Gaussians with diagonal covariances (5 components unless given)",
        "components",
        False,
        _build_mixture,
        _rows_mixture,
    ),
    Entry(
        "gaussian",
        "one column with unknown mean and known noise (1 unless given)",
        "noise",
        False,
        _build_gaussian,
        _rows_gaussian,
    ),
    Entry(
        "autoregressive",
        "one column as a series, linear in its previous values (1 unless given)",
        "order",
        False,
        _build_autoregressive,
        _rows_autoregressive,
        _read_order,
    ),
)
