"""Check the models and methods that the user gives to a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.core.errors import MethodError
from weighbridge.estimators.registry import Method
from weighbridge.models.model import Model
from weighbridge.models.response import check_responses
from weighbridge.models.row_gate import refuse_pymc

Methods = str | Method | Mapping[str, str | Method]


def check_models(models: Any) -> None:
    """Raise an error unless this is a mapping from names to models."""
    if not isinstance(models, Mapping) or not models:
        raise MethodError(
            "models must be a mapping from names to models, as in {'linear': ...}, with one or "
            f"more of them, not {models!r}."
        )
    for name, model in models.items():
        if not isinstance(name, str) or not name:
            raise MethodError(f"The name of a model must be a text, not {name!r}.")
        refuse_pymc(model)
        if not isinstance(model, Model):
            raise MethodError(f"{name!r} must be a wb.Model, not {type(model).__name__}.")
    check_responses(models)


def choose_methods(names: list[str], method: Methods) -> dict[str, str | Method]:
    """The method of each model."""
    if not isinstance(method, Mapping):
        return dict.fromkeys(names, method)
    if set(method) != set(names):
        raise MethodError(f"method must name each of {names}, and no other model, or be one.")
    return {name: method[name] for name in names}
