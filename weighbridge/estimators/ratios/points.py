"""The point at which parameters of a model are held: which entries, and at which values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.models.model import Model

# For each parameter: which of its entries are held, and their values (zero elsewhere).
Point = dict[str, tuple[np.ndarray, np.ndarray]]

_ENTRY = re.compile(r"^(?P<name>.+)\[(?P<index>[-\d, ]+)\]$")


def read_point(model: Model, given: Mapping[str, Any]) -> Point:
    """The entries that a user names, checked against the shapes of the model.

    Args:
        model: the model.
        given: for each parameter a value of its shape (or one number for all entries), or a
            mapping from an entry's index to its value. ``{"w[2]": 0.0}`` is ``{"w": {2: 0.0}}``.

    >>> import numpyro.distributions as dist
    >>> model = Model({"w": dist.Normal(0, 1).expand([3]).to_event(1)}, lambda p, y: y * p["w"][0])
    >>> held, values = read_point(model, {"w[2]": 0.5})["w"]
    >>> held.tolist(), values.tolist()
    ([False, False, True], [0.0, 0.0, 0.5])
    """
    if not isinstance(given, Mapping) or not given:
        raise MethodError(
            "The point must be a mapping from parameters to values, with at least one, as in "
            f'{{"beta": 0.0}}, not {given!r}.'
        )
    shapes = {site.name: site.shape for site in model.sites}
    found: Point = {}
    for key, value in given.items():
        name, entries = _entries_of(str(key), value, shapes)
        held, values = found.setdefault(
            name, (np.zeros(shapes[name], bool), np.zeros(shapes[name]))
        )
        for index, number in entries.items():
            if held[index].any():
                raise MethodError(f"The point names an entry of {name!r} twice.")
            held[index], values[index] = True, number
        if not np.isfinite(values).all():
            raise MethodError(f"The point has {name!r} = {value!r}: it must be finite.")
    return found


def describe_point(point: Point) -> str:
    """The point in words, for names of models.

    >>> held = np.array([False, True])
    >>> describe_point({"s": (np.array(True), np.array(1.0)), "w": (held, np.zeros(2))})
    's = 1, w[1] = 0'
    """
    texts = []
    for name, (held, values) in point.items():
        if held.all() and np.ptp(values) == 0:
            texts.append(f"{name} = {values.flat[0]:g}")
        else:
            for index in np.argwhere(held):
                place = ",".join(map(str, index))
                texts.append(f"{name}[{place}] = {values[tuple(index)]:g}")
    return ", ".join(texts) if len(texts) <= 4 else ", ".join([*texts[:3], "..."])


def _entries_of(
    key: str, value: Any, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[str, dict[Any, Any]]:
    """The name of the parameter, and its entries: index to value; (...) is all of them."""
    match = _ENTRY.match(key)
    if key not in shapes and match is not None:
        key, value = match["name"], {match["index"]: value}
    if key not in shapes:
        raise MethodError(f"The point names {key!r}; the model has {list(shapes)}.")
    shape = shapes[key]
    entries = dict(value) if isinstance(value, Mapping) else {...: value}
    if not entries:
        raise MethodError(f"The point names no entry of {key!r}.")
    found: dict[Any, Any] = {}
    for index, number in entries.items():
        try:
            array = np.asarray(number, float)
        except (TypeError, ValueError) as error:
            raise MethodError(f"The point has {key!r} = {number!r}: not a number.") from error
        if index is ...:
            if array.shape not in ((), shape):
                raise MethodError(
                    f"The point has {key!r} with shape {array.shape}; the parameter has {shape}."
                )
            found[...] = array
            continue
        place = _place(key, index, shape)
        if array.shape != ():
            raise MethodError(f"The entry {index} of {key!r} must be one number, not {number!r}.")
        found[place] = array
    return key, found


def _place(name: str, index: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    parts = index.split(",") if isinstance(index, str) else np.atleast_1d(index).tolist()
    try:
        place = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        place = ()
    inside = all(-size <= k < size for k, size in zip(place, shape))
    if len(place) != len(shape) or not place or not inside:
        raise MethodError(f"{name!r} has shape {shape}: it has no entry {index!r}.")
    return tuple(k % size for k, size in zip(place, shape))
