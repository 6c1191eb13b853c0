"""The ledger of a stream: its particles, the rows it keeps, its path, and what that may err by.

Runs of ``SGAIS``, ``SGAIS.published()`` and ``SequentialSGMCMC`` own one each. They write every
chunk down in it: ``accept``, ``record``, ``add_point``, ``settle``, ``keep``, in this order.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, Protocol

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
    posterior,
    restored_cloud,
    unexplained,
)
from weighbridge.estimators.sgais.stage import ChunkRows
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import FIRST_ORDER_ABOVE
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.unbounded import UnboundedError
from weighbridge.results.evidence_result import Evidence

# Spread of log Z over islands (nats) at which islands are resampled: beyond it their mean is
# little but their maximum.
SETTLE_AT = 2.0


class Population(Protocol):
    """What a ledger asks of the method of a run."""

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


class Ledger:
    """Where a stream stands, and how it got there.

    Args:
        population: the method, for its numbers of islands and particles and its reservoir.
        model: with a log-likelihood of rows.
        seed: of the run.
        first_island: number of its first island.
        forgets: whether rows count less and less, and old ones are not kept.
        heats: whether moves may heat the particles; no error is stated of those that do not tell
            their temperature.

    Attributes:
        rows: those that are kept, for mini-batches.
        cloud: the particles, weighted by all rows so far.
        log_evidences: of the islands.
        path: what was known after each chunk.
        num_observations: rows seen, repeated rows counted.
        num_chunks: how many chunks they came in.
        temperature: of the last moves; NaN where they do not tell it.
        heating_bias: what the temperature has cost so far, in nats.
        settled_variance: of the log evidence, from before islands were last made alike.
        widest_spread: the largest that the spread of islands has been, in nats.
        repaired: nats by which the path was put right.
        counts: what is counted over all annealing steps.
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
        key = jax.random.key(seed, impl="threefry2x32")
        self.cloud: Cloud = draw_cloud(model, key, self.islands, num_particles)
        self.log_evidences = np.zeros(num_islands)

    @property
    def num_rows(self) -> int:
        """Rows seen, whatever they count."""
        return self.rows.num_seen

    @contextlib.contextmanager
    def undoable(self) -> Iterator[None]:
        """A block after which, if it ends in an error, the ledger is as before."""
        with restored_on_error(self), self.rows.undoable():
            yield

    def kept(self) -> Kept | None:
        """All rows seen or a uniform sample of them; None if that is not what it keeps."""
        if not isinstance(self.rows, Reservoir) or not self.rows.num_kept:
            return None
        return Kept(*self.rows.gather(np.arange(self.rows.num_kept)), self.rows.is_complete)

    # --- a chunk is written down, in this order -------------------------------------------------

    def seen_with(self, chunk: ChunkRows) -> float:
        """Rows seen once this chunk is in, repeated rows counted."""
        return self.num_observations + chunk.num_observations

    @contextlib.contextmanager
    def naming_rows(self, chunk: ChunkRows) -> Iterator[None]:
        """A block that brings a chunk in; the error of an infinite density names its row."""
        try:
            yield
        except UnboundedError as error:
            found = error.at_rows(self.model, Rows(*chunk), self.num_rows)
            if found is error and isinstance(self.rows, Reservoir) and self.rows.is_complete:
                everything = self.rows.gather(np.arange(self.rows.num_kept))
                found = error.at_rows(self.model, Rows(*everything), 0)
            raise found from None

    def accept(self, outcome: Annealed, chunk: ChunkRows) -> None:
        """Go on from these particles; a chunk that none of them can explain is refused."""
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
                self.counts[name] += int(getattr(step, name).sum())
        self.counts["stalled"] += outcome.stalled
        last = outcome.steps[-1]
        self.log_evidences = np.asarray(last.log_evidence)
        self.temperature = float(np.mean(getattr(last.moves, "temperature", math.nan)))
        if not math.isnan(self.temperature):
            # A posterior at temperature T loses (T - 1) D / 2 nats for each e-fold of rows.
            excess = 0.5 * self.model.dimension * (self.temperature - 1.0)
            self.heating_bias += excess * chunk.num_observations / self.seen_with(chunk)

    def add_point(
        self, outcome: Annealed, chunk: ChunkRows, log_evidence: float, std_error: float
    ) -> None:
        """Add what is known after a chunk to the path, as the run states it."""
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

    def keep(self, chunk: ChunkRows) -> None:
        """Keep the rows of a chunk, and count them."""
        seen = self.seen_with(chunk)
        self.rows.append(*chunk)
        self.num_observations = seen
        self.num_chunks += 1

    # --- another estimate takes over ------------------------------------------------------------

    def go_on_from(self, log_evidence: float, std_error: float, sound: np.ndarray) -> None:
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

    def restate(self, log_evidence: float, std_error: float) -> None:
        """Put the last point of the path right."""
        self.path[-1] = self.path[-1]._replace(log_evidence=log_evidence, std_error=std_error)

    # --- what it comes to -----------------------------------------------------------------------

    def stated(self) -> tuple[float, float]:
        """Log evidence by the path, and its error by the islands, heating and rounding."""
        combined = combine_islands(self.log_evidences)
        if not self.states_error or (self.heats and math.isnan(self.temperature)):
            return combined.log_evidence, math.nan
        variance = combined.std_error**2 + self.settled_variance
        lost = rounding_error(combined.log_evidence, self.num_chunks)
        return combined.log_evidence, math.hypot(math.sqrt(variance), self.heating_bias, lost)

    def cautions(self, std_error: float) -> dict[Status, bool]:
        """Reasons for caution and whether each is given, the gravest first.

        Args:
            std_error: as the run states it.
        """
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
            Status.ERROR_UNKNOWN: math.isnan(std_error),
        }

    def _is_flat(self) -> bool:
        """Whether no chunk has told particles apart, nor islands."""
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
            method: what results call the method.
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
