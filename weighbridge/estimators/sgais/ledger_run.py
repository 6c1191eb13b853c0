"""Properties and methods that are the same for every run with a ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from weighbridge.core.rollback import restored_on_error
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.path_points import PathPoint
from weighbridge.estimators.sequential import Kept
from weighbridge.estimators.sgais.ledger import Ledger


class LedgerRun:
    """Properties and methods that only use the ledger. No run overrides them."""

    ledger: Ledger

    @property
    def path(self) -> list[PathPoint]:
        """The estimate after each chunk."""
        return self.ledger.path

    @property
    def num_observations(self) -> float:
        """Sum of the weights of the rows seen."""
        return self.ledger.num_observations

    @property
    def num_rows(self) -> int:
        """Number of rows seen, whatever their weights."""
        return self.ledger.num_rows

    def particles(self) -> Cloud:
        """The particles, weighted by all rows so far."""
        return self.ledger.cloud

    def kept(self) -> Kept | None:
        """All rows seen or a uniform sample of them; None if neither is kept."""
        return self.ledger.kept()

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block that restores the run if it ends in an error."""
        with restored_on_error(self), self.ledger.undoable():
            yield
