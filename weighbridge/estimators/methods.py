"""Methods by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from weighbridge.base import MethodError
from weighbridge.estimators.sgais import SGAIS

METHODS: dict[str, Callable[[], SGAIS]] = {
    "auto": SGAIS,
    "sgais": SGAIS,
    "published": SGAIS.published,
}


def resolve(method: str | SGAIS) -> SGAIS:
    """A method object from its name, or the object itself.

    >>> resolve("published").num_particles
    10
    """
    if isinstance(method, SGAIS):
        return method
    if not isinstance(method, str):
        raise MethodError(f"method must be a name or a method object (SGAIS()), not {method!r}.")
    if method not in METHODS:
        nearest = difflib.get_close_matches(method, METHODS, n=1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise MethodError(f"There is no method {method!r}; there are {list(METHODS)}.{hint}")
    return METHODS[method]()
