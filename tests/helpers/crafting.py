"""Crafted files: a saved file with one entry changed, written with a valid digest."""

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
    """The path to every entry of the metadata, containers included."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*path, number))


def entry_at(value, path):
    """The entry at a path."""
    for step in path:
        value = value[step]
    return value


def changed(metadata, path, wrong):
    """A copy with one entry replaced, repeated ("twice") or removed ("missing")."""
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
    """Invalid versions of an array, by the kind of change."""
    found = {
        "scalar": np.asarray(array.reshape(-1)[:1].sum() if array.size else 0.0),
        "empty": array[:0] if array.ndim else np.zeros(0),
        "longer": np.concatenate([array, array]) if array.ndim else np.stack([array, array]),
        "one more axis": array[..., None],
        "single precision": array.astype(np.float32),
        "whole": np.nan_to_num(array, neginf=0.0, posinf=0.0).astype(np.int32),
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
    """All changes: the kind of each, and the arguments that make it."""
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
    """The numbers of crafted files that were refused and accepted, by kind of change."""

    @property
    def total(self):
        return sum(self.values())


def attack(original, path, load, judge, count=None, seed=0) -> Outcome:
    """Load crafted files; each must be refused by a typed error, or be a valid object.

    Args:
        original: a valid saved file.
        path: where to write the crafted files.
        load: a function from a path to an object.
        judge: a function that raises an error for an invalid object.
        count: number of changes, drawn at random; None for all of them.
        seed: of the random choice.
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
            with np.errstate(all="ignore"):  # 1e300 and the like may overflow
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
