"""The result of one update of an online comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weighbridge.core.pickling import travels
from weighbridge.core.status import Status
from weighbridge.core.tables.frames import Frame, Tabular, frame_of_models
from weighbridge.core.tables.table import Table
from weighbridge.data.feeds.base import Notice
from weighbridge.results.wording import counted
from weighbridge.weighing.changes.settings import Change


@travels()
@dataclass(frozen=True)
class ComparisonUpdate(Tabular):
    """The result of one update of a comparison; mappings are by model name.

    Attributes:
        num_observations: number of rows seen.
        log_evidences: of all rows seen, in nats, from the path.
        std_errors: their standard errors; NaN if unknown.
        log_predictives: gain of log evidence, log p(new rows | rows before); see ``Update``.
        annealing_steps: for these rows, averaged over islands and summed over chunks.
        probabilities: posterior probability of each model.
        probability_errors: its standard deviation under the errors of the log evidences.
        rows_skipped: bad rows left out of this update.
        rows_quarantined: bad rows of this update that went to the quarantine file.
        flags: all reasons for caution, for each model.
        elapsed: seconds that this update took.
        notices: remarks about the identifier of the rows: that these rows came before, and were
            therefore not absorbed, or that other rows are missing.
        changes: changes of the stream detected in these rows, if detection is on.
    """

    num_observations: int
    log_evidences: dict[str, float]
    std_errors: dict[str, float]
    log_predictives: dict[str, float]
    annealing_steps: dict[str, float]
    probabilities: dict[str, float]
    probability_errors: dict[str, float]
    rows_skipped: int
    rows_quarantined: int
    flags: dict[str, tuple[Status, ...]]
    elapsed: float
    notices: tuple[Notice, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def best(self) -> str:
        """Name of the model with the largest evidence."""
        return max(self.log_evidences, key=self.log_evidences.__getitem__)

    def _frame(self) -> Frame:
        names = list(self.log_evidences)
        columns: dict[str, Mapping[str, float | str]] = {
            "log_evidence": self.log_evidences,
            "std_error": self.std_errors,
            "log_predictive": self.log_predictives,
            "annealing_steps": self.annealing_steps,
            "probability": self.probabilities,
            "probability_error": self.probability_errors,
        }
        return frame_of_models(columns, names)

    def __str__(self) -> str:
        columns = ("log evidence", "+-", "log predictive", "probability")
        rows = {
            name: (
                f"{self.log_evidences[name]:.2f}",
                f"{self.std_errors[name]:.2g}",
                f"{self.log_predictives[name]:.2f}",
                f"{self.probabilities[name]:.4f}",
            )
            for name in self.log_evidences
        }
        lines = [str(Table(columns, rows)), counted(self.num_observations)]
        noticed = (*(notice.text for notice in self.notices), *map(str, self.changes))
        return "\n".join([*lines, *noticed])
