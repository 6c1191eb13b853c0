"""Undo changes to an object after an error, without copying the whole object."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def restored_on_error(thing: Any) -> Iterator[None]:
    """A block that restores all attributes of an object if the block ends in an error.

    Attributes that are lists or dicts may be changed in place; other values may only be replaced.

    >>> class Counter: total, seen = 0, [1]
    >>> counter = Counter(); counter.seen = [1]
    >>> with contextlib.suppress(ValueError), restored_on_error(counter):
    ...     counter.seen.append(2); counter.total = 5
    ...     raise ValueError
    >>> counter.seen, counter.total
    ([1], 0)
    """
    before = dict(vars(thing))
    held = [(value, value.copy()) for value in before.values() if isinstance(value, list | dict)]
    try:
        yield
    except BaseException:
        vars(thing).clear()
        vars(thing).update(before)
        for value, entries in held:  # in place: other objects may share it
            value.clear()
            if isinstance(value, list):
                value.extend(entries)
            else:
                value.update(entries)
        raise
