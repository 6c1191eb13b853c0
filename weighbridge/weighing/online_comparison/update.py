"""The result of one update of an online comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weighbridge.core.pickling import travels
from weighbridge.core.status import Status
from weighbridge.core.tables.frames import Frame, Tabular, frame_of_models
from weighbridge.core.tables.table import Table
from weighbridge.data.feeds.base import Notice
from weighbridge.results.trust import is_decided
from weighbridge.results.wording import counted, error_or_trust, with_bound
from weighbridge.weighing.changes.settings import Change


@travels()
@dataclass(frozen=True)
class ComparisonUpdate(Tabular):
    """The result of one update of a comparison; mappings are by model name.

    Attributes:
        num_observations: number of rows seen.
        log_evidences: of all rows seen, in nats, from the path.
        std_errors: their standard errors; NaN if unknown, and with a grave flag.
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
        trust: what grave flags make of the log evidences; see ``Evidence.trust``.
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
    trust: dict[str, str] = field(default_factory=dict)

    @property
    def leader(self) -> str:
        """Name of the model with the largest log evidence, whatever its flags."""
        return max(self.log_evidences, key=self.log_evidences.__getitem__)

    @property
    def best(self) -> str | None:
        """Name of the model with the largest evidence; None if grave flags leave it undecided."""
        return self.leader if is_decided(self.leader, self.trust) else None

    def _frame(self) -> Frame:
        names = list(self.log_evidences)
        columns: dict[str, Mapping[str, float | str]] = {
            "log_evidence": self.log_evidences,
            "std_error": self.std_errors,
            "log_predictive": self.log_predictives,
            "annealing_steps": self.annealing_steps,
            "probability": self.probabilities,
            "probability_error": self.probability_errors,
            "trust": {name: self.trust.get(name, "") for name in names},
        }
        return frame_of_models(columns, names)

    def __str__(self) -> str:
        columns = ("log evidence", "+-", "log predictive", "probability")
        rows = {
            name: (
                with_bound(f"{self.log_evidences[name]:.2f}", self.trust.get(name, "")),
                error_or_trust(self.std_errors[name], self.trust.get(name, "")),
                f"{self.log_predictives[name]:.2f}",
                f"{self.probabilities[name]:.4f}",
            )
            for name in self.log_evidences
        }
        lines = [str(Table(columns, rows)), counted(self.num_observations)]
        noticed = (*(notice.text for notice in self.notices), *map(str, self.changes))
        return "\n".join([*lines, *noticed])
