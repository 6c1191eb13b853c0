"""Pickles and copies: classes by their public name, without what cannot travel.

A pickle that names ``weighbridge.Evidence``, and not the file that holds the class today, can still
be read when that file has moved. This library writes pickles when it is asked to, and never reads
one of its own accord: ``save`` and ``load`` do without them.
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
    """A class whose objects can be pickled under its public name, and copied.

    A field that had to stay behind has its default in the pickle's object, or None. A class with
    ``remarks`` says so there; for another a warning does, when the pickle is written. Copies in the
    same process lack nothing.

    Args:
        never: fields that are left out of every pickle; the object says so when they are asked for.
        if_possible: fields of the user's making, such as functions, which are left out of a pickle,
            with a remark, where they cannot be pickled.

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
    """How a member of an enumeration is pickled: the public name of its class, and its own."""
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
    """The public name of a class; the class itself where it has none, as a user's own."""
    public = getattr(importlib.import_module(PACKAGE), cls.__name__, None)
    return f"{PACKAGE}.{cls.__name__}" if public is cls else cls


def _packed(thing: Any, never: Sequence[str], if_possible: Sequence[str]) -> dict[str, Any]:
    """What a pickle holds of an object."""
    found = {name: value for name, value in contents(thing).items() if name not in never}
    for name in if_possible:
        try:
            pickle.dumps(found[name])
        except Exception as error:  # whatever a user's object raises
            found[name] = _default(type(thing), name)
            _remark(thing, found, name, error)
    return found


def _remark(thing: Any, found: dict[str, Any], name: str, error: Exception) -> None:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    text = (
        f"{name} was left out when this {type(thing).__name__} was pickled, for it cannot be: "
        f"{reason}. Functions can be if they are defined in a module, with def."
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
    """An object of these contents; nothing is checked or computed anew."""
    if issubclass(cls, tuple):
        return cls(**found)
    thing = cls.__new__(cls)
    for name, value in found.items():
        object.__setattr__(thing, name, value)
    return thing


def _from_pickle(which: str | type, found: Mapping[str, Any] | str) -> Any:
    """The object that was pickled; fields that came later have their defaults."""
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


# Pickles name this function too: as ``weighbridge._from_pickle``, wherever it may be kept.
_from_pickle.__module__ = PACKAGE
