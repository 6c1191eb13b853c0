"""What every run that owns a ledger answers from it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from weighbridge.core.rollback import restored_on_error
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.path_points import PathPoint
from weighbridge.estimators.sequential import Kept
from weighbridge.estimators.sgais.ledger import Ledger


class LedgerRun:
    """Answers that a run reads from its ledger. No run overrides one of them."""

    ledger: Ledger

    @property
    def path(self) -> list[PathPoint]:
        """What was known after each chunk."""
        return self.ledger.path

    @property
    def num_observations(self) -> float:
        """Rows seen, repeated rows counted."""
        return self.ledger.num_observations

    @property
    def num_rows(self) -> int:
        """Rows seen, whatever they count."""
        return self.ledger.num_rows

    def particles(self) -> Cloud:
        """The particles, weighted by all rows so far."""
        return self.ledger.cloud

    def kept(self) -> Kept | None:
        """All rows seen or a uniform sample of them; None if that is not what it keeps."""
        return self.ledger.kept()

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block after which, if it ends in an error, the run is as before."""
        with restored_on_error(self), self.ledger.undoable():
            yield
