"""What runs that take rows as they come, and keep some of them for mini-batches, have in common."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.checks import check_seed
from weighbridge.core.compilation import double_precision
from weighbridge.core.islands import combine_islands, rounding_error
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.resampling import ROUNDING, is_same, systematic_indices
from weighbridge.core.rollback import restored_on_error
from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MAX_HEATING_BIAS,
    MAX_STREAMED_SPREAD,
    MIN_STREAMED_PARTICLES,
)
from weighbridge.core.types import PyTree
from weighbridge.data.reservoir import Reservoir, Window
from weighbridge.estimators.annealing.cloud import Cloud, draw_cloud
from weighbridge.estimators.annealing.loop import Annealed
from weighbridge.estimators.annealing.memory_needed import check_memory
from weighbridge.estimators.path_points import (
    LONGEST_PATH,
    WITH_TEMPERATURE,
    PathPoint,
    path_array,
    path_points,
    path_trace,
    shortened,
)
from weighbridge.estimators.sequential import (
    Kept,
    cloud_state,
    posterior,
    restored_cloud,
    unexplained,
)
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import FIRST_ORDER_ABOVE
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.unbounded import UnboundedError
from weighbridge.results.evidence_result import Evidence

# What is counted over all annealing steps.
COUNTED = ("num_diverged", "num_undefined", "num_infinite", "dropped")
# Spread of log Z over islands (nats) at which islands are resampled: beyond it their mean is
# little but their maximum.
SETTLE_AT = 2.0


class Population(Protocol):
    """What a run asks of its method."""

    @property
    def name(self) -> str:
        """What results call the method."""
        ...

    @property
    def num_islands(self) -> int:
        """Independent populations."""
        ...

    @property
    def num_particles(self) -> int:
        """Particles of each."""
        ...

    @property
    def reservoir(self) -> int:
        """Rows kept for mini-batches."""
        ...

    @property
    def states_error(self) -> bool:
        """Whether the spread of islands may be believed as an error."""
        ...


class Brought(NamedTuple):
    """A chunk that was brought in: where the particles are, and what else to do if that counts."""

    outcome: Annealed
    accept: Callable[[], None]


class StreamedRun:
    """A run under way: particles, the rows kept for mini-batches, and the path so far."""

    @double_precision
    def __init__(
        self, population: Population, model: Model, seed: int, first_island: int = 0
    ) -> None:
        model.require_rows()
        check_seed(seed)
        self.population, self.model = population, model
        size = (model.dimension, population.num_islands, population.num_particles)
        check_memory(*size, dense=model.dimension <= FIRST_ORDER_ABOVE)
        self.seed, self.first_island = seed, first_island
        self.rows = self._keep()
        self.num_observations = 0.0
        self.num_chunks = 0
        self.temperature = 1.0
        self.heating_bias = 0.0
        self.settled_variance = 0.0
        self.widest_spread = 0.0
        self.repaired = 0.0
        self.counts = dict.fromkeys((*COUNTED, "stalled"), 0)
        self.path: list[PathPoint] = []
        self.islands = np.arange(first_island, first_island + population.num_islands)
        key = jax.random.key(seed, impl="threefry2x32")
        self.cloud = draw_cloud(model, key, self.islands, population.num_particles)
        self.log_evidences = np.zeros(population.num_islands)

    def _keep(self) -> Reservoir | Window:
        """Where rows for mini-batches are kept."""
        return Reservoir(self.population.reservoir, self.seed, self.first_island)

    @property
    def num_rows(self) -> int:
        """Rows seen, whatever they count."""
        return self.rows.num_seen

    def particles(self) -> Cloud:
        """The particles, weighted by all rows so far."""
        cloud: Cloud = self.cloud
        return cloud

    @double_precision
    def absorb(self, values: PyTree, weight: np.ndarray) -> None:
        """Bring in one chunk; on an error nothing has changed."""
        with self.undoable():
            self._absorb(values, weight)

    def _absorb(self, values: PyTree, weight: np.ndarray) -> None:
        count = float(weight.sum())
        seen = self.num_observations + count
        if count > 0:
            try:
                outcome, accept = self._bring_in(values, weight, seen)
            except UnboundedError as error:
                raise self._placed(error, Rows(values, weight)) from None
            self._check(outcome, Rows(values, weight))
            self.cloud = outcome.cloud
            accept()
            self._record(outcome, seen, count)
            self._settle()
        self.rows.append(values, weight)
        self.num_observations = seen
        self.num_chunks += 1
        self._verify(len(weight))

    def _placed(self, error: UnboundedError, chunk: Rows) -> UnboundedError:
        """The error with the row that it comes from: one of the chunk, or one that was kept."""
        found = error.at_rows(self.model, chunk, self.num_rows)
        if found is error and isinstance(self.rows, Reservoir) and self.rows.is_complete:
            everything = self.rows.gather(np.arange(self.rows.num_kept))
            return error.at_rows(self.model, Rows(*everything), 0)
        return found

    def _verify(self, num_new: int) -> None:
        """Hold the path against another estimate, after a chunk of so many rows."""

    def _go_on_from(self, log_evidence: float, std_error: float, sound: np.ndarray) -> None:
        """Take another estimate of the log evidence for the path's own, and its error.

        Islands go on from there alike: what made them differ before does not count any more.
        Those that are not sound are replaced by others.
        """
        chosen = np.flatnonzero(sound)
        chosen = np.where(sound, np.arange(len(sound)), chosen[np.arange(len(sound)) % len(chosen)])
        position, log_weight, origin = map(np.asarray, self.cloud)
        shift = log_evidence - self.log_evidences[chosen]
        self.cloud = Cloud(
            jnp.asarray(position[chosen]),
            jnp.asarray(log_weight[chosen] + shift[:, None]),
            jnp.asarray(origin[chosen]),
        )
        self.log_evidences = np.full(len(chosen), log_evidence)
        self.settled_variance, self.heating_bias = std_error**2, 0.0
        log_evidence, std_error = self._combine()
        self.path[-1] = self.path[-1]._replace(log_evidence=log_evidence, std_error=std_error)

    def _bring_in(self, values: PyTree, weight: np.ndarray, seen: float) -> Brought:
        """Anneal the particles to the posterior with this chunk, in which so many rows are seen."""
        raise NotImplementedError

    def _check(self, outcome: Annealed, chunk: Rows) -> None:
        """Refuse a chunk that no particle can explain, and say why."""
        undefined = int(np.sum(outcome.steps[0].num_undefined))
        dead = not np.isfinite(outcome.cloud.log_weight).any()
        if dead or (undefined and self.num_chunks == 0):
            raise unexplained(
                self.model,
                self.cloud.position,
                chunk,
                self.num_rows,
                undefined=undefined > 0,
                draw="prior draw" if self.num_chunks == 0 else "particle",
            )

    def _record(self, outcome: Annealed, seen: float, count: float) -> None:
        for step in outcome.steps:
            for name in COUNTED:
                self.counts[name] += int(getattr(step, name).sum())
        self.counts["stalled"] += outcome.stalled
        last = outcome.steps[-1]
        self.log_evidences = np.asarray(last.log_evidence)
        self.temperature = float(np.mean(getattr(last.moves, "temperature", math.nan)))
        if not math.isnan(self.temperature):
            # A posterior at temperature T loses (T - 1) D / 2 nats for each e-fold of rows.
            dimension = self.model.dimension
            self.heating_bias += 0.5 * dimension * (self.temperature - 1.0) * count / seen
        log_evidence, std_error = self._combine()
        self.path.append(
            PathPoint(
                rows=seen,
                log_evidence=log_evidence,
                std_error=std_error,
                annealing_steps=float(len(outcome.steps)),
                ess=float(last.carried_ess.mean()),
                temperature=self.temperature,
            )
        )
        if len(self.path) > LONGEST_PATH:
            self.path = shortened(self.path)

    def _settle(self) -> None:
        """Resample islands that have drifted apart, and carry the error made so far over.

        Each becomes a copy of one drawn by its evidence; all continue from the mean evidence.
        From here on they differ only by what comes, so the variance until here is set aside.
        """
        log_evidences = self.log_evidences
        combined = combine_islands(log_evidences)
        self.widest_spread = max(self.widest_spread, float(np.nan_to_num(combined.spread)))
        if not SETTLE_AT < combined.spread < MAX_STREAMED_SPREAD or math.isnan(combined.std_error):
            return
        # Rounds of islands with one seed differ by their first island.
        numbers = random_numbers(self.seed, Stream.SETTLING, self.first_island, 0, self.num_chunks)
        chosen = systematic_indices(numbers.random(), log_evidences)
        self.settled_variance += combined.std_error**2
        shift = combined.log_evidence - log_evidences[:, None]
        position, log_weight, origin = map(np.asarray, self.cloud)
        self.cloud = Cloud(
            jnp.asarray(position[chosen]),
            jnp.asarray((log_weight + shift)[chosen]),
            jnp.asarray(origin[chosen]),
        )
        self.log_evidences = np.full(len(chosen), combined.log_evidence)

    def _combine(self) -> tuple[float, float]:
        combined = combine_islands(self.log_evidences)
        if not self.population.states_error or not self._knows_heat():
            return combined.log_evidence, math.nan
        variance = combined.std_error**2 + self.settled_variance
        lost = rounding_error(combined.log_evidence, self.num_chunks)
        return combined.log_evidence, math.hypot(math.sqrt(variance), self.heating_bias, lost)

    def _knows_heat(self) -> bool:
        """Whether the moves tell their temperature; without it no error can be stated."""
        return not math.isnan(self.temperature)

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block after which, if it ends in an error, the run is as before."""
        with restored_on_error(self), self.rows.undoable():
            yield

    def kept(self) -> Kept | None:
        """All rows seen or a uniform sample of them; None if that is not what it keeps."""
        if not isinstance(self.rows, Reservoir) or not self.rows.num_kept:
            return None
        return Kept(*self.rows.gather(np.arange(self.rows.num_kept)), self.rows.is_complete)

    def flags(self) -> tuple[Status, ...]:
        """Reasons for caution, the gravest first."""
        return tuple(flag for flag, raised in self._cautions().items() if raised)

    def _cautions(self) -> dict[Status, bool]:
        combined = combine_islands(self.log_evidences)
        chance_error = math.sqrt(combined.std_error**2 + self.settled_variance)
        return {
            Status.FLAT: self._is_flat(),
            Status.ROUNDED: combined.is_rounded,
            Status.DIVERGED: self.counts["num_diverged"] + self.counts["num_undefined"] > 0,
            Status.PARTICLES_DROPPED: self.counts["dropped"] > 0,
            Status.STALLED: self.counts["stalled"] > 0,
            Status.HEATED: abs(self.heating_bias) > max(MAX_HEATING_BIAS, 2 * chance_error),
            Status.LOW_ESS: bool(self.path) and self.path[-1].ess < MIN_STREAMED_PARTICLES,
            Status.ISLANDS_DISAGREE: self.widest_spread > MAX_STREAMED_SPREAD,
            Status.ERROR_UNKNOWN: math.isnan(self._combine()[1]),
        }

    def _is_flat(self) -> bool:
        """Whether no chunk has told particles apart, nor islands."""
        whole = self.population.num_particles * (1.0 - ROUNDING)
        even = bool(self.path) and all(point.ess >= whole for point in self.path)
        return even and is_same(self.log_evidences)

    @double_precision
    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence so far."""
        log_evidence, std_error = self._combine()
        samples, log_weights = posterior(self.model, *self.cloud[:2])
        return Evidence(
            log_evidence=log_evidence,
            std_error=std_error,
            num_observations=round(self.num_observations),
            method=self.population.name,
            trace=path_trace(self.path, WITH_TEMPERATURE),
            samples=samples,
            log_weights=log_weights,
            diagnostics={
                "island_log_evidence": self.log_evidences,
                "heating_bias": -self.heating_bias,
                "settled_error": math.sqrt(self.settled_variance),
                "rows_kept": self.rows.num_kept,
                **self.counts,
                **extra,
            },
            flags=self.flags(),
            elapsed=elapsed,
        )

    # --- a run can be saved between chunks and resumed bit for bit -------------------------

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues."""
        arrays = {f"rows/{name}": value for name, value in self.rows.state().items()}
        arrays |= cloud_state(self.cloud)
        arrays["log_evidences"] = self.log_evidences
        arrays["path"] = path_array(self.path, len(WITH_TEMPERATURE))
        return arrays, {
            "num_observations": self.num_observations,
            "num_chunks": self.num_chunks,
            "temperature": self.temperature,
            "heating_bias": self.heating_bias,
            "settled_variance": self.settled_variance,
            "widest_spread": self.widest_spread,
            "repaired": self.repaired,
            "counts": self.counts,
        }

    @double_precision
    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        prefix = "rows/"
        self.rows.restore({k[len(prefix) :]: v for k, v in arrays.items() if k.startswith(prefix)})
        self.cloud = restored_cloud(arrays, self.cloud)
        self.log_evidences = arrays["log_evidences"]
        self.path = path_points(arrays["path"])
        self.num_observations = float(plain["num_observations"])
        self.num_chunks = int(plain["num_chunks"])
        self.temperature = float(plain["temperature"])
        self.heating_bias = float(plain["heating_bias"])
        self.settled_variance = float(plain["settled_variance"])
        self.widest_spread = float(plain["widest_spread"])
        self.repaired = float(plain["repaired"])
        self.counts = {name: int(plain["counts"][name]) for name in self.counts}
        if self.num_observations < 0 or not 0 <= self.num_chunks <= self.num_rows:
            raise ValueError(f"{self.num_chunks} chunks of {self.num_observations} observations")
        if not 0 <= self.settled_variance < math.inf or not abs(self.heating_bias) < math.inf:
            raise ValueError(f"errors of {self.settled_variance} and {self.heating_bias}")
        if not 0 <= self.repaired < math.inf:
            raise ValueError(f"a path put right by {self.repaired} nats")
