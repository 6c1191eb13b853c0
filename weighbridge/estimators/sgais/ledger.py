"""The ledger of a sequential run: particles, kept rows, estimates after each chunk, and errors.

Each run of ``SGAIS``, ``SGAIS.published()`` and ``SequentialSGMCMC`` has a ledger. For each chunk
it calls ``accept``, ``record``, ``add_point``, ``settle`` and ``keep``, in this order.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from weighbridge.core.checks import check_seed
from weighbridge.core.compilation import double_precision
from weighbridge.core.islands import combine_islands, dimension_bias, rounding_error
from weighbridge.core.random import Stream, random_key, random_numbers
from weighbridge.core.resampling import ROUNDING, is_same, systematic_indices
from weighbridge.core.rollback import restored_on_error
from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MAX_STREAMED_SPREAD,
    MIN_STREAMED_PARTICLES,
)
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
    COUNTED,
    Kept,
    cloud_state,
    is_heated,
    posterior,
    restored_cloud,
    unexplained,
)
from weighbridge.estimators.sgais.chunk_stage import ChunkRows
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import FIRST_ORDER_ABOVE
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.unbounded import UnboundedError
from weighbridge.results.evidence_result import Evidence

# Islands are resampled when the spread of their log Z (nats) exceeds this, and is still below
# MAX_STREAMED_SPREAD. With a larger spread the largest island would dominate the mean.
SETTLE_AT = 2.0


class Population(Protocol):
    """Settings of a method that a ledger uses."""

    @property
    def num_islands(self) -> int:
        """Independent populations."""
        ...

    @property
    def num_particles(self) -> int:
        """Particles of each island."""
        ...

    @property
    def reservoir(self) -> int:
        """Rows kept for mini-batches."""
        ...

    @property
    def states_error(self) -> bool:
        """Whether the spread of the islands is stated as the error."""
        ...


class Ledger:
    """The current state of a sequential run, and its estimates after earlier chunks.

    Args:
        population: the method, for its numbers of islands and particles and its reservoir.
        model: the model; it must have a log-likelihood of rows.
        seed: of the run.
        first_island: number of the run's first island.
        forgets: whether past rows lose weight, and old rows are dropped.
        heats: whether moves may heat the particles. If so, no error is stated for moves that do
            not measure their temperature.

    Attributes:
        rows: the kept rows, from which mini-batches are drawn.
        cloud: the particles, weighted by all rows so far.
        log_evidences: log evidence of each island.
        path: the estimate after each chunk.
        num_observations: sum of the weights of the rows seen.
        num_chunks: number of chunks so far.
        temperature: of the last moves; NaN if they do not measure it.
        heating_bias: estimated loss of log evidence due to heating so far, in nats.
        settled_variance: variance of the log evidence up to the last time all islands were given
            the same log evidence.
        widest_spread: largest spread of the islands so far, in nats.
        repaired: nats that corrections have added to the path.
        counts: numbers of events, over all annealing steps.
    """

    @double_precision
    def __init__(
        self,
        population: Population,
        model: Model,
        seed: int,
        first_island: int = 0,
        *,
        forgets: bool = False,
        heats: bool = True,
    ) -> None:
        model.require_rows()
        check_seed(seed)
        num_islands, num_particles = population.num_islands, population.num_particles
        dense = model.dimension <= FIRST_ORDER_ABOVE
        check_memory(model.dimension, num_islands, num_particles, dense=dense)
        self.model, self.seed, self.first_island = model, seed, first_island
        self.states_error, self.heats = population.states_error, heats
        self.rows: Reservoir | Window = Window()
        if not forgets:
            self.rows = Reservoir(population.reservoir, seed, first_island)
        self.num_observations = 0.0
        self.num_chunks = 0
        self.temperature = 1.0
        self.heating_bias = 0.0
        self.settled_variance = 0.0
        self.widest_spread = 0.0
        self.repaired = 0.0
        self.counts = dict.fromkeys((*COUNTED, "stalled"), 0)
        self.path: list[PathPoint] = []
        self.islands = np.arange(first_island, first_island + num_islands)
        key = random_key(seed)
        self.cloud: Cloud = draw_cloud(model, key, self.islands, num_particles)
        self.log_evidences = np.zeros(num_islands)

    @property
    def num_rows(self) -> int:
        """Number of rows seen, whatever their weights."""
        return self.rows.num_seen

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block that restores the ledger if it ends in an error."""
        with restored_on_error(self), self.rows.undoable():
            yield

    def kept(self) -> Kept | None:
        """All rows seen or a uniform sample of them; None if neither is kept."""
        if not isinstance(self.rows, Reservoir) or not self.rows.num_kept:
            return None
        return Kept(*self.rows.gather(np.arange(self.rows.num_kept)), self.rows.is_complete)

    # --- recording a chunk, in this order -------------------------------------------------------

    def seen_with(self, chunk: ChunkRows) -> float:
        """Sum of the weights of the rows seen and the rows of this chunk."""
        return self.num_observations + chunk.num_observations

    @contextlib.contextmanager
    def naming_rows(self, chunk: ChunkRows) -> Iterator[None]:
        """A block that anneals a chunk in; its error for an infinite density names the row."""
        try:
            yield
        except UnboundedError as error:
            found = error.at_rows(self.model, Rows(*chunk), self.num_rows)
            if found is error and isinstance(self.rows, Reservoir) and self.rows.is_complete:
                everything = self.rows.gather(np.arange(self.rows.num_kept))
                found = error.at_rows(self.model, Rows(*everything), 0)
            raise found from None

    def accept(self, outcome: Annealed, chunk: ChunkRows) -> None:
        """Take over the particles after annealing.

        It is an error if the chunk has zero likelihood for all particles, or if the likelihood of
        the first chunk is NaN for some of them.
        """
        undefined = int(np.sum(outcome.steps[0].num_undefined))
        dead = not np.isfinite(outcome.cloud.log_weight).any()
        if dead or (undefined and self.num_chunks == 0):
            raise unexplained(
                self.model,
                self.cloud.position,
                Rows(*chunk),
                self.num_rows,
                undefined=undefined > 0,
                draw="prior draw" if self.num_chunks == 0 else "particle",
            )
        self.cloud = outcome.cloud

    def record(self, outcome: Annealed, chunk: ChunkRows) -> None:
        """Take the islands' evidence, the counts and the temperature from a chunk's annealing."""
        for step in outcome.steps:
            for name in COUNTED:
                self.counts[name] += int(np.sum(getattr(step, name)))
        self.counts["stalled"] += outcome.stalled
        last = outcome.steps[-1]
        self.log_evidences = np.asarray(last.log_evidence)
        self.temperature = float(np.mean(getattr(last.moves, "temperature", math.nan)))
        if not math.isnan(self.temperature):
            # At temperature T log Z loses (T - 1) D / 2 nats when the rows grow by a factor e.
            excess = 0.5 * self.model.dimension * (self.temperature - 1.0)
            self.heating_bias += excess * chunk.num_observations / self.seen_with(chunk)

    def add_point(
        self, outcome: Annealed, chunk: ChunkRows, log_evidence: float, std_error: float
    ) -> None:
        """Append the estimate after a chunk, as the run states it, to the path."""
        point = PathPoint(
            rows=self.seen_with(chunk),
            log_evidence=log_evidence,
            std_error=std_error,
            annealing_steps=float(len(outcome.steps)),
            ess=float(outcome.steps[-1].carried_ess.mean()),
            temperature=self.temperature,
        )
        self.path.append(point)
        if len(self.path) > LONGEST_PATH:
            self.path = shortened(self.path)

    def settle(self) -> None:
        """Resample islands that have drifted apart, and add up the variance so far.

        Each island becomes a copy of an island drawn in proportion to its evidence. All continue
        with the mean evidence. Their later spread shows only later errors, so the variance so far
        is added to ``settled_variance``.
        """
        log_evidences = self.log_evidences
        combined = combine_islands(log_evidences)
        self.widest_spread = max(self.widest_spread, float(np.nan_to_num(combined.spread)))
        if not SETTLE_AT < combined.spread < MAX_STREAMED_SPREAD or math.isnan(combined.std_error):
            return
        # Rounds with the same seed have different first islands.
        numbers = random_numbers(self.seed, Stream.SETTLING, self.first_island, 0, self.num_chunks)
        chosen = systematic_indices(numbers.random(), log_evidences)
        self.settled_variance += combined.std_error**2
        shift = combined.log_evidence - log_evidences[:, None]
        position, log_weight, origin = self.cloud
        self.cloud = Cloud(position[chosen], (log_weight + shift)[chosen], origin[chosen])
        self.log_evidences = np.full(len(chosen), combined.log_evidence)

    def keep(self, chunk: ChunkRows) -> None:
        """Store the rows of a chunk, and count them."""
        seen = self.seen_with(chunk)
        self.rows.append(*chunk)
        self.num_observations = seen
        self.num_chunks += 1

    # --- replacing the estimate -----------------------------------------------------------------

    def go_on_from(self, log_evidence: float, std_error: float, sound: np.ndarray) -> None:
        """Replace the log evidence of the path, and its error, by another estimate.

        All islands continue with the new log evidence; their earlier differences no longer count.
        Islands that are not sound are replaced by copies of sound islands.
        """
        chosen = np.flatnonzero(sound)
        chosen = np.where(sound, np.arange(len(sound)), chosen[np.arange(len(sound)) % len(chosen)])
        position, log_weight, origin = self.cloud
        shift = log_evidence - self.log_evidences[chosen]
        log_weight = log_weight[chosen] + shift[:, None]
        self.cloud = Cloud(position[chosen], log_weight, origin[chosen])
        self.log_evidences = np.full(len(chosen), log_evidence)
        self.settled_variance, self.heating_bias, self.widest_spread = std_error**2, 0.0, 0.0

    def restate(self, log_evidence: float, std_error: float) -> None:
        """Correct the last point of the path."""
        self.path[-1] = self.path[-1]._replace(log_evidence=log_evidence, std_error=std_error)

    # --- results --------------------------------------------------------------------------------

    def stated(self) -> tuple[float, float]:
        """Log evidence of the path, and its error due to spread, heating and rounding."""
        combined = combine_islands(self.log_evidences)
        if not self.states_error or (self.heats and math.isnan(self.temperature)):
            return combined.log_evidence, math.nan
        variance = combined.std_error**2 + self.settled_variance
        lost = rounding_error(combined.log_evidence, self.num_chunks)
        biases = self.heating_bias, self.dimension_bias()
        return combined.log_evidence, math.hypot(math.sqrt(variance), *biases, lost)

    def dimension_bias(self) -> float:
        """How far all islands may be too low together; settled islands count with their spread."""
        num_islands, num_particles, dimension = self.cloud.position.shape
        settled = math.sqrt(num_islands * self.settled_variance)
        spread = math.hypot(combine_islands(self.log_evidences).spread, settled)
        return dimension_bias(spread, dimension, num_islands * num_particles)

    def cautions(self, std_error: float) -> dict[Status, bool]:
        """Reasons for caution, the gravest first, and whether each applies.

        Args:
            std_error: standard error that the run states.
        """
        combined = combine_islands(self.log_evidences)
        chance_error = math.sqrt(combined.std_error**2 + self.settled_variance)
        return {
            Status.FLAT: self._is_flat(),
            Status.ROUNDED: combined.is_rounded,
            Status.DIVERGED: self.counts["num_diverged"] + self.counts["num_undefined"] > 0,
            Status.PARTICLES_DROPPED: self.counts["dropped"] > 0,
            Status.STALLED: self.counts["stalled"] > 0,
            Status.HEATED: is_heated(self.heating_bias, chance_error),
            Status.LOW_ESS: bool(self.path) and self.path[-1].ess < MIN_STREAMED_PARTICLES,
            Status.ISLANDS_DISAGREE: self.widest_spread > MAX_STREAMED_SPREAD,
            Status.ERROR_UNKNOWN: math.isnan(std_error),
        }

    def _is_flat(self) -> bool:
        """Whether the weights are equal after every chunk, and equal for all islands."""
        whole = self.cloud.log_weight.shape[1] * (1.0 - ROUNDING)
        even = bool(self.path) and all(point.ess >= whole for point in self.path)
        return even and is_same(self.log_evidences)

    def evidence(
        self,
        method: str,
        stated: tuple[float, float],
        flags: tuple[Status, ...],
        elapsed: float,
        extra: dict[str, Any],
    ) -> Evidence:
        """The evidence so far.

        Args:
            method: name of the method in results.
            stated: log evidence and standard error, as the run states them.
            flags: reasons for caution.
            elapsed: seconds so far.
            extra: more diagnostics.
        """
        log_evidence, std_error = stated
        samples, log_weights = posterior(self.model, *self.cloud[:2])
        return Evidence(
            log_evidence=log_evidence,
            std_error=std_error,
            num_observations=round(self.num_observations),
            method=method,
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
            flags=flags,
            elapsed=elapsed,
        )

    # --- saved between chunks, and resumed bit for bit ------------------------------------------

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
        """Continue from a saved ``state``."""
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
