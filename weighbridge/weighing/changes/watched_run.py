"""A run that looks for changes of its stream before it absorbs a chunk."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from weighbridge.core.rollback import restored_on_error
from weighbridge.core.types import PyTree
from weighbridge.estimators.protocols import SequentialMethod
from weighbridge.estimators.sequential import SequentialRun
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence
from weighbridge.weighing.changes.detection import Detector
from weighbridge.weighing.changes.segments import SegmentedRun
from weighbridge.weighing.changes.settings import Change, Changes


class WatchedRun(SegmentedRun):
    """A sequential run with a detector of changes.

    With the policy "restart" the rows of a chunk before its change go to the run so far, which ends
    there, and those from it on to a fresh one.

    Args:
        method: that takes rows as they come.
        model: with a log-likelihood of rows.
        seed: of the run.
        first_island: of the run.
        changes: the settings.
    """

    def __init__(
        self,
        method: SequentialMethod,
        model: Model,
        seed: int,
        first_island: int,
        changes: Changes,
    ) -> None:
        super().__init__(method, model, seed, first_island)
        self.detector = Detector(changes, seed)
        self.changes: list[Change] = []

    def absorb(self, values: PyTree, weight: np.ndarray) -> None:
        """Test a chunk and bring it in; on an error nothing has changed."""
        change = self.detector.examine(self.judge(), values, weight, self.num_rows)
        steps = math.nan
        if change is not None and self.detector.changes.policy == "restart":
            self.restart(values, weight, change.row - change.chunk_start)
        else:
            before = annealing_steps(self.run)
            super().absorb(values, weight)
            steps = annealing_steps(self.run) - before
        if change is not None:
            self.changes.append(self.detector.compared(change, steps))
        self.detector.keep(values, weight, steps, change)

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block after which, if it ends in an error, the run is as before."""
        with super().undoable(), restored_on_error(self.detector):
            yield

    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence of all segments; the posterior is that of the last."""
        found = super().result(elapsed, extra)
        noticed = {"change_points": [change.row for change in self.changes]}
        return replace(found, diagnostics=found.diagnostics | noticed)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues bit for bit."""
        arrays, plain = super().state()
        kept, noted = self.detector.state()
        changes = [change.plain() for change in self.changes]
        return arrays | kept, plain | {"detector": noted, "changes": changes}

    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        super().restore(arrays, plain)
        self.detector.restore(arrays, plain["detector"])
        self.changes = [Change.from_plain(change) for change in plain["changes"]]


def annealing_steps(run: SequentialRun) -> float:
    """All that a run has taken; old points of a path may be joined, but none of its steps lost."""
    return float(sum(point.annealing_steps for point in run.path))
