"""Several models on the same rows: one gate for all, and no model ahead of the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core.errors import DataError, MethodError
from weighbridge.core.rollback import restored_on_error
from weighbridge.core.threads import in_threads
from weighbridge.core.types import PyTree
from weighbridge.data.checking import RowChecker, RowPolicy
from weighbridge.data.cutting import rechunk
from weighbridge.data.feeds.base import Notice
from weighbridge.data.feeds.continuity import Continuity
from weighbridge.data.quarantine import Unread
from weighbridge.data.values import TableReader, num_rows
from weighbridge.estimators.methods import Method, resolve_sequential
from weighbridge.models.gate import refuse_pymc
from weighbridge.models.model import Model
from weighbridge.models.response import check_responses
from weighbridge.weighing.changes.watched_run import annealing_steps
from weighbridge.weighing.session import Session

Methods = str | Method | Mapping[str, str | Method]


class Taken(NamedTuple):
    """What became of some rows.

    Attributes:
        annealing_steps: of each model.
        rows_skipped: bad rows that were left out.
        rows_quarantined: bad rows that went to the quarantine file.
        is_new: whether they were taken; not if they had come before.
        notices: what their identifier tells.
    """

    annealing_steps: dict[str, float]
    rows_skipped: int
    rows_quarantined: int
    is_new: bool
    notices: tuple[Notice, ...]


class Contest:
    """Runs of several models on the same rows.

    Args:
        seed: of every run.
        on_bad_row: what to do with rows that one of the models cannot use.
        quarantine: the file that they go to.
    """

    def __init__(self, seed: int, on_bad_row: RowPolicy, quarantine: str | Path | None) -> None:
        self.seed = seed
        self.sessions: dict[str, Session] = {}
        self.checker = RowChecker(on_bad_row, self._check_rows, quarantine, self._columns_read)
        self.continuity = Continuity()
        self.reader = TableReader()

    def begin(self, model: Model, method: str | Method) -> Session:
        """A run that has seen no rows, for the common gate; it does not take part yet."""
        chosen, left_out = resolve_sequential(method), self.reader.left_out
        session = Session(model, chosen, self.seed, "raise", left_out=left_out)
        session.checker = self.checker
        return session

    def take(
        self, data: Any, identifier: str | int | None, unread: Mapping[int, Unread] | None = None
    ) -> Taken:
        """Check rows for all models and absorb them; on an error every one is as before.

        Args:
            data: the rows.
            identifier: of these rows; see `Continuity`.
            unread: those of them that could not be read as rows, and why.
        """
        read = self.checker.rows_read
        self.checker.unread = {read + row: why for row, why in (unread or {}).items()}
        skipped, quarantined = self.checker.rows_skipped, self.checker.rows_quarantined
        steps = dict.fromkeys(self.sessions, 0.0)
        is_new, notice = True, None
        with self.undoable():
            values = self.reader(data)
            if num_rows(values) == 0:
                raise DataError("The update has no rows. Skip it, or wait until there is one.")
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
        """Absorb rows that were checked into every model; tells the annealing steps."""
        return in_threads(partial(_absorb, rows=rows), self.sessions)

    def _admit(self, values: PyTree) -> PyTree:
        """Check rows for all models; the first also check the models against their columns."""
        for session in self.sessions.values():
            session.check_model(values)
        rows_read = self.checker.rows_read
        admitted = self.checker(values)
        for session in self.sessions.values():
            session.note_largest(values, admitted, rows_read)
        return admitted

    def _check_rows(self, values: PyTree) -> dict[str, np.ndarray]:
        """The rows that one of the models cannot have."""
        flags: dict[str, np.ndarray] = {}
        for session in self.sessions.values():
            for reason, mask in session.check_rows(values).items():
                flags[reason] = mask | flags[reason] if reason in flags else mask
        return flags

    def _columns_read(self, values: PyTree) -> set[str] | None:
        """The columns that one of the models reads; None if one of them may read all."""
        read: set[str] = set()
        for session in self.sessions.values():
            own = session.columns_read(values)
            if own is None:
                return None
            read |= own
        return read

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block after which, if it ends in an error, every model is as before."""
        checked, identifiers = self.checker.state(), self.continuity.state()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.reader.undoable())
            for session in self.sessions.values():
                stack.enter_context(restored_on_error(session))
                stack.enter_context(session.run.undoable())
            try:
                yield
            except BaseException:
                self.checker.restore(checked)
                self.continuity.restore(identifiers)
                raise


def check_models(models: Any) -> None:
    """Refuse what are no models by name."""
    if not isinstance(models, Mapping) or not models:
        raise MethodError(
            "models must be a mapping from names to models, as in {'linear': ...}, with one or "
            f"more of them, not {models!r}."
        )
    for name, model in models.items():
        if not isinstance(name, str) or not name:
            raise MethodError(f"The name of a model must be a text, not {name!r}.")
        refuse_pymc(model)
        if not isinstance(model, Model):
            raise MethodError(f"{name!r} must be a wb.Model, not {type(model).__name__}.")
    check_responses(models)


def choose_methods(names: list[str], method: Methods) -> dict[str, str | Method]:
    """The method of each model."""
    if not isinstance(method, Mapping):
        return dict.fromkeys(names, method)
    if set(method) != set(names):
        raise MethodError(f"method must name each of {names}, and no other model, or be one.")
    return {name: method[name] for name in names}


def _absorb(session: Session, rows: PyTree) -> float:
    """Absorb rows that were checked, chunk by chunk; tells the annealing steps."""
    before, seen = annealing_steps(session.run), session.run.num_rows
    sizes = partial(session.method.chunk_after, in_memory=True)
    for chunk in rechunk([rows], lambda taken: sizes(seen + taken)):
        session.absorb(chunk)
    return annealing_steps(session.run) - before


def latest(session: Session) -> tuple[float, float]:
    """Log evidence and its error; both 0 of no rows."""
    path = session.run.path
    return (path[-1].log_evidence, path[-1].std_error) if path else (0.0, 0.0)
