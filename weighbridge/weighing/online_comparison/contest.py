"""Several models on the same rows: one check of the rows for all, and all models in step.

A contest may have a detector of changes. The leading model then tests each chunk for all models.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core.rollback import restored_on_error
from weighbridge.core.threads import in_threads
from weighbridge.core.types import PyTree
from weighbridge.data.cutting import rechunk
from weighbridge.data.feeds.base import Notice
from weighbridge.data.feeds.continuity import Continuity
from weighbridge.data.quarantine import Unread
from weighbridge.data.row_checking import RowChecker, RowPolicy
from weighbridge.data.values import TableReader, num_rows
from weighbridge.estimators.registry import Method, resolve_sequential
from weighbridge.estimators.sequential import annealing_steps
from weighbridge.models.model import Model
from weighbridge.models.row_likelihood import split_weight
from weighbridge.weighing.changes.detection import Detector
from weighbridge.weighing.changes.segments import SegmentedRun
from weighbridge.weighing.changes.settings import Change, Changes
from weighbridge.weighing.session import Session, require_rows


class Taken(NamedTuple):
    """The outcome of taking some rows.

    Attributes:
        annealing_steps: annealing steps of each model.
        rows_skipped: number of bad rows that were left out.
        rows_quarantined: number of bad rows that were written to the quarantine file.
        is_new: whether the rows were absorbed; False if their identifier had been seen before.
        notices: remarks about their identifier.
    """

    annealing_steps: dict[str, float]
    rows_skipped: int
    rows_quarantined: int
    is_new: bool
    notices: tuple[Notice, ...]


class Contest:
    """Runs of several models on the same rows, with or without a common detector of changes.

    With a detector, the model that leads before a chunk tests the chunk. There is one test for
    each chunk, and past rows alone decide which model tests it. So the false alarm rate is the
    stated one for any number of models. The other models need not confirm a change: a model that
    fits badly may not notice it.

    With the policy "restart" all models start again at the same row, so that they stay comparable.
    With ``compete`` the model that found the change continues, and a copy of it joins that starts
    again at the change. The evidence of the copy includes the rows before the change.

    Args:
        seed: the seed of every run, and of the test.
        on_bad_row: what to do with rows that one of the models cannot use.
        quarantine: the quarantine file.
        changes: how to detect changes; None: no detection.
        leader: returns the name of the leading model.

    Attributes:
        sessions: the session of each model.
        detector: the detector of changes; None without detection.
        parents: for each model that started again at a change, the user's model it is a copy of.
        rows_tested: number of rows that the detector has seen.
    """

    def __init__(
        self,
        seed: int,
        on_bad_row: RowPolicy,
        quarantine: str | Path | None,
        changes: Changes | None,
        leader: Callable[[], str],
    ) -> None:
        self.seed, self.leader = seed, leader
        self.sessions: dict[str, Session] = {}
        self.detector = None if changes is None else Detector(changes, seed)
        self.parents: dict[str, str] = {}
        self.rows_tested = 0
        self.checker = RowChecker(on_bad_row, self._check_rows, quarantine, self._columns_read)
        self.continuity = Continuity()
        self.reader = TableReader()

    def begin(self, model: Model, method: str | Method) -> Session:
        """A session without rows, with the common row checker; it is not yet in the contest."""
        chosen, left_out = resolve_sequential(method), self.reader.left_out
        session = Session(model, chosen, self.seed, "raise", left_out=left_out)
        session.checker = self.checker
        if self.detector is not None:
            session.run = SegmentedRun(chosen, model, self.seed)
        return session

    def take(
        self, data: Any, identifier: str | int | None, unread: Mapping[int, Unread] | None = None
    ) -> Taken:
        """Check rows for all models and absorb them; after an error all models are unchanged.

        Args:
            data: the rows.
            identifier: identifier of these rows; see `Continuity`.
            unread: the rows that could not be read, and why.
        """
        read = self.checker.rows_read
        self.checker.unread = {read + row: why for row, why in (unread or {}).items()}
        skipped, quarantined = self.checker.rows_skipped, self.checker.rows_quarantined
        steps = dict.fromkeys(self.sessions, 0.0)
        is_new, notice = True, None
        with self.undoable():
            values = self.reader(data)
            require_rows(values)
            if identifier is not None:
                is_new, notice = self.continuity.check(identifier)
            if is_new and num_rows(rows := self._admit(values)):
                steps = self.absorb(rows)
        return Taken(
            steps,
            self.checker.rows_skipped - skipped,
            self.checker.rows_quarantined - quarantined,
            is_new,
            (notice,) if notice else (),
        )

    def absorb(self, rows: PyTree) -> dict[str, float]:
        """Absorb checked rows into every model; return the annealing steps of each model."""
        if self.detector is None:
            return in_threads(partial(_absorb, rows=rows), self.sessions, expected_work)
        steps = dict.fromkeys(self.sessions, 0.0)
        for chunk in rechunk([rows], self._chunk_sizes(self.detector)):
            for name, taken in self._absorb_tested(self.detector, chunk).items():
                steps[name] = steps.get(name, 0.0) + taken
        return steps

    # --- detecting changes ----------------------------------------------------------------------

    def _chunk_sizes(self, detector: Detector) -> Callable[[int], int]:
        """A function from the rows taken of an update to the rows of the next chunk, for all."""
        seen, window = self.rows_tested, detector.settings.window

        def size_after(taken: int) -> int:
            sizes = (
                session.method.chunk_after(seen + taken, in_memory=False)
                for session in self.sessions.values()
            )
            return min(window, *sizes)

        return size_after

    def _absorb_tested(self, detector: Detector, chunk: PyTree) -> dict[str, float]:
        """Test a chunk with the leading model, absorb it into all models; return their steps."""
        leader, ones = self.leader(), np.ones(num_rows(chunk))
        session = self.sessions[leader]
        run, counts_rows = _segments(session), bool(session.weight_counts_rows)
        judge = run.judge()._replace(counts_rows=counts_rows)
        change = detector.examine(judge, chunk, ones, self.rows_tested)
        if change is None:
            steps = in_threads(
                partial(_take, chunk=chunk, first=None), self.sessions, expected_work
            )
            detector.note(chunk, ones, steps[leader], None)
        else:
            anew = detector.settings.policy == "restart"
            first = change.row - change.chunk_start
            competitor = run.fork() if detector.settings.compete else None
            restart_at = first if anew else None
            steps = in_threads(
                partial(_take, chunk=chunk, first=restart_at), self.sessions, expected_work
            )
            if competitor is not None:
                competitor.restart(*split_weight(chunk, counts_rows), first)
                parent = self.parents.get(leader, leader)
                self.join(f"{leader} | changed at {change.row}", parent, competitor)
            found = replace(change, model=leader)
            detector.note(chunk, ones, math.nan if anew else steps[leader], found)
        self.rows_tested += num_rows(chunk)
        return steps

    def changes(self) -> list[Change]:
        """Changes of the stream detected so far."""
        return [] if self.detector is None else list(self.detector.found)

    def join(self, name: str, parent: str, run: SegmentedRun | None = None) -> None:
        """Add a copy of a model that starts again at a change; the original stays.

        Args:
            name: name of the copy.
            parent: name of the user's model that it is a copy of.
            run: the run of the copy; by default a run without rows.
        """
        elder = self.sessions[parent]
        method: Any = elder.method
        session = self.begin(elder.model, method)
        session.weight_counts_rows = elder.weight_counts_rows
        if run is not None:
            session.run, session.fingerprint = run, elder.fingerprint
        _segments(session).competes = True
        self.sessions[name], self.parents[name] = session, parent

    def leave(self, name: str) -> None:
        """Remove a model that ``join`` added."""
        del self.sessions[name], self.parents[name]

    # --- checking the rows for all models -------------------------------------------------------

    def _admit(self, values: PyTree) -> PyTree:
        """Check rows for all models; check the models against the columns of the first rows."""
        for session in self.sessions.values():
            session.check_model(values)
        rows_read = self.checker.rows_read
        admitted = self.checker(values)
        for session in self.sessions.values():
            session.note_largest(values, admitted, rows_read)
        return admitted

    def _check_rows(self, values: PyTree) -> dict[str, np.ndarray]:
        """Masks, by reason, of the rows that at least one model cannot use."""
        flags: dict[str, np.ndarray] = {}
        for session in self.sessions.values():
            for reason, mask in session.check_rows(values).items():
                flags[reason] = mask | flags[reason] if reason in flags else mask
        return flags

    def _columns_read(self, values: PyTree) -> set[str] | None:
        """The columns that at least one model reads; None if a model may read all of them."""
        read: set[str] = set()
        for session in self.sessions.values():
            own = session.columns_read(values)
            if own is None:
                return None
            read |= own
        return read

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block that restores every model if it ends in an error."""
        checked, identifiers = self.checker.state(), self.continuity.state()
        with contextlib.ExitStack() as stack:
            stack.enter_context(restored_on_error(self))
            stack.enter_context(self.reader.undoable())
            if self.detector is not None:
                stack.enter_context(restored_on_error(self.detector))
            for session in self.sessions.values():
                stack.enter_context(restored_on_error(session))
                stack.enter_context(session.run.undoable())
            try:
                yield
            except BaseException:
                self.checker.restore(checked)
                self.continuity.restore(identifiers)
                raise


def _absorb(session: Session, rows: PyTree) -> float:
    """Absorb checked rows, chunk by chunk; return the number of annealing steps."""
    before = annealing_steps(session.run)
    for chunk in session.cut(rows):
        session.absorb(chunk)
    return annealing_steps(session.run) - before


def expected_work(session: Session) -> tuple[float, int]:
    """How long a session may take for its next rows: it has its past, or else its dimension."""
    return session.elapsed, session.model.dimension


def latest(session: Session) -> tuple[float, float]:
    """Log evidence and its error; both are 0 before the first row."""
    path = session.run.path
    return (path[-1].log_evidence, path[-1].std_error) if path else (0.0, 0.0)


def _segments(session: Session) -> SegmentedRun:
    """The run of a session, in a contest with a detector."""
    run = session.run
    assert isinstance(run, SegmentedRun)
    return run


def _take(session: Session, chunk: PyTree, first: int | None) -> float:
    """Absorb a chunk, or start again at row ``first`` of it; return the annealing steps."""
    before = annealing_steps(session.run)
    anew = None if first is None else partial(_segments(session).restart, first=first)
    session.absorb(chunk, anew)
    return annealing_steps(session.run) - before
