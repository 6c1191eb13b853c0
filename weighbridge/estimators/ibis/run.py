"""A run of IBIS."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.checks import check_seed
from weighbridge.core.compilation import double_precision
from weighbridge.core.islands import Combined, combine_islands, dimension_bias
from weighbridge.core.random import random_key
from weighbridge.core.resampling import effective_sample_size, is_same, log_mean_exp
from weighbridge.core.rollback import restored_on_error
from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MAX_TEMPERED_SPREAD,
    MIN_MOVE_ACCEPTANCE,
    MIN_TEMPERED_PARTICLES,
)
from weighbridge.core.types import Kernel, PyTree
from weighbridge.data.cutting import pad, split
from weighbridge.estimators.annealing.cloud import Cloud, draw_cloud
from weighbridge.estimators.annealing.loop import Annealed, PathSeed, anneal
from weighbridge.estimators.annealing.memory_needed import check_memory, needs_matrix
from weighbridge.estimators.annealing.moves.kernels import Repeat
from weighbridge.estimators.annealing.moves.walks import choose_mover, require_walkers
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings
from weighbridge.estimators.bridging.bridge import decide
from weighbridge.estimators.ibis.look_ahead import look_ahead
from weighbridge.estimators.ibis.row_store import Store
from weighbridge.estimators.path_points import (
    WITHOUT_TEMPERATURE,
    PathPoint,
    path_array,
    path_points,
    path_trace,
)
from weighbridge.estimators.second_look.streams import amended, look_again
from weighbridge.estimators.sequential import (
    COUNTED,
    Kept,
    cloud_state,
    posterior,
    restored_cloud,
    unexplained,
)
from weighbridge.estimators.tempering.judgement import is_unadjusted
from weighbridge.models.model import Model
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import Span
from weighbridge.models.targets.unbounded import UnboundedError
from weighbridge.results.evidence_result import Evidence

if TYPE_CHECKING:
    from weighbridge.estimators.ibis.ibis import IBIS

# A stage ends when the weights have degenerated. Then all islands are resampled, whatever their
# ESS: the threshold is above 1.
ALWAYS = 2.0
# Up to this many rows a result includes a second look for missed modes, which takes about as long
# as six stages.
LOOKED_AT = 1 << 13
# Rows that are evaluated together, to find the row at which the weights degenerate.
LOOK_AHEAD = 256


class IBISRun:
    """The state of a run: particles of the last stage, and log weights of the rows since then."""

    @double_precision
    def __init__(self, method: IBIS, model: Model, seed: int, first_island: int = 0) -> None:
        model.require_rows()
        check_seed(seed)
        self.method, self.model, self.seed = method, model, seed
        self.store = Store()
        self.num_observations = 0.0
        self.moved_rows = 0  # rows that the last moves included
        self.num_stages = 0
        self.mover = choose_mover(method.moves, model.dimension, 0, on_host=False)
        require_walkers(self.mover, method.num_particles, model.dimension)
        size = (model.dimension, method.num_islands, method.num_particles)
        num_particles = method.num_islands * method.num_particles
        check_memory(*size, dense=needs_matrix(self.mover, model.dimension, num_particles))
        self.counts = dict.fromkeys((*COUNTED, "stalled"), 0)
        self.acceptance: list[float] = []
        self.path: list[PathPoint] = []
        self.islands = np.arange(first_island, first_island + method.num_islands)
        key = random_key(seed)
        self.cloud = draw_cloud(model, key, self.islands, method.num_particles)
        self.gained = np.zeros(self.cloud.log_weight.shape)
        self.log_evidences = np.zeros(method.num_islands)

    @property
    def num_rows(self) -> int:
        """Number of rows seen, whatever their weights."""
        return self.store.num_rows

    @double_precision
    def absorb(self, values: PyTree, weight: np.ndarray) -> None:
        """Process rows; after an error the run is unchanged."""
        before = vars(self) | {"counts": dict(self.counts)}
        lengths = self.num_rows, len(self.path), len(self.acceptance)
        try:
            for piece, its_weight in split((values, weight), LOOK_AHEAD):
                self._take(piece, its_weight)
        except BaseException:
            vars(self).update(before)
            self.store.cut(lengths[0])
            del self.path[lengths[1] :], self.acceptance[lengths[2] :]
            raise
        if self.num_observations > (self.path[-1].rows if self.path else 0.0):
            self._note(self.num_observations)

    def kept(self) -> Kept | None:
        """All rows seen; None after a restart, until new rows show the layout of the columns."""
        return self.store.kept()

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block that restores the run if it ends in an error."""
        before = self.num_rows
        try:
            with restored_on_error(self):
                yield
        except BaseException:
            self.store.cut(before)
            raise

    def _take(self, values: PyTree, weight: np.ndarray) -> None:
        """Weight the particles by these rows; move them whenever the weights would degenerate."""
        size, first_row = len(weight), self.num_rows
        self.store.append(values, weight)
        rows = Rows(*pad(values, weight, LOOK_AHEAD))
        taken, target_ess = 0, self.method.target_ess
        while taken < size:
            ahead = look_ahead(self.model, self.cloud, self.gained, rows, taken, target_ess)
            if np.any(ahead.unbounded):
                raise UnboundedError(self.cloud.position).at_rows(self.model, rows, first_row)
            count = min(int(ahead.num_taken), size - taken)
            degenerate = taken + count < size
            if self.method.move_every_row:
                count, degenerate = 1, True
            if degenerate and first_row + taken + count == self.moved_rows:
                count = 1  # the next row alone degenerates the weights, and will be tempered
            undefined = int(np.asarray(ahead.undefined)[taken : taken + count].sum())
            self.counts["num_undefined"] += undefined
            taken += count
            self.gained = np.asarray(ahead.gained)
            outcome = self._move(first_row + taken) if degenerate else None
            dead = outcome is not None and not np.isfinite(outcome.cloud.log_weight).any()
            if dead or (undefined and self.num_stages == 0):
                draw = "particle" if self.num_stages else "prior draw"
                raise unexplained(
                    self.model,
                    self.cloud.position,
                    rows,
                    first_row,
                    undefined=undefined > 0,
                    draw=draw,
                )
            if outcome is not None:
                self._settle(outcome, first_row + taken)
                self._note(self.num_observations + float(weight[:taken].sum()), outcome)
        self.num_observations += float(weight.sum())

    def _move(self, stop: int) -> Annealed:
        """Anneal the rows since the last stage as one chunk: reweight, resample, move."""
        store = self.store.rows()
        past, chunk = Span(store, 0, self.moved_rows), Span(store, self.moved_rows, stop)
        path = Path(self.model, (past,), chunk)
        mover = self.mover
        if isinstance(mover, Repeat) and isinstance(self.method.moves, Kernel):
            weight = self.store.weight
            before, added = weight[: self.moved_rows].sum(), weight[self.moved_rows : stop].sum()
            mover = replace(mover, rows_past=1.0 + before, rows_chunk=added)
        try:
            return anneal(
                PathSeed(self.seed, self.num_stages, self.islands),
                self.cloud,
                lambda _: path,
                mover,
                Settings(
                    self.method.target_ess,
                    self._resample_below(),
                    resampling=self.method.resampling,
                ),
            )
        except UnboundedError as error:
            raise error.at_rows(self.model, store, 0) from None

    def _resample_below(self) -> float:
        """A stage begins with degenerate weights, unless there is one after every row."""
        return self.method.target_ess if self.method.move_every_row else ALWAYS

    def _settle(self, outcome: Annealed, stop: int) -> None:
        """Take over the particles of a stage; they now represent all rows before ``stop``."""
        self.cloud, self.mover = outcome.cloud, outcome.mover
        self.gained = np.zeros_like(self.gained)
        self.moved_rows = stop
        self.num_stages += 1
        for name in COUNTED:
            # Undefined values of the first step were already counted, row by row.
            steps = outcome.steps[1:] if name == "num_undefined" else outcome.steps
            self.counts[name] += sum(int(np.sum(getattr(step, name))) for step in steps)
        self.counts["stalled"] += outcome.stalled
        accepted = [np.mean(getattr(step.moves, "acceptance", math.nan)) for step in outcome.steps]
        self.acceptance.append(float(np.mean(accepted)))

    def particles(self) -> Cloud:
        """The particles; their weights include the rows since the last stage."""
        position, log_weight, origin = self.cloud
        return Cloud(position, log_weight + self.gained, origin)

    def combined(self) -> Combined:
        """The log evidence of all islands; its error includes what they may share."""
        combined = combine_islands(self.log_evidences)
        error = math.hypot(combined.std_error, self.dimension_bias())
        return combined._replace(std_error=error)

    def dimension_bias(self) -> float:
        """How far all islands may be too low together."""
        num_islands, num_particles, dimension = self.cloud.position.shape
        spread = combine_islands(self.log_evidences).spread
        return dimension_bias(spread, dimension, num_islands * num_particles)

    def _note(self, seen: float, outcome: Annealed | None = None) -> None:
        """Append the estimate after these rows to the path, at the end of a stage or within one."""
        log_weight = self.particles().log_weight
        self.log_evidences, ess = log_mean_exp(log_weight), effective_sample_size(log_weight)
        steps = [] if outcome is None else outcome.steps
        if steps:
            ess = np.asarray(steps[-1].carried_ess)  # before resampling
        combined = self.combined()
        self.path.append(
            PathPoint(
                rows=seen,
                log_evidence=combined.log_evidence,
                std_error=combined.std_error,
                annealing_steps=float(len(steps)),
                ess=float(np.mean(ess)),
            )
        )

    def flags(self) -> tuple[Status, ...]:
        """Reasons for caution, the gravest first."""
        combined = self.combined()
        acceptance = np.array([a for a in self.acceptance if not math.isnan(a)] or [1.0])
        enough = getattr(self.mover, "low_acceptance", MIN_MOVE_ACCEPTANCE)
        found = {
            # Before the first stage the particles are draws from the prior.
            Status.FLAT: bool(self.path) and self.num_stages == 0 and is_same(self.gained),
            Status.ROUNDED: combined.is_rounded,
            Status.LOW_ESS: bool(self.path) and self.path[-1].ess < MIN_TEMPERED_PARTICLES,
            Status.ISLANDS_DISAGREE: combined.spread > MAX_TEMPERED_SPREAD,
            Status.LOW_ACCEPTANCE: float(np.median(acceptance)) < enough,
            Status.UNADJUSTED: is_unadjusted(self.mover),
            Status.DIVERGED: self.counts["num_diverged"] + self.counts["num_undefined"] > 0,
            Status.PARTICLES_DROPPED: self.counts["dropped"] > 0,
            Status.STALLED: self.counts["stalled"] > 0,
            Status.ERROR_UNKNOWN: math.isnan(combined.std_error),
        }
        return tuple(flag for flag, raised in found.items() if raised)

    @double_precision
    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence so far."""
        combined = self.combined()
        samples, log_weights = posterior(self.model, *self.particles()[:2])
        found = Evidence(
            log_evidence=combined.log_evidence,
            std_error=combined.std_error,
            num_observations=round(self.num_observations),
            method=self.method.name,
            trace=path_trace(self.path, WITHOUT_TEMPERATURE),
            samples=samples,
            log_weights=log_weights,
            diagnostics={
                "island_log_evidence": self.log_evidences,
                "acceptance": np.array(self.acceptance),
                "num_stages": self.num_stages,
                "rows_kept": self.num_rows,
                "dimension_bias": self.dimension_bias(),
                **self.counts,
                **extra,
            },
            flags=self.flags(),
            elapsed=elapsed,
        )
        return self._with_second_look(found)

    def _with_second_look(self, found: Evidence) -> Evidence:
        """The result, corrected if a second look finds a mode that the particles missed.

        A loaded run does not know the names of its columns until the next rows arrive. Until then
        there is no second look.
        """
        if not 0 < self.num_rows <= LOOKED_AT or self.store.layout is None:
            return found
        store, cloud = self.store.rows(), self.particles()
        path = Path(self.model, (Span(store, 0, 0),), Span(store, 0, self.num_rows))
        try:
            second = look_again(
                self.seed,
                self.islands,
                cloud,
                self.mover,
                path,
                resampling=self.method.resampling,
            )
        except interrupts.Interrupted:
            return replace(found, flags=(Status.INTERRUPTED, *found.flags))
        decision = decide(None, found.log_evidence, found.claimed_error, found.flags)
        run = (self.model, cloud, self.log_evidences)
        return amended(found, decision, second, run, self.method.combine)

    # --- a run can be saved between updates and resumed bit for bit --------------------------

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues."""
        columns = [column[: self.num_rows] for column in self.store.columns]
        arrays = {f"rows/{index}": column for index, column in enumerate(columns)}
        leaves = jax.tree_util.tree_leaves(self.mover)
        arrays |= {f"mover/{index}": np.asarray(leaf) for index, leaf in enumerate(leaves)}
        arrays |= cloud_state(self.cloud)
        arrays["gained"] = self.gained
        arrays["log_evidences"] = self.log_evidences
        arrays["acceptance"] = np.array(self.acceptance)
        arrays["path"] = path_array(self.path, len(WITHOUT_TEMPERATURE))
        return arrays, {
            "num_observations": self.num_observations,
            "moved_rows": self.moved_rows,
            "num_stages": self.num_stages,
            "num_columns": len(columns),
            "counts": self.counts,
        }

    @double_precision
    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from a saved ``state``."""
        columns = [arrays[f"rows/{index}"] for index in range(int(plain["num_columns"]))]
        if columns:
            self.store.extend(columns)
        leaves, structure = jax.tree_util.tree_flatten(self.mover)
        saved = [arrays[f"mover/{index}"] for index in range(len(leaves))]
        self.mover = jax.tree_util.tree_unflatten(structure, saved)
        self.cloud = restored_cloud(arrays, self.cloud)
        self.gained = arrays["gained"]
        self.log_evidences = arrays["log_evidences"]
        self.acceptance = list(map(float, arrays["acceptance"]))
        self.path = path_points(arrays["path"])
        self.num_observations = float(plain["num_observations"])
        self.moved_rows = int(plain["moved_rows"])
        self.num_stages = int(plain["num_stages"])
        self.counts = {name: int(plain["counts"][name]) for name in self.counts}
        if not 0 <= self.moved_rows <= self.num_rows or self.num_stages < 0:
            raise ValueError(f"particles moved with {self.moved_rows} rows of {self.num_rows}")
