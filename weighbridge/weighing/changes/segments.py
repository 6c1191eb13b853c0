"""A run that can start again from the prior, and adds up the log evidence of its segments."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import jax
import numpy as np

from weighbridge.core.rollback import restored_on_error
from weighbridge.core.status import Status
from weighbridge.core.types import PyTree
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.path_points import (
    LONGEST_PATH,
    PathPoint,
    path_array,
    path_points,
    path_trace,
    shortened,
)
from weighbridge.estimators.protocols import SequentialMethod
from weighbridge.estimators.sequential import Kept, SequentialRun, annealing_steps
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence
from weighbridge.weighing.changes.detection import Detector, Judge


@dataclass(frozen=True)
class Closed:
    """Totals of the segments of a stream before the last restart.

    Attributes:
        num_rows: number of rows.
        num_observations: sum of the weights of these rows.
        path_log_evidence: sum of the log evidences of their paths.
        path_error: its standard error, in quadrature.
        log_evidence: sum of the log evidences of their results.
        std_error: its standard error.
        flags: names of all reasons for caution.
    """

    num_rows: int = 0
    num_observations: float = 0.0
    path_log_evidence: float = 0.0
    path_error: float = 0.0
    log_evidence: float = 0.0
    std_error: float = 0.0
    flags: list[str] = field(default_factory=list)


class SegmentedRun:
    r"""A sequential run in segments, each from the prior.

    The log evidence is the sum over segments, errors in quadrature:

    .. math:: \log Z = \sum_s \log \int p(y_{\text{segment } s} | \theta) p(\theta) d\theta

    Args:
        method: a sequential method.
        model: a model with a log-likelihood of rows.
        seed: seed of the first segment; later segments have other random numbers.
        first_island: number of the run's first island.
        detector: tests every chunk before it is absorbed. With the policy "restart" the rows of a
            chunk before the change go to the current segment, which ends there, and the other rows
            to a new segment. None if the caller decides on changes: see ``restart``.

    Attributes:
        restarts: rows at which the run started again.
        competes: whether the run is a competitor that assumes a change, with prior odds of its
            own. Its restarts are then no reason for caution.
    """

    def __init__(
        self,
        method: SequentialMethod,
        model: Model,
        seed: int,
        first_island: int = 0,
        detector: Detector | None = None,
    ) -> None:
        self.method, self.model, self.detector = method, model, detector
        self.seed, self.first_island = seed, first_island
        self.restarts: list[int] = []
        self.competes = False
        self.closed = Closed()
        self.closed_path: list[PathPoint] = []
        self.run = self._begin(0)

    def _begin(self, number: int) -> SequentialRun:
        """A new run from the prior; the number of the segment determines its random numbers."""
        seed = self.seed
        if number:
            drawn = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)
            seed = int(drawn[0] >> np.uint64(1))
        return self.method.start(self.model, seed=seed, first_island=self.first_island)

    @property
    def path(self) -> list[PathPoint]:
        """The estimate after each piece of the rows, over all segments."""
        if not self.restarts:
            return self.run.path
        return self.closed_path + [self._onwards(point) for point in self.run.path]

    def _onwards(self, point: PathPoint) -> PathPoint:
        """Convert a point of the current segment to a point of the whole stream."""
        closed = self.closed
        return point._replace(
            rows=closed.num_observations + point.rows,
            log_evidence=closed.path_log_evidence + point.log_evidence,
            std_error=math.hypot(closed.path_error, point.std_error),
        )

    @property
    def num_observations(self) -> float:
        """Sum of the weights of the rows seen in all segments."""
        return self.closed.num_observations + self.run.num_observations

    @property
    def num_rows(self) -> int:
        """Number of rows seen in all segments, whatever their weights."""
        return self.closed.num_rows + self.run.num_rows

    def particles(self) -> Cloud:
        """The particles of the current segment."""
        return self.run.particles()

    def fork(self) -> SegmentedRun:
        """An independent copy of the run, without a detector."""
        twin = SegmentedRun(self.method, self.model, self.seed, self.first_island)
        arrays, plain = self.state()
        twin.restore({name: np.array(array) for name, array in arrays.items()}, plain)
        return twin

    def judge(self) -> Judge:
        """The model with the particles of the current segment, to test a chunk."""
        return Judge(self.model, self.particles(), self.method.half_life)

    def absorb(self, values: PyTree, weight: np.ndarray) -> None:
        """Test one chunk, if there is a detector, and absorb it; see ``undoable`` for errors."""
        if self.detector is None:
            self.run.absorb(values, weight)
            return
        change = self.detector.examine(self.judge(), values, weight, self.num_rows)
        steps = math.nan
        if change is not None and self.detector.settings.policy == "restart":
            self.restart(values, weight, change.row - change.chunk_start)
        else:
            before = annealing_steps(self.run)
            self.run.absorb(values, weight)
            steps = annealing_steps(self.run) - before
        self.detector.note(values, weight, steps, change)

    def restart(self, values: PyTree, weight: np.ndarray, first: int) -> None:
        """Absorb a chunk whose rows from ``first`` on belong to a new segment.

        The rows before go to the current segment, which ends there. ``undoable`` restores the run
        after an error.
        """
        row = self.num_rows + first
        fresh = self._begin(len(self.restarts) + 1)
        # The new run first: if it fails, the current one is unchanged.
        fresh.absorb(*_part(values, weight, slice(first, None)))
        if first:
            self.run.absorb(*_part(values, weight, slice(first)))
        path, closed = self.path, self._close()
        self.closed_path = shortened(path) if len(path) > LONGEST_PATH else list(path)
        self.closed, self.run = closed, fresh
        self.restarts.append(row)

    def _close(self) -> Closed:
        """Totals of all segments so far, including the current one."""
        found, closed = self.run.result(0.0, {}), self.closed
        path_log_evidence, path_error = self.run.path[-1].log_evidence, self.run.path[-1].std_error
        if Status.PATH_LOST in found.flags:
            path_log_evidence, path_error = found.log_evidence, found.claimed_error
        flags = (*closed.flags, *(flag.name for flag in found.flags))
        return Closed(
            self.num_rows,
            self.num_observations,
            closed.path_log_evidence + path_log_evidence,
            math.hypot(closed.path_error, path_error),
            closed.log_evidence + found.log_evidence,
            math.hypot(closed.std_error, found.claimed_error),
            list(dict.fromkeys(flags)),
        )

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block that restores the run if it ends in an error."""
        detector = self.detector
        watched = contextlib.nullcontext() if detector is None else restored_on_error(detector)
        with restored_on_error(self), self.run.undoable(), watched:
            yield

    def kept(self) -> Kept | None:
        """All rows seen or a uniform sample of them; None after a restart."""
        return None if self.restarts else self.run.kept()

    def flags(self) -> tuple[Status, ...]:
        """Reasons for caution, the gravest first."""
        return self._with_earlier(self.run.flags())

    def _with_earlier(self, flags: tuple[Status, ...]) -> tuple[Status, ...]:
        """The flags of the current segment and of those before."""
        if not self.restarts:
            return flags
        earlier = tuple(Status[name] for name in self.closed.flags)
        caution = () if self.competes else (Status.RESTARTED,)
        return tuple(dict.fromkeys((*flags, *earlier, *caution)))

    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence of all segments, with the posterior of the last segment."""
        found = self._of_all_segments(self.run.result(elapsed, extra))
        if self.detector is None:
            return found
        noticed = {"change_points": [change.row for change in self.detector.found]}
        return replace(found, diagnostics=found.diagnostics | noticed)

    def _of_all_segments(self, found: Evidence) -> Evidence:
        """The result of the current segment, with the evidence of those before added."""
        if not self.restarts:
            return found
        closed = self.closed
        return replace(
            found,
            log_evidence=closed.log_evidence + found.log_evidence,
            std_error=math.hypot(closed.std_error, found.claimed_error),
            num_observations=round(self.num_observations),
            trace=path_trace(self.path, tuple(found.trace)),
            diagnostics=found.diagnostics | {"restarts": list(self.restarts)},
            flags=self._with_earlier(found.flags),
        )

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues bit for bit."""
        arrays, plain = self.run.state()
        if self.restarts:
            arrays["closed_path"] = path_array(self.closed_path, arrays["path"].shape[1])
        kept, noted = ({}, {}) if self.detector is None else self.detector.state()
        return arrays | kept, {
            "run": plain,
            "restarts": list(self.restarts),
            "closed": asdict(self.closed),
            **noted,
        }

    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from a saved ``state``."""
        self.restarts = [int(row) for row in plain["restarts"]]
        saved = plain["closed"]
        self.closed = Closed(**saved | {"flags": [Status[name].name for name in saved["flags"]]})
        self.run = self._begin(len(self.restarts))
        self.run.restore(arrays, plain["run"])
        self.closed_path = path_points(arrays["closed_path"]) if self.restarts else []
        if self.detector is not None:
            self.detector.restore(arrays, plain)


def _part(values: PyTree, weight: np.ndarray, rows: slice) -> tuple[PyTree, np.ndarray]:
    return jax.tree_util.tree_map(lambda leaf: leaf[rows], values), weight[rows]
