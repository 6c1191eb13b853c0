"""Replace arrays that a user's functions read from outside by views.

For the reason see ``core.compilation.own``.
"""

from __future__ import annotations

import types
import weakref
from typing import Any, TypeVar

import numpy as np

from weighbridge.core.compilation import own
from weighbridge.models.program_text import is_library, outer_values, writes_outside

Function = TypeVar("Function")

# The same function gives the same copy, so that a second model of the same form compiles nothing,
# as long as the function reads the same objects. These objects are stored with each copy.
_KNOWN: weakref.WeakKeyDictionary[Any, tuple[Any, list[Any]]] = weakref.WeakKeyDictionary()


def with_own_arrays(function: Function) -> Function:
    """The same function, reading views of the arrays that it takes from outside.

    Arrays are searched in its closure, among the global names that it reads and in its defaults,
    also inside lists, tuples and dicts, and in other functions that it calls. The views are made
    now: if a name is bound to another array later, the function does not see it. Arrays that are
    attributes of an object are not found.

    Args:
        function: any callable; a function that reads no arrays is returned unchanged.

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
    del reached[0]  # the function itself: a reference to it would keep it alive
    twin, made_of = _KNOWN.get(function, (None, []))
    same = len(reached) == len(made_of) and all(new is old for new, old in zip(reached, made_of))
    if twin is None or not same:
        twin = _copy(function, {})
        _KNOWN[function] = twin, reached
    return twin  # type: ignore[no-any-return]


class _Names(dict[str, Any]):
    """Some global names with new values; all others are looked up in the original namespace."""

    def __init__(self, elsewhere: dict[str, Any]) -> None:
        # Python reads this name without calling __missing__.
        super().__init__(__builtins__=elsewhere.get("__builtins__", __builtins__))
        self.elsewhere = elsewhere

    def __missing__(self, name: str) -> Any:
        return self.elsewhere[name]


def _is_plain(value: Any) -> bool:
    """Whether it is a Python function of the user, which can be copied.

    A function that binds global names is not copied: its copy would bind them elsewhere.
    """
    if not isinstance(value, types.FunctionType) or is_library(value):
        return False
    ours = str(value.__module__).split(".")[0] == "weighbridge"
    return not ours and not writes_outside(value)


def _reads_arrays(value: Any, reached: list[Any]) -> bool:
    """Whether an array can be reached from here; all objects on the way are added to the list."""
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
    """The same value with views in place of arrays; values without arrays are unchanged."""
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
    # A cell without an array is shared, so that a counter of the user still works.
    cells = tuple(
        types.CellType() if name in changed else cell
        for name, cell in zip(free, value.__closure__ or ())
    )
    twin = types.FunctionType(value.__code__, names, value.__name__, None, cells or None)
    made[id(value)] = twin  # before its parts, because it may call itself
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
