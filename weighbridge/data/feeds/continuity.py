"""Duplicate and missing parcels, found by their identifiers."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.base import Notice
from weighbridge.data.feeds.cursors import check_identifiers


class Continuity:
    """Tracks the identifiers of a stream, in bounded memory.

    An identifier that was seen before is a duplicate. Whole numbers should count up by one from the
    first: missing ones are a gap, and one that comes late fills it. For other identifiers the
    latest `memory` are remembered, for whole numbers this many ranges without a gap; parcels in
    older gaps are not expected any more.

    Args:
        memory: number of identifiers or ranges to remember.

    >>> continuity = Continuity()
    >>> [continuity.check(i) for i in (1, 2)]
    [(True, None), (True, None)]
    >>> continuity.check(2)[0], continuity.check(5)[1].text
    (False, 'Parcels 3 to 4 are missing: 5 came after 2.')
    """

    def __init__(self, memory: int = 10_000) -> None:
        if memory < 1:
            raise DataError(f"memory is {memory}. Remember at least one identifier.")
        self.memory = memory
        self._texts: dict[str, None] = {}  # a set in the order of arrival
        self._stretches: list[list[int]] = []  # first and last number of each, ascending

    def check(self, identifier: str | int) -> tuple[bool, Notice | None]:
        """Whether to use the parcel, and a notice about it."""
        if isinstance(identifier, str):
            seen = identifier in self._texts
            self._texts[identifier] = None
            if len(self._texts) > self.memory:
                del self._texts[next(iter(self._texts))]
            return (False, _duplicate(identifier)) if seen else (True, None)
        if isinstance(identifier, bool) or not isinstance(identifier, int):
            raise DataError(
                f"A parcel has the identifier {identifier!r}. Use text or whole numbers."
            )
        return self._check_number(identifier)

    def _check_number(self, number: int) -> tuple[bool, Notice | None]:
        stretches = self._stretches
        place = bisect.bisect_right(stretches, number, key=lambda stretch: stretch[0])
        if place and number <= stretches[place - 1][1]:
            return False, _duplicate(number)
        notice = None
        if place and place == len(stretches) and number > (last := stretches[-1][1]) + 1:
            lost = f"{last + 1} to {number - 1} are" if number > last + 2 else f"{last + 1} is"
            what = "Parcels" if number > last + 2 else "Parcel"
            notice = Notice("gap", number, f"{what} {lost} missing: {number} came after {last}.")
        stretches.insert(place, [number, number])
        for left in (place, place - 1):
            if 0 <= left < len(stretches) - 1 and stretches[left][1] + 1 == stretches[left + 1][0]:
                stretches[left][1] = stretches.pop(left + 1)[1]
        if len(stretches) > self.memory:
            stretches[0][1] = stretches.pop(1)[1]
        return True, notice

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, as JSON values."""
        return {
            "texts": list(self._texts),
            "stretches": [list(stretch) for stretch in self._stretches],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        check_identifiers(state)
        self._texts = dict.fromkeys(state["texts"])
        self._stretches = [[int(first), int(last)] for first, last in state["stretches"]]


def _duplicate(identifier: str | int) -> Notice:
    return Notice("duplicate", identifier, f"Parcel {identifier!r} came again and is left out.")
