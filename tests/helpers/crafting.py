"""Crafted files: what a saved file holds, changed in one place, and written with a valid digest."""

import copy
import random
from collections import Counter
from collections.abc import Iterator

import numpy as np

from weighbridge import WeighbridgeError
from weighbridge.core import checkpoint_file

NESTED = [[[[{"a": [{}]}]]]]
WRONG = {
    "null": None,
    "true": True,
    "text": "x",
    "surrogate": "\ud800",
    "minus one": -1,
    "half": 0.5,
    "huge": 10**400,
    "large": 2**62,
    "NaN": float("nan"),
    "infinite": float("inf"),
    "minus infinite": float("-inf"),
    "list": [],
    "mapping": {},
    "nested": NESTED,
}


def places(value, path=()) -> Iterator[tuple]:
    """The place of every entry of the metadata, containers too."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*path, number))


def entry_at(value, path):
    """What is at a place."""
    for step in path:
        value = value[step]
    return value


def changed(metadata, path, wrong):
    """A copy with another value at one place; without it where that is MISSING."""
    result = copy.deepcopy(metadata)
    *before, last = path
    inner = entry_at(result, before)
    if wrong == "missing":
        del inner[last]
    elif wrong == "twice":
        inner[last] = inner[last] * 2
    else:
        inner[last] = WRONG[wrong]
    return result


def array_changes(array) -> dict:
    """The same array in ways that it cannot be."""
    found = {
        "scalar": np.asarray(array.reshape(-1)[:1].sum() if array.size else 0.0),
        "empty": array[:0] if array.ndim else np.zeros(0),
        "longer": np.concatenate([array, array]) if array.ndim else np.stack([array, array]),
        "one more axis": array[..., None],
        "single precision": array.astype(np.float32),
        "whole": np.nan_to_num(array).astype(np.int32),
        "truths": array.astype(bool),
    }
    if array.size:
        values = {"f": (np.nan, np.inf, -np.inf, -1.0, 1e300), "i": (-1, 2**62), "u": (255,)}
        for value in values.get(array.dtype.kind, ()):
            other = np.array(array)
            other.reshape(-1)[-1] = value
            found[f"last is {value}"] = other
    return found


def crafted(arrays, metadata) -> Iterator[tuple[str, tuple]]:
    """The kind of every change, and how to make it."""
    for path in places(metadata):
        for wrong in (*WRONG, "missing"):
            yield f"entry: {wrong}", (path, wrong)
        if isinstance(entry_at(metadata, path), list):
            yield "entry: twice", (path, "twice")
    for name in arrays:
        yield "array: missing", (name, "missing")
        for kind in array_changes(arrays[name]):
            yield f"array: {kind}", (name, kind)


def apply(arrays, metadata, change):
    """Arrays and metadata after a change."""
    place, what = change
    if isinstance(place, tuple):
        return arrays, changed(metadata, place, what)
    if what == "missing":
        return {name: array for name, array in arrays.items() if name != place}, metadata
    return {**arrays, place: array_changes(arrays[place])[what]}, metadata


class Outcome(Counter):
    """How many crafted files were refused, and how many taken, by kind of change."""

    @property
    def total(self):
        return sum(self.values())


def attack(original, path, load, judge, count=None, seed=0) -> Outcome:
    """Load crafted files; each must be refused by a typed error, or be a valid object.

    Args:
        original: a file as it was saved.
        path: where to write.
        load: from a path to an object.
        judge: looks at an object that was loaded, and complains.
        count: so many, drawn at random; all if None.
        seed: of them.
    """
    arrays, metadata = checkpoint_file.read(original, None)
    schema = schema_of(original)
    changes = list(crafted(arrays, metadata))
    if count is not None:
        changes = random.Random(seed).sample(changes, min(count, len(changes)))
    outcome = Outcome()
    for kind, change in changes:
        made = apply(arrays, metadata, change)
        checkpoint_file.write(path, schema, *made)
        try:
            with np.errstate(all="ignore"):  # of 1e300 and the like, which are numbers
                loaded = load(path)
        except WeighbridgeError:
            outcome[kind, "refused"] += 1
        except Exception as error:
            raise AssertionError(f"{change} raised {error!r}") from error
        else:
            outcome[kind, "taken"] += 1
            try:
                with np.errstate(all="ignore"):
                    judge(loaded)
            except Exception as error:
                raise AssertionError(f"{change} was taken, and then {error!r}") from error
    return outcome


def schema_of(path):
    from safetensors import safe_open

    with safe_open(str(path), framework="numpy") as file:
        return file.metadata()["schema"]
