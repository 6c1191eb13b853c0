"""Changes of a stream: how they are looked for, and what is known of one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import travels

Policy = Literal["keep", "restart"]
POLICIES = ("keep", "restart")
# Rates that can be asked for.
LEAST_RATE, LARGEST_RATE = 1e-9, 0.1


@travels()
@dataclass(frozen=True)
class Changes:
    """How changes of a stream are looked for, and what is done about them.

    Before a chunk is absorbed its rows are tested against the rows since the last change. Rows
    must be exchangeable while nothing changes: for a series whose neighbours resemble each other
    use a model that takes its past as columns (``wb.lagged``), or the resemblance is found.

    Args:
        false_alarm_rate: probability that a chunk raises an alarm while nothing changes.
        policy: "keep" reports changes and goes on; "restart" starts anew from the prior at each.
        window: the most recent rows that a chunk is compared with; chunks are not larger either.
        min_rows: fewest of them; the ten-fold of a model's dimension if that is more.
        compete: whether, in a comparison, "the world changed here" becomes a model of its own.
        changes_per_row: prior probability of a change at a row, for models that compete so.
        max_competitors: the most such models; the least probable goes.

    >>> Changes(false_alarm_rate=1e-4, policy="restart").window
    2000
    """

    false_alarm_rate: float = 1e-3
    policy: Policy = "keep"
    window: int = 2000
    min_rows: int = 50
    compete: bool = False
    changes_per_row: float = 1e-4
    max_competitors: int = 3

    def __post_init__(self) -> None:
        for name in ("false_alarm_rate", "changes_per_row"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not LEAST_RATE <= value <= LARGEST_RATE:
                raise MethodError(
                    f"{name} must lie between {LEAST_RATE} and {LARGEST_RATE}, not {value!r}."
                )
        if self.policy not in POLICIES:
            raise MethodError(f"policy is {self.policy!r}; it must be one of {list(POLICIES)}.")
        for name, least in (("window", 2), ("min_rows", 2), ("max_competitors", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise MethodError(
                    f"{name} must be a whole number of {least} or more, not {value!r}."
                )
        if self.min_rows > self.window:
            raise MethodError(
                f"min_rows is {self.min_rows} and window {self.window}: so many rows are never "
                "kept. Raise window."
            )
        if self.compete and self.policy != "keep":
            raise MethodError(
                "compete=True weighs the changed world against the unchanged one, which "
                f'policy={self.policy!r} gives up. Use policy="keep" with it.'
            )


@travels()
@dataclass(frozen=True)
class Change:
    """A change of the world that a stream has shown.

    Attributes:
        row: the first row after the change, as near as it can be told within its chunk.
        p_value: of the chunk, if nothing had changed.
        score: log predictive density of a row from there on, minus that of the rows before, in
            nats on average; below 0 the new rows are less expected than the old ones, above more.
        seen_in: what gave it away, "log predictive" or "parameters".
        chunk_start: the first row of the chunk that was tested.
        chunk_end: the row after its last.
        annealing_steps: that the chunk took, relative to the median of the chunks before; NaN
            where a fresh run took it.
        model: the model that found it, in a comparison.
    """

    row: int
    p_value: float
    score: float
    seen_in: str
    chunk_start: int
    chunk_end: int
    annealing_steps: float = math.nan
    model: str = ""

    def plain(self) -> dict[str, Any]:
        """Its entries, for a file."""
        return asdict(self)

    @staticmethod
    def from_plain(entries: Mapping[str, Any]) -> Change:
        """A change from what ``plain`` gave."""
        whole = ("row", "chunk_start", "chunk_end")
        texts = ("seen_in", "model")
        kinds: dict[str, type] = {**dict.fromkeys(whole, int), **dict.fromkeys(texts, str)}
        return Change(**{name: kinds.get(name, float)(value) for name, value in entries.items()})

    def __str__(self) -> str:
        by = f" by {self.model}" if self.model else ""
        return (
            f"change at row {self.row:,} (p = {self.p_value:.1g}, {self.score:+.2f} nats a row, "
            f"seen in the {self.seen_in}{by})"
        )
