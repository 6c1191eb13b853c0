"""What a report knows of a run: points along the rows, changes, notices and counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

# Points that a curve keeps of a run of any length, and entries that a table keeps.
BINS = 300
KEPT = 100

Numbers = dict[str, float]


class ReportedPoint(NamedTuple):
    """What was known of each model after so many rows; NaN where it was not known."""

    rows: int
    log_evidences: Numbers
    std_errors: Numbers
    probabilities: Numbers
    probability_errors: Numbers
    annealing_steps: Numbers


class ReportedChange(NamedTuple):
    """A change point: the first row after it, and how sure its detector is."""

    row: int
    score: float
    p_value: float
    model: str


class ReportedNotice(NamedTuple):
    """Something that the watch reported, and after how many rows."""

    rows: int
    kind: str
    text: str


@dataclass
class Chronicle:
    """A run as its events tell it.

    Attributes:
        models: their names, in the order of the run.
        source: where the rows come from, in words.
        seekable: whether a resumed run is exact; None if no start was recorded.
        version: of weighbridge, in the latest start.
        started: when the run first started.
        last_seen: when the latest event was written.
        stopped: why the run ended: "end", "signal", "error"; None if it has not said so.
        error: what stopped it, in the words of the error; empty if none did.
        resumed: how many times it was started again and did not begin anew.
        num_updates: updates that count, those done again once.
        points: at most ``BINS`` of them along the rows; annealing steps are the most in a bin.
        answer: the latest result as ``weighbridge watch`` prints it at its end, by a bridge where
            the method has one; points along the rows are by the path. None if none was written.
        num_changes: change points in all.
        changes: the latest of them.
        change_rows: rows of changes to mark in a figure, at most one in a bin.
        posterior: for each model and parameter the latest summary.
        posterior_rows: rows that it is of.
        rows_skipped: bad rows that were left out.
        rows_quarantined: bad rows that were put into a file.
        elapsed: seconds that the updates took.
        notice_counts: of each kind.
        notices: the latest of them.
        checkpoints: how many were written.
        last_checkpoint: the rows that the latest holds, None if there is none.
        checkpoints_failed: how many could not be written.
        last_failure: why the latest could not be.
        is_saved: whether the latest that was tried was written.
        flags: reasons for caution of each model after the latest update.
        flag_counts: updates in which each was raised, by flag and model.
        unreadable: lines that are no events.
    """

    models: list[str] = field(default_factory=list)
    source: str = ""
    seekable: bool | None = None
    version: str = ""
    started: str = ""
    last_seen: str = ""
    stopped: str | None = None
    error: str = ""
    resumed: int = -1
    num_updates: int = 0
    points: list[ReportedPoint] = field(default_factory=list)
    answer: ReportedPoint | None = None
    num_changes: int = 0
    changes: list[ReportedChange] = field(default_factory=list)
    change_rows: list[int] = field(default_factory=list)
    posterior: dict[str, dict[str, Numbers]] = field(default_factory=dict)
    posterior_rows: int = 0
    rows_skipped: int = 0
    rows_quarantined: int = 0
    elapsed: float = 0.0
    notice_counts: Counter[str] = field(default_factory=Counter)
    notices: list[ReportedNotice] = field(default_factory=list)
    checkpoints: int = 0
    last_checkpoint: int | None = None
    checkpoints_failed: int = 0
    last_failure: str = ""
    is_saved: bool = False
    flags: dict[str, list[str]] = field(default_factory=dict)
    flag_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    unreadable: int = 0

    @property
    def rows(self) -> int:
        """Rows weighed so far."""
        return self.points[-1].rows if self.points else 0
