"""The data of a report: points along the rows, changes, notices and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

# Most points of a curve, and most entries of a table.
BINS = 300
KEPT = 100

Numbers = dict[str, float]


class ReportedPoint(NamedTuple):
    """The numbers of each model after so many rows; NaN where a number is unknown.

    ``trust`` says what grave flags make of the log evidences.
    """

    rows: int
    log_evidences: Numbers
    std_errors: Numbers
    probabilities: Numbers
    probability_errors: Numbers
    annealing_steps: Numbers
    trust: Mapping[str, str] = MappingProxyType({})


class ReportedChange(NamedTuple):
    """A change point: first row after it, score, p-value, and the model that found it."""

    row: int
    score: float
    p_value: float
    model: str


class ReportedNotice(NamedTuple):
    """A notice of the watch, and the number of rows before it."""

    rows: int
    kind: str
    text: str


@dataclass
class Chronicle:
    """Summary of a run, made from its events.

    Attributes:
        models: names of the models, in the order of the run.
        source: description of the source of the rows.
        seekable: whether a resumed run is exact; None if no start was recorded.
        version: version of weighbridge at the latest start.
        started: time of the first start.
        last_seen: time of the latest event.
        stopped: why the run ended: "end", "signal", "error"; None if no stop was recorded.
        error: message of the error that stopped the run; empty if there was none.
        resumed: how many times the run was resumed.
        num_updates: number of updates; repeated updates count once.
        points: at most ``BINS`` points along the rows; annealing steps are the maximum of a bin.
        answer: the latest result as ``weighbridge watch`` prints it at its end, from a bridge if
            the method has one; ``points`` are from the path. None if no result was written.
        num_changes: number of change points.
        changes: the latest change points.
        change_rows: rows of changes to mark in a figure, at most one in a bin.
        posterior: the latest summary, by model and parameter.
        posterior_rows: number of rows in this summary.
        rows_skipped: number of bad rows that were left out.
        rows_quarantined: number of bad rows that were written to a file.
        elapsed: seconds that the updates took.
        notice_counts: number of notices by kind.
        notices: the latest notices.
        checkpoints: number of checkpoints that were written.
        last_checkpoint: number of rows in the latest checkpoint; None if there is none.
        checkpoints_failed: number of checkpoints that could not be written.
        last_failure: why the latest of these could not be written.
        is_saved: whether the latest attempt to write a checkpoint succeeded.
        flags: flags of each model after the latest update.
        flag_counts: number of updates with a flag, by flag and model.
        unreadable: number of lines that are not events.
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
        """Number of rows so far."""
        return self.points[-1].rows if self.points else 0
