"""A run of nested sampling on a stream."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.core.checks import check_seed
from weighbridge.core.compilation import MANY_NUMBERS, double_precision, in_double_precision
from weighbridge.core.errors import ModelError
from weighbridge.core.islands import rounding_error
from weighbridge.core.resampling import effective_sample_size
from weighbridge.core.rollback import restored_on_error
from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MAX_ROUNDING,
    MIN_SPREAD_P_VALUE,
)
from weighbridge.core.types import PyTree
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.ibis.row_store import Store
from weighbridge.estimators.nested.merging import (
    COUNTS,
    rank_flags,
    spread_of_runs,
    walk_flags,
)
from weighbridge.estimators.nested.starting import draw_prior
from weighbridge.estimators.nested.tuning import Tuning
from weighbridge.estimators.nested.walkers import Density, refuse_infinite
from weighbridge.estimators.online_nested.chunk import ChunkPlace, WeighedChunk, weigh_chunk
from weighbridge.estimators.online_nested.updated_model import UpdatedModel
from weighbridge.estimators.path_points import (
    WITHOUT_TEMPERATURE,
    PathPoint,
    path_array,
    path_points,
    path_trace,
)
from weighbridge.estimators.sequential import (
    Kept,
    cloud_state,
    posterior,
    restored_cloud,
    unexplained,
)
from weighbridge.models.model import Model
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import Span
from weighbridge.models.targets.unbounded import UnboundedError
from weighbridge.results.evidence_result import Evidence

if TYPE_CHECKING:
    from weighbridge.estimators.online_nested.online_nested import OnlineNestedSampling

# What is counted: sums over chunks.
COUNTED = (*COUNTS, "num_walks", "num_flat", "num_chunks", "num_early")


class OnlineNestedRun:
    """The state of a run: all rows, the particles, and sums over chunks."""

    @double_precision
    def __init__(
        self, method: OnlineNestedSampling, model: Model, seed: int, first_island: int = 0
    ) -> None:
        model.require_rows()
        check_seed(seed)
        self.method, self.model, self.seed = method, model, seed
        self.engine = method.engine()
        self.islands = np.arange(first_island, first_island + method.num_islands)
        self.store = Store()
        self.num_observations = 0.0
        self.path: list[PathPoint] = []
        self.counts = dict.fromkeys(COUNTED, 0)
        self.log_evidence = self.variance = self.remainder = self.remembered = 0.0
        self.p_value = 1.0
        self.island_log_evidences = np.zeros(method.num_islands)
        self.island_variances = np.zeros(method.num_islands)
        self.tuning = Tuning.first(model.dimension, method.moves == "random_walk")
        drawn = self._draw_prior()
        size = method.num_live // method.num_islands
        self.cloud = Cloud(*(leaf[:, :size] for leaf in drawn))

    @property
    def num_rows(self) -> int:
        """Number of rows seen, whatever their weights."""
        return self.store.num_rows

    def _draw_prior(self) -> Cloud:
        """Draws from the prior, more than there will be live points."""
        size = self.method.num_live // self.method.num_islands
        position = draw_prior(self.model, self.seed, self.islands, size)
        shape = position.shape[:2]
        return Cloud(position, np.zeros(shape), np.broadcast_to(np.arange(shape[1]), shape))

    # --- a chunk ------------------------------------------------------------------------------

    def absorb(self, values: PyTree, weight: np.ndarray) -> None:
        """Process one chunk; after an error the run is unchanged."""
        with in_double_precision(), self.undoable():
            first_row = self.num_rows
            self.store.append(values, weight)
            self.num_observations += float(weight.sum())
            steps = 0
            if np.any(weight > 0):
                found = self._weigh(first_row)
                self._add(found)
                steps = found.run.counts.batches
            self._note(steps)

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

    def _weigh(self, first_row: int) -> WeighedChunk:
        """Nested sampling on the rows from this one on, given those before."""
        store = self.store.rows()
        updated = UpdatedModel(self.model, Span(store, 0, first_row))
        chunk = Span(store, first_row, self.num_rows)
        many = self.num_rows * self.model.dimension >= MANY_NUMBERS
        density = Density(updated, chunk, None, many)
        number = self.counts["num_chunks"]
        place = ChunkPlace(self.seed, number, self.islands)
        before, tuning = (self.cloud, self.tuning) if number else (self._draw_prior(), None)
        try:
            found = weigh_chunk(self.engine, density, before, place, tuning)
            points = found.run.points()
            refuse_infinite(points.position, points.log_prior)
        except UnboundedError as error:
            raise error.at_rows(self.model, store, 0) from None
        except ModelError:
            self._explain(density, before, store, first_row)
            raise
        return found

    def _explain(self, density: Density, before: Cloud, store: Rows, first_row: int) -> None:
        """Raise an error that names the row if no particle can explain the chunk, or one is NaN."""
        alive = before.position[np.isfinite(before.log_weight)]
        told = density.at(alive).log_likelihood
        undefined = bool(np.isnan(told).any())
        if undefined or not np.isfinite(told).any():
            chunk = slice(first_row, self.num_rows)
            values = [np.asarray(column[chunk]) for column in self.store.columns]
            *leaves, weight = values
            rows = Rows(self.store.layout.unflatten(leaves), weight)
            draw = "particle" if self.counts["num_chunks"] else "prior draw"
            raise unexplained(
                self.model, alive[None], rows, first_row, undefined=undefined, draw=draw
            ) from None

    def _add(self, found: WeighedChunk) -> None:
        """Add a chunk to the sums, and take over its particles."""
        self.log_evidence += found.log_evidence
        self.variance += found.variance
        self.island_log_evidences = self.island_log_evidences + found.island_log_evidences
        self.island_variances = self.island_variances + found.island_variances
        self.remainder += found.remainder
        self.p_value = min(self.p_value, found.p_value)
        self.cloud, self.tuning = found.cloud, found.tuning
        counts = found.run.counts
        self.remembered += sum(counts.remembered)
        new = {
            "num_evaluations": found.run.density.num_calls,
            "num_batches": counts.batches,
            "num_moves": counts.moves,
            "num_accepted": counts.accepted,
            "num_stuck": counts.stuck,
            "num_walkers": counts.walkers,
            "num_undefined": counts.undefined,
            "num_jumped": counts.jumped,
            "num_walks": len(counts.remembered),
            "num_flat": int(found.is_flat),
            "num_chunks": 1,
            "num_early": int(bool(found.run.ended)),
        }
        self.counts = {name: self.counts[name] + new[name] for name in COUNTED}

    def _note(self, steps: int) -> None:
        """Append the estimate after a chunk to the path."""
        ess = float(np.mean(effective_sample_size(self.cloud.log_weight)))
        error = self._error()[0]
        self.path.append(
            PathPoint(self.num_observations, self.log_evidence, error, float(steps), ess)
        )

    # --- the answer -----------------------------------------------------------------------------

    def _error(self) -> tuple[float, float]:
        """The standard error, and the p-value of the spread of the islands."""
        errors = np.sqrt(self.island_variances)
        p_value, widened = spread_of_runs(self.island_log_evidences, errors)
        rounding = rounding_error(self.log_evidence, self.counts["num_chunks"])
        return math.hypot(widened * math.sqrt(self.variance), self.remainder, rounding), p_value

    def particles(self) -> Cloud:
        """The particles; the mean weight of every island is the evidence of all of them."""
        position, log_weight, origin = self.cloud
        return Cloud(position, log_weight + self.log_evidence, origin)

    def flags(self) -> tuple[Status, ...]:
        """Reasons for caution, the gravest first."""
        # The smallest of the p-values of all chunks.
        chunks = self.counts["num_chunks"]
        smallest = -math.expm1(chunks * math.log1p(-self.p_value)) if self.p_value < 1 else 1.0
        found = {
            Status.FLAT: 0 < chunks == self.counts["num_flat"],
            Status.STOPPED_EARLY: self.counts["num_early"] > 0,
            Status.ROUNDED: rounding_error(self.log_evidence, chunks) > MAX_ROUNDING,
            Status.ISLANDS_DISAGREE: self._error()[1] < MIN_SPREAD_P_VALUE / 10,
        }
        raised = [flag for flag, is_so in found.items() if is_so] + rank_flags(smallest)
        per_walk = self.tuning.num_moves(jumps=False)
        moves = {"remembered": self._memory(), "moves_per_walk": per_walk}
        walked = walk_flags(
            self.counts | moves, self.method.moves, self.model.dimension, self.method.num_live
        )
        return (*raised, *walked)

    def _memory(self) -> float:
        """Mean correlation between the likelihoods at the starts and the ends of walks."""
        return self.remembered / max(self.counts["num_walks"], 1)

    @double_precision
    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence so far."""
        error, p_value = self._error()
        samples, log_weights = posterior(self.model, *self.particles()[:2])
        return Evidence(
            log_evidence=self.log_evidence,
            std_error=error,
            num_observations=round(self.num_observations),
            method=self.method.name,
            trace=path_trace(self.path, WITHOUT_TEMPERATURE),
            samples=samples,
            log_weights=log_weights,
            diagnostics={
                "island_log_evidence": self.island_log_evidences,
                "volume_error": math.sqrt(self.variance),
                "spread_p_value": p_value,
                "insertion_p_value": self.p_value,
                "remembered": self._memory(),
                "moves_per_walk": self.tuning.num_moves(jumps=False),
                "cut_off": self.remainder,
                "rows_kept": self.num_rows,
                **self.counts,
                **extra,
            },
            flags=self.flags(),
            elapsed=elapsed,
        )

    # --- a run can be saved between updates and resumed bit for bit -----------------------------

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues."""
        columns = [column[: self.num_rows] for column in self.store.columns]
        arrays = {f"rows/{index}": column for index, column in enumerate(columns)}
        arrays |= cloud_state(self.cloud)
        arrays["log_evidences"] = self.island_log_evidences
        arrays["island_variances"] = self.island_variances
        arrays["tuning"] = np.array(self.tuning)
        arrays["path"] = path_array(self.path, len(WITHOUT_TEMPERATURE))
        return arrays, {
            "num_observations": self.num_observations,
            "log_evidence": self.log_evidence,
            "variance": self.variance,
            "remainder": self.remainder,
            "remembered": self.remembered,
            "p_value": self.p_value,
            "num_columns": len(columns),
            "counts": self.counts,
        }

    @double_precision
    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from a saved ``state``."""
        columns = [arrays[f"rows/{index}"] for index in range(int(plain["num_columns"]))]
        if columns:
            self.store.extend(columns)
        self.cloud = restored_cloud(arrays, self.cloud)
        self.island_log_evidences = arrays["log_evidences"]
        self.island_variances = arrays["island_variances"]
        self.tuning = Tuning(*map(float, arrays["tuning"]))
        self.path = path_points(arrays["path"])
        for name in ("num_observations", "log_evidence", "variance", "remainder", "remembered"):
            setattr(self, name, float(plain[name]))
        self.p_value = float(plain["p_value"])
        self.counts = {name: int(plain["counts"][name]) for name in COUNTED}
        if not self.variance >= 0 or not np.all(self.island_variances >= 0):
            raise ValueError("a variance is negative")
