"""Functions of a user that read arrays from outside read views of them.

Why: see ``core.compilation.own``.
"""

from __future__ import annotations

import types
import weakref
from typing import Any, TypeVar

import numpy as np

from weighbridge.core.compilation import own
from weighbridge.models.program_text import is_library, outer_values, writes_outside

Function = TypeVar("Function")

# The same function gives the same twin, so that a second model of the same make compiles nothing,
# as long as it reads the same objects: with each twin stand those that it was made of.
_KNOWN: weakref.WeakKeyDictionary[Any, tuple[Any, list[Any]]] = weakref.WeakKeyDictionary()


def with_own_arrays(function: Function) -> Function:
    """The same function, reading views of the arrays that it takes from outside.

    Looked for are arrays in its closure, among the global names that it reads and in its defaults,
    also inside lists, tuples and dicts, and in other functions that it calls. The view is made now:
    a name that is bound to another array later is not seen. Arrays that are attributes of an object
    are not found.

    Args:
        function: any callable; one that reads no arrays is returned as it is.

    >>> weights = np.array([1.0, 2.0])
    >>> dot = with_own_arrays(lambda x: weights @ x)
    >>> float(dot(np.array([3.0, 4.0])))
    11.0
    """
    if not _is_plain(function):
        return function
    reached: list[Any] = []
    if not _reads_arrays(function, reached):
        return function
    del reached[0]  # the function itself: kept beside its twin it would never go
    twin, made_of = _KNOWN.get(function, (None, []))
    same = len(reached) == len(made_of) and all(new is old for new, old in zip(reached, made_of))
    if twin is None or not same:
        twin = _copy(function, {})
        _KNOWN[function] = twin, reached
    return twin  # type: ignore[no-any-return]


class _Names(dict[str, Any]):
    """Some global names with values of their own; all others are looked up where they were."""

    def __init__(self, elsewhere: dict[str, Any]) -> None:
        # Python looks for this one without asking __missing__.
        super().__init__(__builtins__=elsewhere.get("__builtins__", __builtins__))
        self.elsewhere = elsewhere

    def __missing__(self, name: str) -> Any:
        return self.elsewhere[name]


def _is_plain(value: Any) -> bool:
    """Whether it is a Python function of the user's, which can be made anew.

    One that binds global names is left alone: its twin would bind them elsewhere.
    """
    if not isinstance(value, types.FunctionType) or is_library(value):
        return False
    ours = str(value.__module__).split(".")[0] == "weighbridge"
    return not ours and not writes_outside(value)


def _reads_arrays(value: Any, reached: list[Any]) -> bool:
    """Whether an array can be reached from here; what was met on the way is added to the list."""
    if any(value is other for other in reached):
        return False
    if isinstance(value, np.ndarray):
        reached.append(value)
        return True
    if type(value) in (list, tuple):
        parts = list(value)
    elif type(value) is dict:
        parts = list(value.values())
    elif _is_plain(value):
        parts = [value.__defaults__, value.__kwdefaults__, *outer_values(value).values()]
    else:
        return False
    reached.append(value)
    found = [_reads_arrays(part, reached) for part in parts]  # all, so that the list is complete
    return any(found)


def _copy(value: Any, made: dict[int, Any]) -> Any:
    """The same value with views for arrays; what reaches none is left as it is."""
    if isinstance(value, np.ndarray):
        return own(value) if type(value) is np.ndarray else value
    if id(value) in made:
        return made[id(value)]
    if not _reads_arrays(value, []):
        return value
    if type(value) in (list, tuple):
        return type(value)(_copy(part, made) for part in value)
    if type(value) is dict:
        return {name: _copy(part, made) for name, part in value.items()}
    outer, names = outer_values(value), _Names(value.__globals__)
    changed = {name for name, part in outer.items() if _reads_arrays(part, [])}
    free = value.__code__.co_freevars
    # A cell that holds no array is shared, so that a counter stays the user's own.
    cells = tuple(
        types.CellType() if name in changed else cell
        for name, cell in zip(free, value.__closure__ or ())
    )
    twin = types.FunctionType(value.__code__, names, value.__name__, None, cells or None)
    made[id(value)] = twin  # before its parts, for it may call itself
    twin.__defaults__ = _copy(value.__defaults__, made)
    twin.__kwdefaults__ = _copy(value.__kwdefaults__, made)
    twin.__dict__.update(value.__dict__)
    for name in ("__doc__", "__qualname__", "__module__", "__annotations__"):
        setattr(twin, name, getattr(value, name))
    for name in changed:
        copied = _copy(outer[name], made)
        if name in free:
            cells[free.index(name)].cell_contents = copied
        else:
            names[name] = copied
    return twin
