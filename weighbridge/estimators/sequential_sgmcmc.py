"""Sequential evidence with SG-MCMC: draws from the posterior so far predict the next chunk."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.checks import require_counts
from weighbridge.core.compilation import in_double_precision, jit
from weighbridge.core.errors import MethodError
from weighbridge.core.islands import combine_islands
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MIN_STREAMED_PARTICLES
from weighbridge.core.types import Array, Kernel, PyTree
from weighbridge.data.cutting import join, pad, rechunk
from weighbridge.data.values import num_rows
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.loop import COUNTS, Annealed, PathSeed, anneal
from weighbridge.estimators.annealing.moves.kernels import Repeat
from weighbridge.estimators.annealing.reweighting import Settings
from weighbridge.estimators.path_points import PathPoint
from weighbridge.estimators.protocols import BatchMethod, SequentialMethod
from weighbridge.estimators.sgais.chunk_stage import ChunkRows
from weighbridge.estimators.sgais.ledger import Ledger
from weighbridge.estimators.sgais.ledger_run import LedgerRun
from weighbridge.estimators.sgais.published import (
    PUBLISHED_KERNEL,
    PublishedSGAIS,
    batch_flags,
    bring_in,
    paths_with_batches,
)
from weighbridge.estimators.tempering.smc import SMC
from weighbridge.models.model import EDGE, Model
from weighbridge.models.priors import Parameters
from weighbridge.results.evidence_result import Evidence


@dataclass(frozen=True)
class SequentialSGMCMC(SequentialMethod):
    r"""Predictive factors averaged over posterior samples that SG-MCMC draws on mini-batches.

    .. math:: \log \hat Z = \log \hat Z_{start} + \sum_n \log \frac1M \sum_i p(y_n | \theta_i),
              \qquad \theta_i \sim p(\theta | y_{<n})

    After each chunk the particles are moved a few steps, on this chunk and on mini-batches of
    the rows before it. They are never weighted or resampled. The chunks grow with the number of
    rows (20, 40, 60, ... up to 500), since one row among many changes the posterior little.
    Cameron, Eggers & Kroon (2019), Proceedings 33(1); the predecessor of SGAIS.

    The estimate is biased, and the spread of the islands does not show the bias. The log of an
    average over few draws is too low (by half its relative variance). Mini-batch noise heats the
    particles. Particles that have not converged do not yet reflect all rows before. The error is
    therefore stated as unknown; ``diagnostics["spread_error"]`` is the error according to the
    spread of the islands.

    Args:
        num_islands: independent sets of chains.
        num_particles: chains of each set.
        chunk_growth: rows by which each chunk is larger than the one before; also the rows of the
            first chunk.
        max_chunk: the most rows of a chunk.
        batch_size: rows of a mini-batch.
        num_moves: kernel steps for each chunk.
        kernel: ``SGHMC`` or ``SGLD``, with step sizes for ONE observation, as in ``SGAIS``.
        start_with: the method for the first rows, whose factors vary most, such as ``SMC()``, or
            ``NestedSampling()`` as in the thesis; None begins at the prior. On a stream it runs
            again at each update until it has had all these rows.
        start_rows: number of these first rows.
        reservoir: rows kept for mini-batches; of more rows a uniform sample is kept.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(1000, seed=1)
    >>> result = wb.evidence(wb.zoo.gaussian.model(), data, SequentialSGMCMC(), seed=0)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 3
    True
    >>> result.std_error, wb.Status.ERROR_UNKNOWN in result.flags
    (nan, True)
    """

    num_islands: int = 16
    num_particles: int = 32
    chunk_growth: int = 20
    max_chunk: int = 500
    batch_size: int = 500
    num_moves: int = 20
    kernel: Kernel = PUBLISHED_KERNEL
    start_with: BatchMethod | SequentialMethod | None = field(default_factory=SMC)
    start_rows: int = 100
    reservoir: int = 1_000_000

    counts: ClassVar[tuple[str, ...]] = COUNTS
    states_error: ClassVar[bool] = False
    chunk_size: ClassVar[int] = 10_000  # rows of one ``absorb``; the run cuts them into chunks
    name: ClassVar[str] = "sequential_sgmcmc"

    def __post_init__(self) -> None:
        require_counts(self, "chunk_growth", "max_chunk", "start_rows")
        self.engine()  # checks the other settings
        if not isinstance(self.start_with, BatchMethod | SequentialMethod | None):
            raise MethodError(
                f"start_with must be a method such as wb.SMC(), or None, not {self.start_with!r}."
            )
        if self.start_with is not None and self.start_rows > self.reservoir:
            raise MethodError(
                f"The reservoir holds {self.reservoir} rows and must hold the first "
                f"{self.start_rows}: raise reservoir, or lower start_rows."
            )

    def engine(self) -> PublishedSGAIS:
        """Published SGAIS with the same islands, kernel and mini-batches."""
        return PublishedSGAIS(
            num_islands=self.num_islands,
            num_particles=self.num_particles,
            chunk_size=self.max_chunk,
            batch_size=self.batch_size,
            num_moves=self.num_moves,
            resample_below=0.0,
            kernel=self.kernel,
            step_follows_power=False,
            reservoir=self.reservoir,
            states_error=False,
        )

    def next_chunk(self, rows_seen: int) -> int:
        """Rows of the next chunk: (k + 1) ``chunk_growth`` after k chunks, at most ``max_chunk``.

        The first k chunks together have k (k + 1) / 2 times ``chunk_growth`` rows.

        >>> [SequentialSGMCMC().next_chunk(rows) for rows in (0, 20, 60, 100, 5000, 100_000)]
        [20, 40, 60, 60, 440, 500]
        """
        chunks_before = (math.isqrt(1 + 8 * rows_seen // self.chunk_growth) - 1) // 2
        return min(self.chunk_growth * (chunks_before + 1), self.max_chunk)

    def chunk_after(self, rows_seen: int, *, in_memory: bool) -> int:
        """Rows of one ``absorb``: always ``chunk_size``."""
        return self.chunk_size

    def start(self, model: Model, *, seed: int = 0, first_island: int = 0) -> SequentialSGMCMCRun:
        """Begin a run; ``absorb`` then takes rows."""
        return SequentialSGMCMCRun(self, model, seed, first_island)


class SequentialSGMCMCRun(LedgerRun):
    """The state of a run, with the mini-batches of published SGAIS."""

    def __init__(
        self, method: SequentialSGMCMC, model: Model, seed: int, first_island: int = 0
    ) -> None:
        self.method, self.engine = method, method.engine()
        self.ledger = Ledger(self.engine, model, seed, first_island)
        self.start_error = 0.0
        self.start_flags: tuple[Status, ...] = ()

    def absorb(self, values: PyTree, weight: np.ndarray) -> None:
        """Process rows in chunks that grow; after an error the run is unchanged."""
        start = 0
        with in_double_precision(), self.undoable():
            for stop in self._stops(num_rows(values)):
                piece = slice(start, stop)
                rows = jax.tree_util.tree_map(lambda leaf: leaf[piece], values)  # noqa: B023
                chunk = ChunkRows(rows, weight[piece])
                if self._is_starting(self.num_rows):
                    self._begin(chunk)
                else:
                    bring_in(self.ledger, chunk, self._anneal)
                start = stop

    def _is_starting(self, rows_seen: int) -> bool:
        """Whether the next rows belong to ``start_with``, the method for the first rows."""
        return self.method.start_with is not None and rows_seen < self.method.start_rows

    def _is_only_start(self) -> bool:
        """Whether all rows so far belong to ``start_with``: then its result is the answer."""
        return self._is_starting(self.num_rows - 1)

    def _stops(self, size: int) -> list[int]:
        """Ends of the chunks into which this many new rows are cut."""
        stops = [0]
        while stops[-1] < size:
            seen = self.num_rows + stops[-1]
            first = self.method.start_rows - seen
            chunk = first if self._is_starting(seen) else self.method.next_chunk(seen)
            stops.append(min(stops[-1] + chunk, size))
        return stops[1:]

    def _begin(self, chunk: ChunkRows) -> None:
        """Run ``start_with`` on all rows so far; take over its evidence and posterior draws."""
        ledger = self.ledger
        if chunk.num_observations > 0:
            pieces: list[tuple[PyTree, np.ndarray]] = [(chunk.values, chunk.weight)]
            if ledger.num_rows:
                pieces.insert(0, ledger.rows.gather(np.arange(ledger.num_rows)))
            # Padded to a fixed number of rows, so that the next update compiles nothing new.
            joined, weights = join(pieces)
            everything = pad(joined, weights, self.method.start_rows)
            self._take_over(self._estimate(*everything), ledger.seen_with(chunk))
        ledger.keep(chunk)

    def _estimate(self, values: PyTree, weight: np.ndarray) -> Evidence:
        method, model = self.method.start_with, self.ledger.model
        seed, island = self.ledger.seed, self.ledger.first_island
        assert method is not None
        if not isinstance(method, SequentialMethod):
            return method.estimate(model, values, weight, seed=seed, first_island=island)
        run = method.start(model, seed=seed, first_island=island)
        sizes = partial(method.chunk_after, in_memory=True)
        for rows, its_weight in rechunk([(values, weight)], sizes):
            run.absorb(rows, its_weight)
        return run.result(0.0, {})

    def _take_over(self, found: Evidence, seen: float) -> None:
        """Continue from a result: its draws, with equal weights, and its log evidence."""
        ledger = self.ledger
        islands, particles = ledger.cloud.log_weight.shape
        draws = found.resample(islands * particles, seed=ledger.seed + ledger.first_island)
        position = np.asarray(_positions(ledger.model, draws))
        position = position.reshape(ledger.cloud.position.shape)
        log_weight = np.full((islands, particles), found.log_evidence)
        origin = np.broadcast_to(np.arange(particles), (islands, particles))
        ledger.cloud = Cloud(position, log_weight, origin)
        ledger.log_evidences = np.full(islands, found.log_evidence)
        self.start_error, self.start_flags = found.claimed_error, found.flags
        ess = min(1.0 / float(np.sum(np.exp(2 * found.log_weights))) / islands, particles)
        # The trace of nested sampling has an entry for each point, not for each step.
        steps = float(found.diagnostics.get("num_batches", len(found.trace["log_evidence"])))
        known = (found.log_evidence, found.claimed_error, steps, ess)
        ledger.path.append(PathPoint(seen, *known, ledger.temperature))

    def _anneal(self, chunk: ChunkRows) -> Annealed:
        """One annealing step with the whole chunk, no resampling; then the weights are averaged."""
        engine, ledger = self.engine, self.ledger
        outcome = anneal(
            PathSeed(ledger.seed, ledger.num_chunks, ledger.islands),
            ledger.cloud,
            paths_with_batches(engine, ledger, chunk),
            Repeat(engine.kernel, engine.num_moves, rows_past=ledger.seen_with(chunk)),
            Settings(engine.target_ess, resample_below=0.0, schedule=np.ones(1)),
        )
        # A particle with zero likelihood is not a draw from the posterior; its weight stays 0.
        alive = np.isfinite(outcome.cloud.log_weight)
        share = np.log(alive.shape[1] / np.maximum(alive.sum(axis=1), 1))
        average = (outcome.steps[-1].log_evidence + share)[:, None]
        log_weight = np.where(alive, average, -np.inf)
        return outcome._replace(cloud=outcome.cloud._replace(log_weight=log_weight))

    def flags(self) -> tuple[Status, ...]:
        """Reasons for caution, the gravest first."""
        if self._is_only_start():
            return self.start_flags
        found = {
            Status.LOW_ESS: any(point.ess < MIN_STREAMED_PARTICLES for point in self.path),
            Status.PARTICLES_DROPPED: self.ledger.counts["num_infinite"] > 0,
            Status.UNADJUSTED: self.method.kernel.uses_batches,
        }
        raised = (flag for flag, is_so in found.items() if is_so)
        return tuple(dict.fromkeys((*batch_flags(self.ledger), *raised, *self.start_flags)))

    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence so far."""
        ledger = self.ledger
        spread = combine_islands(ledger.log_evidences).std_error
        settled = math.sqrt(ledger.settled_variance)
        errors = {
            "spread_error": math.hypot(spread, settled, self.start_error),
            "start_error": self.start_error,
        }
        std_error = self.start_error if self._is_only_start() else math.nan
        stated = (ledger.stated()[0], std_error)
        with in_double_precision():
            return ledger.evidence(self.method.name, stated, self.flags(), elapsed, extra | errors)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues."""
        arrays, plain = self.ledger.state()
        names = [flag.name for flag in self.start_flags]
        return arrays, plain | {"start_error": self.start_error, "start_flags": names}

    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from a saved ``state``."""
        self.ledger.restore(arrays, plain)
        self.start_error = float(plain["start_error"])
        self.start_flags = tuple(Status[name] for name in plain["start_flags"])


@jit
def _positions(model: Model, draws: Parameters) -> Array:
    """Unconstrained vectors of posterior draws; a draw on the boundary is moved just inside."""
    positions = jax.vmap(model.flatten)(draws)
    return jnp.where(
        jnp.isfinite(positions), positions, jnp.nan_to_num(jnp.clip(positions, -EDGE, EDGE))
    )
