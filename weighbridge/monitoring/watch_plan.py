"""What a watch is asked to do, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, Protocol

from weighbridge.core.checks import check_count, check_seed
from weighbridge.core.pickling import travels
from weighbridge.core.types import PyTree
from weighbridge.data.row_checking import RowPolicy
from weighbridge.estimators.registry import Method
from weighbridge.models.model import Model
from weighbridge.weighing.changes.settings import Changes
from weighbridge.weighing.comparison import Comparison

Reason = Literal["end", "signal", "error"]


@dataclass(frozen=True)
class Plan:
    """The models of a watch and their settings; a resumed watch must have the same plan.

    Args:
        models: ``wb.Model`` by name.
        method: a method object, or its name.
        seed: the same seed and the same rows give the same numbers.
        chunk_size: rows in each update.
        prior_odds: prior weight of each model; equal by default.
        changes: settings of the change detector; None switches it off.
        on_bad_row: "raise" stops the watch; "skip" leaves bad rows out and counts them;
            "quarantine" also writes them to a file in the run directory.
    """

    models: Mapping[str, Model]
    method: str | Method = "auto"
    seed: int = 0
    chunk_size: int = 500
    prior_odds: Mapping[str, float] | None = None
    changes: Changes | None = None
    on_bad_row: RowPolicy = "raise"

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_count("chunk_size", self.chunk_size)

    def settings(self) -> dict[str, Any]:
        """The settings that affect the numbers, besides the models and the method."""
        changes = None if self.changes is None else asdict(self.changes)
        return {"seed": self.seed, "chunk_size": self.chunk_size, "changes": changes}


@dataclass(frozen=True)
class Keeping:
    """When checkpoints are written, and how many of them are kept.

    Args:
        keep: how many checkpoints to keep.
        every_rows: rows after which the next checkpoint is due; None: rows do not matter.
        every_seconds: seconds after which the next checkpoint is due; None: time does not matter.
    """

    keep: int = 3
    every_rows: int | None = None
    every_seconds: float | None = 60.0


class RowPreparation(Protocol):
    """A transformation of rows before the models get them; it may remember earlier rows."""

    def __call__(self, values: PyTree) -> PyTree:
        """The rows for the models, made from the rows of the source."""
        ...

    def state(self) -> Any:
        """The remembered rows, as plain JSON."""
        ...

    def restore(self, state: Any) -> None:
        """Continue from a saved ``state``."""
        ...


@travels()
class Watched(NamedTuple):
    """How a watch ended.

    Attributes:
        reason: "end": the rows have ended; "signal": the watch was stopped.
        rows: number of rows in total, including those before a resume.
        comparison: the comparison of the models, with their posteriors; None without rows.
        saved_rows: rows in the last checkpoint, from which a new start continues.
        problem: why the last checkpoint could not be written; empty if it was written.
    """

    reason: Reason
    rows: int
    comparison: Comparison | None
    saved_rows: int = 0
    problem: str = ""
