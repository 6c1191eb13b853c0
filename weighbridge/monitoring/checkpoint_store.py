"""A folder of checkpoints: when to write one, which to keep, and from which to resume."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from weighbridge.core import checkpoint_file
from weighbridge.core.atomic_write import remove_leftovers
from weighbridge.core.errors import CheckpointError, MethodError

# Seconds until a failed checkpoint is tried again, with or without new rows. The pause doubles
# after each failure, up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
NAME = r"checkpoint-(?P<number>\d{8,12})-(?P<rows>\d{1,18})\.safetensors"


class Saveable(Protocol):
    """A run that can be saved, such as ``wb.Online`` or ``wb.OnlineComparison``."""

    def save(self, path: str | Path, *, extra: Mapping[str, Any] | None = None) -> None:
        """Write the run to one file, completely or not at all."""
        ...


class Saved(NamedTuple):
    """The result of saving a checkpoint: its path, or the reason why it failed."""

    path: Path | None
    rows: int
    problem: str = ""


class Latest(NamedTuple):
    """The checkpoint to resume from, and notices about unreadable newer ones and versions."""

    path: Path
    rows: int
    notices: tuple[str, ...] = ()


class CheckpointStore:
    """The last checkpoints of a run, in a folder of their own.

    Args:
        directory: the folder; it is created if it does not exist.
        keep: how many checkpoints to keep.
        every_rows: rows after which the next checkpoint is due; None: rows do not matter.
        every_seconds: seconds after which the next checkpoint is due; None: time does not matter.

    >>> import tempfile
    >>> import weighbridge as wb
    >>> online = wb.Online(wb.zoo.gaussian.model(), wb.SGAIS(num_islands=4, num_particles=16))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = CheckpointStore(folder, every_rows=20)
    ...     update = online.update([0.5] * 20)
    ...     if store.due(update.num_observations):
    ...         saved = store.save(online, update.num_observations, extra={"cursor": 20})
    ...     store.latest().rows, store.due(30), store.due(40)
    (20, False, True)
    """

    def __init__(
        self,
        directory: str | Path,
        keep: int = 3,
        every_rows: int | None = None,
        every_seconds: float | None = 60.0,
    ) -> None:
        for name, value in (("keep", keep), ("every_rows", every_rows)):
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if not whole and not (name == "every_rows" and value is None):
                raise MethodError(f"{name} must be a whole number of 1 or more, not {value!r}.")
        if every_seconds is not None and not every_seconds >= 0:
            raise MethodError(f"every_seconds must not be negative, not {every_seconds!r}.")
        self.directory, self.keep = Path(directory), keep
        self.every_rows, self.every_seconds = every_rows, every_seconds
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            said = error.strerror or error
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                said = f"the place is read-only ({said})"
            raise CheckpointError(
                f"Could not make the folder {self.directory}: {said}. Choose another folder."
            ) from error
        if not os.access(self.directory, os.W_OK):
            raise CheckpointError(
                f"The folder {self.directory} is read-only: no checkpoint can be written there. "
                "Make it writable, or choose another place."
            )
        remove_leftovers(self.directory, NAME)
        self._rows, self._time = 0, time.monotonic()
        self._pause: float | None = None  # seconds until the next try; None unless a save failed

    def due(self, rows: int) -> bool:
        """Whether the next checkpoint is due after so many rows.

        In a resumed run, rows and seconds count from the call of ``latest``. A failed checkpoint
        is due again after a pause, also without new rows.
        """
        waited = time.monotonic() - self._time
        if self._pause is not None and waited >= self._pause:
            return True
        if rows == self._rows:
            return False
        enough = self.every_rows is not None and rows - self._rows >= self.every_rows
        return enough or (self.every_seconds is not None and waited >= self.every_seconds)

    def save(
        self,
        run: Saveable,
        rows: int,
        extra: Mapping[str, Any] | None = None,
        *,
        on_failure: Literal["raise", "report"] = "raise",
    ) -> Saved:
        """Write a checkpoint, then remove the oldest ones that are not to be kept.

        Args:
            run: the run to save.
            rows: the number of rows that it has seen.
            extra: plain values to save with it, such as the cursor of its source.
            on_failure: "raise" a ``CheckpointError``, or "report" the problem in the return value,
                so that the run can continue. Older checkpoints are kept in both cases.
        """
        # Also after a failure, so that a full disk is not tried again with every chunk.
        self._rows, self._time = rows, time.monotonic()
        try:
            path = self.directory / f"checkpoint-{self._next_number():08d}-{rows}.safetensors"
            run.save(path, extra=extra)
        except CheckpointError as error:
            pause = FIRST_PAUSE if self._pause is None else 2 * self._pause
            self._pause = min(pause, LONGEST_PAUSE)
            if on_failure == "raise":
                raise
            return Saved(None, rows, str(error))
        self._pause = None
        self._prune()
        return Saved(path, rows)

    def _prune(self) -> None:
        """Remove old checkpoints; if this fails, it is tried again after the next one."""
        with contextlib.suppress(CheckpointError):
            for _, _, old in self._found()[self.keep :]:
                with contextlib.suppress(OSError):
                    os.unlink(old)

    def latest(self) -> Latest | None:
        """The newest checkpoint that can be read, or None if there is none.

        Damaged checkpoints are skipped, with a notice. If there are checkpoints and none can be
        read, a ``CheckpointError`` is raised.
        """
        notices = []
        found = self._found()
        for _, rows, path in found:
            try:
                metadata = checkpoint_file.verify(path)
            except CheckpointError as error:
                notices.append(f"Passed over: {error}")
                continue
            if changed := checkpoint_file.changed_versions(metadata):
                notices.append(changed)
            self._rows, self._time = rows, time.monotonic()
            return Latest(path, rows, tuple(notices))
        if found:
            raise CheckpointError(
                f"None of the {len(found)} checkpoints in {self.directory} can be read. Move them "
                f"away to start anew. {' '.join(notices)}"
            )
        return None

    def _next_number(self) -> int:
        found = self._found()
        return found[0][0] + 1 if found else 1

    def _found(self) -> list[tuple[int, int, Path]]:
        """Number, rows and path of all checkpoints, the newest first."""
        try:
            names = os.listdir(self.directory)
        except OSError as error:
            raise CheckpointError(
                f"Could not look into {self.directory}: {error.strerror or error}. Check it."
            ) from error
        matches = ((re.fullmatch(NAME, name), name) for name in names)
        found = [
            (int(match["number"]), int(match["rows"]), self.directory / name)
            for match, name in matches
            if match
        ]
        return sorted(found, reverse=True)
