"""What an attack is, and what can come of it."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Came(enum.StrEnum):
    """What came of an attack: the first three are as it should be, the others are faults."""

    RIGHT = "right answer"
    NOTICE = "notice"
    REFUSED = "typed error"
    UNTYPED = "FAULT: untyped error"
    DIED = "FAULT: process died"
    HANG = "FAULT: hang"
    MEMORY = "FAULT: memory"
    LOST = "FAULT: rows lost without a word"
    TWICE = "FAULT: rows counted twice"
    DIFFERENT = "FAULT: other numbers"
    STOPPED = "FAULT: stopped by what it should set aside"
    SILENT = "FAULT: not told"

    @property
    def is_fault(self) -> bool:
        """Whether this must not be."""
        return self.value.startswith("FAULT")


class Verdict(NamedTuple):
    """What came of one attack, with a word on how."""

    came: Came
    detail: str = ""


class Place(NamedTuple):
    """Where an attack does its work: an empty folder, and random numbers of its own."""

    folder: Path
    luck: random.Random


@dataclass(frozen=True)
class Kind:
    """A kind of attack.

    Attributes:
        family: what is attacked.
        name: how.
        attack: makes the attack and judges it; a typed error that it lets pass is
            ``Came.REFUSED``, any other error ``Came.UNTYPED``.
        times: how many are tried, each with a seed of its own.
        seconds: of the processor after which it hangs, or five times as many by the clock.
        mebibytes: that it may take beyond what the process had before.
        fresh: whether it wants a process that nothing was done in before.
    """

    family: str
    name: str
    attack: Callable[[Place], Verdict]
    times: int
    seconds: float = 60.0
    mebibytes: float = 400.0
    fresh: bool = False

    @property
    def key(self) -> str:
        """What the kind is called."""
        return f"{self.family}: {self.name}"


def gravest(verdicts: list[Verdict]) -> Verdict:
    """The worst of several: a fault before all others, then an error, then a notice."""
    order = [*[came for came in Came if came.is_fault], Came.REFUSED, Came.NOTICE, Came.RIGHT]
    return min(verdicts, key=lambda verdict: order.index(verdict.came))
