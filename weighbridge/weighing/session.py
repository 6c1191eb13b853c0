"""A session: one model, one method and the rows so far; an update of it adds rows."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weighbridge.core.errors import DataError, MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.rollback import restored_on_error
from weighbridge.core.status import Status, gravest, is_grave
from weighbridge.core.types import PyTree
from weighbridge.data.cutting import rechunk
from weighbridge.data.fingerprint import Fingerprint
from weighbridge.data.row_checking import RowPolicy
from weighbridge.data.values import LeftOut, num_rows
from weighbridge.estimators.protocols import SequentialMethod
from weighbridge.estimators.sequential import SequentialRun, annealing_steps
from weighbridge.models.model import Model
from weighbridge.models.row_gate import Admission, QuarantineFile, nothing_to_weigh
from weighbridge.models.row_likelihood import split_weight
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.trust import stated
from weighbridge.weighing.changes.detection import Detector
from weighbridge.weighing.changes.segments import SegmentedRun
from weighbridge.weighing.changes.settings import Change, Changes

# A function that absorbs rows with their weights.
Absorb = Callable[[PyTree, np.ndarray], None]


@travels()
@dataclass(frozen=True)
class Update:
    """The result of one update of a stream.

    Attributes:
        log_evidence: of all rows seen, in nats.
        std_error: its standard error; NaN when it cannot be stated, and with a grave flag.
        log_predictive: gain of log evidence, log p(new rows | rows before). It includes
            the correction of a path that had lost mass (``Status.PATH_LOST``), if there was one.
        num_observations: number of rows seen.
        annealing_steps: for these rows, averaged over islands and summed over chunks.
        ess: effective sample size of an island, averaged over islands.
        rows_skipped: bad rows left out of this update.
        rows_quarantined: bad rows of this update that went to the quarantine file.
        flags: every reason for caution.
        elapsed: seconds that this update took.
        changes: changes of the stream detected in these rows, if detection is on.
    """

    log_evidence: float
    std_error: float
    log_predictive: float
    num_observations: int
    annealing_steps: float
    ess: float
    rows_skipped: int
    rows_quarantined: int
    flags: tuple[Status, ...]
    elapsed: float
    changes: tuple[Change, ...] = ()

    @property
    def status(self) -> Status:
        """The gravest flag, or ``Status.OK``."""
        return gravest(self.flags)

    @property
    def is_trusted(self) -> bool:
        """Whether no flag is grave: whether number and error may be used as an answer."""
        return not any(map(is_grave, self.flags))


class Session(Admission):
    """A model, a method and the rows so far, as ``evidence`` and ``Online`` both use them."""

    def __init__(
        self,
        model: Model,
        method: SequentialMethod,
        seed: int,
        on_bad_row: RowPolicy,
        first_island: int = 0,
        quarantine: QuarantineFile | None = None,
        changes: Changes | None = None,
        left_out: LeftOut | None = None,
    ) -> None:
        super().__init__(model, on_bad_row, quarantine, left_out)
        check_changes(changes)
        self.method = method
        self.run: SequentialRun
        self.detector: Detector | None = None
        if changes is None:
            self.run = method.start(model, seed=seed, first_island=first_island)
        else:
            self.detector = Detector(changes, seed)
            self.run = SegmentedRun(method, model, seed, first_island, self.detector)
        self.elapsed = 0.0
        # The fingerprint of the rows so far; None if the run had only a sample of them.
        self.fingerprint: Fingerprint | None = Fingerprint()

    @property
    def changes(self) -> list[Change]:
        """Changes detected so far."""
        return [] if self.detector is None else self.detector.found

    def chunk_after(self, rows_seen: int) -> int:
        """Number of rows of the next chunk."""
        if self.detector is None:
            return self.method.chunk_after(rows_seen, in_memory=True)
        # The false alarm rate is per chunk, so chunks must not grow.
        window = self.detector.settings.window
        return min(self.method.chunk_after(rows_seen, in_memory=False), window)

    def cut(self, rows: PyTree) -> Iterator[PyTree]:
        """Cut admitted rows into the chunks that the method asks for."""
        seen = self.run.num_rows
        return rechunk([rows], lambda taken: self.chunk_after(seen + taken))

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block that restores the session if it ends in an error or by Ctrl-C."""
        checked = self.checker.state()
        with restored_on_error(self), self.run.undoable():
            try:
                yield
            except BaseException:
                self.checker.restore(checked)
                raise

    def absorb(self, values: PyTree, by: Absorb | None = None) -> None:
        """Absorb one chunk of admitted rows, and add them to the fingerprint.

        Args:
            values: the rows.
            by: the function that absorbs rows and weights; by default ``absorb`` of the run.
        """
        began = time.perf_counter()
        absorb = self.run.absorb if by is None else by
        rows, weight = split_weight(values, bool(self.weight_counts_rows))
        absorb(rows, weight)
        if self.fingerprint is not None:
            self.fingerprint = self.fingerprint.add(rows, weight)
        self.elapsed += time.perf_counter() - began

    def result(self) -> Evidence:
        """The evidence so far."""
        if not self.run.path:
            raise DataError(nothing_to_weigh(self.checker.rows_left_out))
        found = self.run.result(self.elapsed, self.noticed())
        told = found.diagnostics | self.about_flatness(found.flags)
        return replace(found, fingerprint=self.fingerprint, diagnostics=told)


def require_rows(values: PyTree) -> None:
    """Refuse an update without rows."""
    if num_rows(values) == 0:
        raise DataError("The update has no rows. Skip it, or wait until there is one.")


def check_changes(changes: Any) -> None:
    """Refuse settings of a change detector that are not ``wb.Changes`` or None."""
    if changes is not None and not isinstance(changes, Changes):
        raise MethodError(f"changes must be a wb.Changes or None, not {changes!r}.")


def update_session(session: Session, values: PyTree) -> Update:
    """Check all rows of an update, then absorb them chunk by chunk."""
    require_rows(values)
    began = time.perf_counter()
    run, skipped = session.run, session.checker.rows_skipped
    quarantined = session.checker.rows_quarantined
    before, steps_before = (run.path[-1].log_evidence if run.path else 0.0), annealing_steps(run)
    changes_before = len(session.changes)
    with session.undoable():
        for chunk in session.cut(session.admit(values)):
            session.absorb(chunk)
    elapsed = time.perf_counter() - began
    if not run.path:
        raise DataError("Every row so far was skipped: there is nothing to weigh.")
    latest = run.path[-1]
    flags = run.flags()
    said = stated(latest.std_error, flags, session.about_flatness(flags))
    return Update(
        log_evidence=latest.log_evidence,
        std_error=said.std_error,
        log_predictive=latest.log_evidence - before,
        num_observations=round(latest.rows),
        annealing_steps=annealing_steps(run) - steps_before,
        ess=latest.ess,
        rows_skipped=session.checker.rows_skipped - skipped,
        rows_quarantined=session.checker.rows_quarantined - quarantined,
        flags=said.flags,
        elapsed=elapsed,
        changes=tuple(session.changes[changes_before:]),
    )
