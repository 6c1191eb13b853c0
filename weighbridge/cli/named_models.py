"""Models that the command line is asked for: of the zoo, or from a user's file."""

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
class Asked:
    """A model as it was asked for: ``linear``, ``mixture:5@a,b`` or ``file.py:name@a,b``.

    Attributes:
        model: of a file; None for one of the zoo.
        entry: of the zoo; None for one from a file.
        option: what followed its name after a colon.
        features: the columns after ``@``; None if there are none of its own.
    """

    model: Model | None = None
    entry: zoo.Entry | None = None
    option: str | None = None
    features: tuple[str, ...] | None = None

    @property
    def lags(self) -> int:
        """How many predecessors its rows need."""
        return 0 if self.entry is None else self.entry.lags(self.option)


Loaded = Mapping[str, Asked]


def load_all(specs: Sequence[str]) -> Loaded:
    """The models of several texts, by these texts.

    >>> load_all(["linear@a", "linear@a,b"])["linear@a,b"].features
    ('a', 'b')
    """
    if len(set(specs)) < len(specs):
        raise MethodError(f"A model is named twice in {list(specs)}.")
    return {spec: _load(spec) for spec in specs}


def _load(spec: str) -> Asked:
    name, features = _own_features(spec)
    if name.endswith(".py"):
        raise ModelError(f"Name the model in {name}: {name}:NAME.")
    if ".py:" in name:
        return Asked(model=load_model(name), features=features)
    entry, option = zoo.parse(name)
    return Asked(entry=entry, option=option, features=features)


def _own_features(spec: str) -> tuple[str, tuple[str, ...] | None]:
    """The text before ``@`` and the columns after it; a folder may have an ``@`` in its name."""
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
