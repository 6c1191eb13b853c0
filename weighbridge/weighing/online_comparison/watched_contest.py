"""Several models on the same rows, the leading one of which looks for changes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weighbridge.core.rollback import restored_on_error
from weighbridge.core.threads import in_threads
from weighbridge.core.types import PyTree
from weighbridge.data.checking import RowPolicy
from weighbridge.data.cutting import rechunk
from weighbridge.data.values import num_rows
from weighbridge.estimators.methods import Method
from weighbridge.models.model import Model
from weighbridge.models.row_likelihood import split_weight
from weighbridge.weighing.changes.detection import Detector
from weighbridge.weighing.changes.segments import SegmentedRun
from weighbridge.weighing.changes.settings import Change, Changes
from weighbridge.weighing.changes.watched_run import annealing_steps
from weighbridge.weighing.online_comparison.contest import Contest
from weighbridge.weighing.session import Session


class WatchedContest(Contest):
    """Runs of several models on the same rows, with a common detector of changes.

    A chunk is tested by the model that leads before it is seen: one test a chunk, chosen by the
    past alone, so that the rate of false alarms is the stated one however many models there are. A
    model that fits badly may be taken by surprise by nothing, and need not agree.

    With the policy "restart" all models begin anew at the same row, so that they stay comparable.
    With ``compete`` the model that found the change goes on, and is joined by one of the same make
    that begins anew there, with the evidence of the rows before in its own.

    Args:
        seed: of every run, and of the test.
        on_bad_row: what to do with rows that one of the models cannot use.
        quarantine: the file that they go to.
        changes: the settings.
        leader: tells the name of the leading model.
    """

    def __init__(
        self,
        seed: int,
        on_bad_row: RowPolicy,
        quarantine: str | Path | None,
        changes: Changes,
        leader: Callable[[], str],
    ) -> None:
        super().__init__(seed, on_bad_row, quarantine)
        self.detector, self.leader = Detector(changes, seed), leader
        self.changes: list[Change] = []
        self.parents: dict[str, str] = {}
        self.num_rows = 0

    def begin(self, model: Model, method: str | Method) -> Session:
        """A run that has seen no rows, for the common gate; it does not take part yet."""
        session = super().begin(model, method)
        session.run = SegmentedRun(session.method, model, self.seed)
        return session

    def absorb(self, rows: PyTree) -> dict[str, float]:
        """Absorb rows that were checked, chunk by chunk; tells the annealing steps."""
        steps = dict.fromkeys(self.sessions, 0.0)
        seen, window = self.num_rows, self.detector.changes.window

        def size_after(taken: int) -> int:
            sizes = (
                session.method.chunk_after(seen + taken, in_memory=False)
                for session in self.sessions.values()
            )
            return min(window, *sizes)

        for chunk in rechunk([rows], size_after):
            for name, taken in self._absorb_chunk(chunk).items():
                steps[name] = steps.get(name, 0.0) + taken
        return steps

    def _absorb_chunk(self, chunk: PyTree) -> dict[str, float]:
        leader, settings = self.leader(), self.detector.changes
        session = self.sessions[leader]
        run = _segments(session)
        judge = run.judge()._replace(counts_rows=bool(session.weight_counts_rows))
        ones = np.ones(num_rows(chunk))
        change = self.detector.examine(judge, chunk, ones, self.num_rows)
        first = 0 if change is None else change.row - change.chunk_start
        competitor = run.fork() if change is not None and settings.compete else None
        anew = change is not None and settings.policy == "restart"
        steps = in_threads(
            partial(_take, chunk=chunk, first=first if anew else None), self.sessions
        )
        if change is not None:
            found = replace(change, model=leader)
            self.changes.append(self.detector.compared(found, math.nan if anew else steps[leader]))
            if competitor is not None:
                name = f"{leader} | changed at {change.row}"
                competitor.restart(*split_weight(chunk, judge.counts_rows), first)
                self.join(name, self.parents.get(leader, leader), competitor)
        self.detector.keep(chunk, ones, steps[leader], change)
        self.num_rows += num_rows(chunk)
        return steps

    def join(self, name: str, parent: str, run: SegmentedRun | None = None) -> None:
        """Let a model that begins anew at a change take part, beside the one that found it.

        Args:
            name: of the model.
            parent: name of the user's model that it is made of.
            run: what it has seen; without, nothing yet.
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
        """Let such a model take part no more."""
        del self.sessions[name], self.parents[name]

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block after which, if it ends in an error, every model is as before."""
        sessions, parents = dict(self.sessions), dict(self.parents)
        found, seen = len(self.changes), self.num_rows
        with super().undoable(), restored_on_error(self.detector):
            try:
                yield
            except BaseException:
                self.sessions, self.parents = sessions, parents
                del self.changes[found:]
                self.num_rows = seen
                raise

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What ``restore`` needs beside the runs of the models."""
        arrays, noted = self.detector.state()
        return arrays, {
            "detector": noted,
            "changes": [change.plain() for change in self.changes],
            "num_rows": self.num_rows,
        }

    def restore(self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        self.detector.restore(arrays, plain["detector"])
        self.changes = [Change.from_plain(change) for change in plain["changes"]]
        self.num_rows = int(plain["num_rows"])


def _segments(session: Session) -> SegmentedRun:
    run = session.run
    assert isinstance(run, SegmentedRun)
    return run


def _take(session: Session, chunk: PyTree, first: int | None) -> float:
    """Absorb a chunk, or begin anew within it; tells the annealing steps."""
    before = annealing_steps(session.run)
    if first is None:
        session.absorb(chunk)
    else:
        session.absorb_by(partial(_segments(session).restart, first=first), chunk)
    return annealing_steps(session.run) - before
