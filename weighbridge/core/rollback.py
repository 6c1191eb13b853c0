"""Taking back what was done to an object when it ends in an error, without a copy of it all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def restored_on_error(thing: Any) -> Iterator[None]:
    """A block after which, if it ends in an error, all attributes of an object are as before.

    Attributes that are lists and dicts may be changed within; other values may only be replaced.

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
        for value, entries in held:  # in place: others may share it
            value.clear()
            if isinstance(value, list):
                value.extend(entries)
            else:
                value.update(entries)
        raise
