"""The evidence of one model on a stream of rows, which can be saved and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from weighbridge.core import checkpoint_file
from weighbridge.core.progress.reporters import CHECKING, WEIGHING, Reporter, telling
from weighbridge.core.threads import Turns
from weighbridge.data.row_checking import RowPolicy
from weighbridge.data.values import TableReader
from weighbridge.estimators.registry import Method, resolve_sequential
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence
from weighbridge.weighing.changes.settings import Change, Changes
from weighbridge.weighing.run_content import ONLINE, check_rows_left_out
from weighbridge.weighing.run_state import (
    KEY_KIND,
    check_counts,
    check_identity,
    identity,
    restore_session,
    row_policy,
    session_state,
)
from weighbridge.weighing.session import Session, Update, update_session

SCHEMA = "weighbridge.online.6"


class Online:
    """The evidence of one model on a stream, updated as the rows arrive.

    Several threads may use one object: their calls wait for each other. A forked process may not:
    there a call is an error.

    Args:
        model: a ``wb.Model``.
        method: a method object, or its name.
        seed: the same seed and the same updates give the same numbers.
        on_bad_row: what to do with rows that cannot be used: "raise", "skip" them and count them,
            or "quarantine": count them and append them to a file, with the reason.
        quarantine: that file.
        changes: how to detect changes of the stream, and what to do then; None: no detection.
        progress: True or False, or a reporter; by default the progress of slow calls is
            shown on a terminal or in a notebook, and elsewhere if a call takes more than 10 s.

    Attributes:
        progress: the argument; it may be changed, and is not saved.
        extra: values that were saved with the loaded run, such as the cursor of its source.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(60, seed=1)
    >>> small = wb.SGAIS(num_islands=4, num_particles=16)
    >>> online = Online(wb.zoo.gaussian.model(), small, seed=0)
    >>> first, second = online.update(data[:20]), online.update(data[20:])
    >>> second.num_observations, second.log_predictive < 0
    (60, True)
    """

    def __init__(
        self,
        model: Model,
        method: str | Method = "auto",
        seed: int = 0,
        *,
        on_bad_row: RowPolicy = "raise",
        quarantine: str | Path | None = None,
        changes: Changes | None = None,
        progress: bool | Reporter | None = None,
    ) -> None:
        self.seed, self.on_bad_row, self.progress = seed, on_bad_row, progress
        self.extra: dict[str, Any] = {}
        self.quarantine = quarantine
        self._turns = Turns("This wb.Online")
        self._settings = changes
        self._reader = TableReader()
        self._session = Session(
            model,
            resolve_sequential(method),
            seed,
            on_bad_row,
            quarantine=quarantine,
            changes=changes,
            left_out=self._reader.left_out,
        )

    @property
    def num_observations(self) -> int:
        """Number of rows seen so far, each counted with its weight."""
        return round(self._session.run.num_observations)

    @property
    def changes(self) -> list[Change]:
        """Changes of the stream detected so far."""
        return list(self._session.changes)

    def update(self, data: Any) -> Update:
        """Absorb any number of rows; no row waits for a later update.

        All rows are checked before the first is absorbed. After an error or Ctrl-C the state is
        the same as before the call.
        """
        return self._turns.take(self._update, data)

    def _update(self, data: Any) -> Update:
        with self._reader.undoable(), telling(self.progress, WEIGHING):
            return update_session(self._session, self._reader(data))

    def result(self) -> Evidence:
        """The evidence of all rows seen, with the posterior and the path."""
        return self._turns.take(self._result)

    def _result(self) -> Evidence:
        with telling(self.progress, CHECKING):
            return self._session.result()

    def save(self, path: str | Path, *, extra: Mapping[str, Any] | None = None) -> None:
        """Write the run to one file, completely or not at all.

        Args:
            path: the file; an existing file is replaced.
            extra: plain values to save with the run, such as the cursor of its source.
        """
        self._turns.take(self._save, path, dict(extra or {}))

    def _save(self, path: str | Path, extra: dict[str, Any]) -> None:
        session = self._session
        arrays, plain = session_state(session)
        metadata = {
            **identity(session.model, session.method),
            "seed": self.seed,
            "key": KEY_KIND,
            "on_bad_row": self.on_bad_row,
            "changes": None if self._settings is None else asdict(self._settings),
            "checker": session.checker.state(),
            "session": plain,
            "extra": extra,
        }
        checkpoint_file.write(path, SCHEMA, arrays, metadata)

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: Model,
        method: str | Method = "auto",
        *,
        on_bad_row: RowPolicy | None = None,
        quarantine: str | Path | None = None,
        limit: int = checkpoint_file.LARGEST_FILE,
    ) -> Online:
        """Continue a saved run, bit for bit as if it had never stopped.

        A file that is damaged, or of another model, method or version of the format, raises a
        ``CheckpointError``. No code from the file is executed. The digest of a file protects
        against damage, not against attackers: keep checkpoints where only you can write.

        Args:
            path: a file that ``save`` wrote.
            model: the model of that run.
            method: the method of that run.
            on_bad_row: what to do with bad rows from now on; by default as before.
            quarantine: the file for bad rows, if they are quarantined; a checkpoint does not
                contain its path.
            limit: largest size of a file in bytes; a larger file is an error.
        """
        path = Path(path)
        arrays, metadata = checkpoint_file.read(path, SCHEMA, limit)
        check_identity(path, metadata, model, resolve_sequential(method))
        with checkpoint_file.refusing(path):
            ONLINE(metadata, "metadata")
            check_rows_left_out(metadata["checker"])
            online = cls(
                model,
                method,
                metadata["seed"],
                on_bad_row=row_policy(path, metadata["on_bad_row"], on_bad_row, quarantine),
                quarantine=quarantine,
                changes=None if (saved := metadata["changes"]) is None else Changes(**saved),
            )
            online._session.checker.restore(metadata["checker"])
            restore_session(online._session, arrays, metadata["session"])
            check_counts(online._session)
            online.extra = dict(metadata["extra"])
        return online
