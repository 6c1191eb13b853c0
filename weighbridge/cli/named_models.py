"""Models named on the command line: from the zoo, or from a user's file."""

from __future__ import annotations

import functools
import importlib.util
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from weighbridge import zoo
from weighbridge.core.errors import DataError, MethodError, ModelError
from weighbridge.models.model import Model


@dataclass(frozen=True)
class RequestedModel:
    """A model from the command line: ``linear``, ``mixture:5@a,b`` or ``file.py:name@a,b``.

    Attributes:
        model: the model of a file; None for a zoo model.
        entry: the entry of a zoo model; None for a model from a file.
        option: the text after the colon of a zoo model's name.
        features: the columns after ``@``; None without ``@``.
    """

    model: Model | None = None
    entry: zoo.Entry | None = None
    option: str | None = None
    features: tuple[str, ...] | None = None

    @property
    def lags(self) -> int:
        """How many previous rows a row of the model needs."""
        return 0 if self.entry is None else self.entry.lags(self.option)


Loaded = Mapping[str, RequestedModel]


def load_all(specs: Sequence[str]) -> Loaded:
    """Load the models of several specifications; the keys are the specifications.

    >>> load_all(["linear@a", "linear@a,b"])["linear@a,b"].features
    ('a', 'b')
    """
    if len(set(specs)) < len(specs):
        raise MethodError(f"A model is named twice in {list(specs)}.")
    return {spec: _load(spec) for spec in specs}


def _load(spec: str) -> RequestedModel:
    name, features = _own_features(spec)
    if name.endswith(".py"):
        raise ModelError(f"Name the model in {name}: {name}:NAME.")
    if ".py:" in name:
        return RequestedModel(model=load_model(name), features=features)
    entry, option = zoo.parse(name)
    return RequestedModel(entry=entry, option=option, features=features)


def _own_features(spec: str) -> tuple[str, tuple[str, ...] | None]:
    """The text before ``@``, and the columns after it; folder names may contain ``@`` too."""
    name, at, text = spec.rpartition("@")
    if not at or ".py" in text:
        return spec, None
    features = tuple(part.strip() for part in text.split(",") if part.strip())
    if not features:
        raise DataError(f"{spec!r} names no columns after the @: write it as {name}@A,B,...")
    twice = [feature for feature in features if features.count(feature) > 1]
    if twice:
        raise DataError(f"{spec!r} names {twice[0]!r} twice: take one of them out.")
    return name, features


def load_model(spec: str) -> Model:
    """The model ``file.py:name``: a ``wb.Model``, or a function that returns one."""
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


@functools.cache  # a file with two models is loaded once
def _load_file(file_name: str) -> ModuleType:
    path = Path(file_name)
    if not path.is_file():
        raise ModelError(f"There is no file {file_name!r} to take a model from. Check the path.")
    module_name = f"weighbridge_user_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise ModelError(f"{file_name!r} is not a Python file.")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module  # dataclasses need to find their module here
    sys.path.insert(0, str(path.resolve().parent))  # the file may import files beside it
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        where = _line_in(file_name, error)
        raise ModelError(f"{file_name} fails{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module


def _line_in(file_name: str, error: BaseException) -> str:
    """The line of the user's file at which an error arose."""
    path = Path(file_name).resolve()
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path]
    return f" at line {lines[-1]}" if lines else ""
