"""Pickles and copies: a class is pickled by its public name, without unpicklable fields.

A pickle that names ``weighbridge.Evidence``, and not the module of the class, can still be read
after the class has moved to another module. The library writes pickles on request and never reads
one by itself: ``save`` and ``load`` do not use pickles.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import importlib
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)

PACKAGE = __name__.partition(".")[0]


def travels(
    *, never: Sequence[str] = (), if_possible: Sequence[str] = ()
) -> Callable[[Class], Class]:
    """Decorator: objects of the class are pickled under its public name, and can be copied.

    A field that was left out has its default in the unpickled object, or None. A class with a field
    ``remarks`` gets a remark about this; for other classes a warning is issued when the pickle is
    written. Copies in the same process are complete.

    Args:
        never: fields that are left out of every pickle; using them on the unpickled object raises.
        if_possible: fields that the user made, such as functions. If they cannot be pickled, they
            are left out with a remark.

    >>> from weighbridge import Change
    >>> change = Change(100, 1e-6, -2.0, "parameters", 90, 120, annealing_steps=1.0)
    >>> pickle.loads(pickle.dumps(change)) == change, b"weighbridge.Change" in pickle.dumps(change)
    (True, True)
    """

    def reduce(self: Any, protocol: Any) -> tuple[Any, ...]:
        return _from_pickle, (_name(type(self)), _packed(self, never, if_possible))

    def shallow(self: Any) -> Any:
        return _made(type(self), contents(self))

    def deep(self: Any, memo: dict[int, Any]) -> Any:
        found = contents(self)
        copied = {n: v if n in never else copy.deepcopy(v, memo) for n, v in found.items()}
        return _made(type(self), copied)

    def mark(cls: Class) -> Class:
        methods = {"__reduce_ex__": reduce, "__copy__": shallow, "__deepcopy__": deep}
        for name, method in methods.items():
            setattr(cls, name, method)
        return cls

    return mark


def member_by_name(member: enum.Enum) -> tuple[Any, ...]:
    """How a member of an enumeration is pickled: by the public name of its class and its name."""
    return _from_pickle, (_name(type(member)), member.name)


def contents(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass or a named tuple, or the attributes of another object.

    >>> from weighbridge import Verdict
    >>> list(contents(Verdict(True, 0.0, 0.0, "between the bounds")))
    ['inside', 'excess', 'num_errors', 'text']
    """
    if dataclasses.is_dataclass(thing):  # attributes may hold more, such as cached properties
        return {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
    return dict(thing._asdict() if hasattr(thing, "_asdict") else vars(thing))


def _name(cls: type) -> str | type:
    """The public name of a class; the class itself if it has none, such as a user's class."""
    public = getattr(importlib.import_module(PACKAGE), cls.__name__, None)
    return f"{PACKAGE}.{cls.__name__}" if public is cls else cls


def _packed(thing: Any, never: Sequence[str], if_possible: Sequence[str]) -> dict[str, Any]:
    """The fields of an object that go into a pickle."""
    found = {name: value for name, value in contents(thing).items() if name not in never}
    for name in if_possible:
        try:
            pickle.dumps(found[name])
        except Exception as error:  # a user's object can raise anything
            found[name] = _default(type(thing), name)
            _remark(thing, found, name, error)
    return found


def _remark(thing: Any, found: dict[str, Any], name: str, error: Exception) -> None:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    text = (
        f"{name} was left out when this {type(thing).__name__} was pickled, because it cannot be "
        f"pickled: {reason}. Define functions with def in a module to make them picklable."
    )
    if "remarks" in found:
        found["remarks"] = (*found["remarks"], text)
    else:
        warnings.warn(text, stacklevel=4)


def _default(cls: Any, name: str) -> Any:
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.name == name and field.default is not dataclasses.MISSING:
            return field.default
        if field.name == name and field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
    return None


def _made(cls: Any, found: Mapping[str, Any]) -> Any:
    """Make an object with these fields; nothing is checked or computed again."""
    if issubclass(cls, tuple):
        return cls(**found)
    thing = cls.__new__(cls)
    for name, value in found.items():
        object.__setattr__(thing, name, value)
    return thing


def _from_pickle(which: str | type, found: Mapping[str, Any] | str) -> Any:
    """Make the object that was pickled; fields that were added later have their defaults."""
    cls: Any = which
    if isinstance(which, str):
        cls = getattr(importlib.import_module(PACKAGE), which.rpartition(".")[2])
    if isinstance(found, str):
        return cls[found]
    if dataclasses.is_dataclass(cls):
        fields = {field.name: field for field in dataclasses.fields(cls)}
        if unknown := [name for name in found if name not in fields]:
            raise pickle.UnpicklingError(
                f"The pickle of {which} was written by another version of {PACKAGE}: this one does "
                f"not know {unknown}. Read it with the version that wrote it, and save() it."
            )
        missing = [name for name in fields if name not in found]
        found = {**found, **{name: _default(cls, name) for name in missing}}
    return _made(cls, found)


# Pickles name this function too: as ``weighbridge._from_pickle``, whichever module it is in.
_from_pickle.__module__ = PACKAGE
