"""Changes of a stream: the settings of their detection, and the record of one change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import travels

Policy = Literal["keep", "restart"]
POLICIES = ("keep", "restart")
# The range of rates that users may choose.
LEAST_RATE, LARGEST_RATE = 1e-9, 0.1


@travels()
@dataclass(frozen=True)
class Changes:
    """How changes of a stream are detected, and what is done about them.

    Before a chunk is absorbed, its rows are tested against the rows since the last change. The
    test assumes that rows are exchangeable while nothing changes. For a time series with
    correlated neighbours use a model that takes past values as columns (``wb.lagged``); otherwise
    the correlation is reported as changes.

    Args:
        false_alarm_rate: probability that a chunk raises an alarm while nothing changes.
        policy: "keep" reports a change and continues; "restart" starts again from the prior.
        window: number of recent rows that a chunk is compared with; chunks are not larger either.
        min_rows: fewest rows to compare with, or ten times the model's dimension if that is more;
            never more than ``window``.
        compete: whether, in a comparison, a change adds a competitor: the model that found it,
            started again at the change.
        changes_per_row: prior probability of a change at a row, for these competitors.
        max_competitors: the largest number of them; beyond it the least probable is removed.

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
                f"min_rows is {self.min_rows}, but window is {self.window}: so many rows are "
                "never kept. Raise window, or lower min_rows."
            )
        if self.compete and self.policy != "keep":
            raise MethodError(
                "compete=True compares a model that continues at a change with one that starts "
                f'again there, and policy={self.policy!r} has only the second. Use policy="keep".'
            )


@travels()
@dataclass(frozen=True)
class Change:
    """A change that was detected in a stream.

    Attributes:
        row: the first row after the change, as estimated within the tested chunk.
        p_value: p-value of the chunk under the hypothesis of no change.
        score: mean log predictive density of the rows after the change, minus that of the rows
            before, in nats; if it is negative the new rows are less expected than the old ones.
        seen_in: the statistic that shows the change, "log predictive" or "parameters".
        chunk_start: the first row of the chunk that was tested.
        chunk_end: the row after its last row.
        annealing_steps: annealing steps of the chunk, divided by the median of the chunks before;
            NaN if a fresh run absorbed it.
        model: in a comparison, the model that found the change.
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
        """The fields as plain values, for a file."""
        return asdict(self)

    @staticmethod
    def from_plain(entries: Mapping[str, Any]) -> Change:
        """The change from the result of ``plain``."""
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
