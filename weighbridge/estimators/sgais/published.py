"""Stochastic gradient annealed importance sampling as published: mini-batches without anchors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from weighbridge.core.checks import require_counts, require_fraction, require_particles
from weighbridge.core.compilation import in_double_precision
from weighbridge.core.errors import MethodError
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_STREAMED_SPREAD
from weighbridge.core.types import Kernel, PyTree
from weighbridge.data.cutting import pad
from weighbridge.estimators.annealing.loop import COUNTS, Annealed, PathSeed, anneal
from weighbridge.estimators.annealing.moves.kernels import Repeat
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings
from weighbridge.estimators.protocols import SequentialMethod
from weighbridge.estimators.sgais.chunk_stage import ChunkRows
from weighbridge.estimators.sgais.ledger import Ledger
from weighbridge.estimators.sgais.ledger_run import LedgerRun
from weighbridge.models.model import Model
from weighbridge.models.targets.batches import Batches
from weighbridge.models.targets.rows import Rows
from weighbridge.results.evidence_result import Evidence
from weighbridge.sampling.kernels.sghmc import SGHMC

# Learning rate and momentum decay of the paper, for one observation.
PUBLISHED_KERNEL = SGHMC(step_size=0.1, friction=0.2)


@dataclass(frozen=True)
class PublishedSGAIS(SequentialMethod):
    r"""Stochastic gradient annealed importance sampling as published.

    The rows come in chunks. Each chunk is annealed in through the densities

    .. math:: f_n^{(\lambda)}(\theta) = p(y_n | \theta)^\lambda
              \prod_{k<n} p(y_k | \theta) \; p(\theta), \qquad \lambda: 0 \to 1

    with steps of lambda chosen by the ESS, weights that need only the chunk itself, and moves
    that use mini-batches of past rows. The cost of a chunk does not grow with the number of rows
    seen. Cameron, Eggers & Kroon (2019), Entropy 21:1109, algorithm 1.

    The moves are not adjusted: mini-batch noise heats the particles to a temperature that grows
    with the rows seen, which biases the log evidence. The temperature is measured during the
    run, and the resulting bias is part of the standard error. Use ``SGAIS`` instead;
    ``SGAIS.published()`` gives this method with the parameters of the paper.

    Args:
        num_islands: independent populations; their spread gives the standard error.
        num_particles: particles of each island.
        chunk_size: rows of a chunk.
        batch_size: rows of a mini-batch.
        num_moves: kernel steps for each intermediate density.
        target_ess: ESS of the incremental weights, as a fraction of the particles.
        resample_below: resample when the carried ESS falls below this fraction; 0 never resamples.
        kernel: the move, with step sizes for ONE observation: for n rows it is rescaled to
            variances 1/n, so a learning rate of 0.1 becomes 0.1/n.
        step_follows_power: whether n counts the rows of the current chunk in proportion to
            lambda, so that the first moves have the scale of the prior. Otherwise n counts them
            fully from the start, as published.
        reservoir: rows kept for mini-batches; of more rows a uniform sample is kept.
        states_error: whether the spread of the islands is stated as the error.
    """

    num_islands: int = 16
    num_particles: int = 32
    chunk_size: int = 500
    batch_size: int = 500
    num_moves: int = 20
    target_ess: float = 0.5
    resample_below: float = 0.5
    kernel: Kernel = PUBLISHED_KERNEL
    step_follows_power: bool = True
    reservoir: int = 1_000_000
    states_error: bool = True

    counts: ClassVar[tuple[str, ...]] = COUNTS
    disagreement: ClassVar[float] = MAX_STREAMED_SPREAD
    evens_islands: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the method in results."""
        return "sgais" if self.states_error else "sgais, published"

    def __post_init__(self) -> None:
        sizes = ("num_islands", "num_particles", "chunk_size", "batch_size", "num_moves")
        require_counts(self, *sizes, "reservoir")
        require_particles(self)
        require_fraction(self, "target_ess")
        if not isinstance(self.resample_below, int | float):
            raise MethodError(f"resample_below must be a number, not {self.resample_below!r}.")
        if not 0 <= self.resample_below <= 1:
            raise MethodError(f"resample_below must lie in [0, 1], not {self.resample_below!r}.")
        if not isinstance(self.kernel, Kernel):
            raise MethodError(f"kernel must be a kernel such as wb.SGHMC(), not {self.kernel!r}.")

    def chunk_after(self, rows_seen: int, *, in_memory: bool) -> int:
        """Rows of the next chunk: always ``chunk_size``."""
        return self.chunk_size

    def start(self, model: Model, *, seed: int = 0, first_island: int = 0) -> PublishedRun:
        """Begin a run; ``absorb`` then takes chunks."""
        return PublishedRun(self, model, seed, first_island)


class PublishedRun(LedgerRun):
    """The state of a run, with mini-batches of the kept rows."""

    def __init__(
        self, method: PublishedSGAIS, model: Model, seed: int, first_island: int = 0
    ) -> None:
        self.method = method
        self.ledger = Ledger(method, model, seed, first_island)

    def absorb(self, values: PyTree, weight: np.ndarray) -> None:
        """Process one chunk; after an error the run is unchanged."""
        with in_double_precision(), self.undoable():
            bring_in(self.ledger, ChunkRows(values, weight), self._anneal)

    def _anneal(self, chunk: ChunkRows) -> Annealed:
        """Anneal the chunk in; the weights use all rows of the chunk."""
        method, ledger = self.method, self.ledger
        seen = ledger.seen_with(chunk)
        settings = Settings(
            target_ess=method.target_ess,
            resample_below=method.resample_below,
            conditional=float(method.resample_below > 0),
        )
        mover = Repeat(
            kernel=method.kernel,
            num_moves=method.num_moves,
            rows_past=1.0 + ledger.num_observations if method.step_follows_power else seen,
            rows_chunk=seen - ledger.num_observations if method.step_follows_power else 0.0,
        )
        return anneal(
            PathSeed(ledger.seed, ledger.num_chunks, ledger.islands),
            ledger.cloud,
            paths_with_batches(method, ledger, chunk),
            mover,
            settings,
        )

    def flags(self) -> tuple[Status, ...]:
        """Reasons for caution, the gravest first."""
        return batch_flags(self.ledger)

    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence so far."""
        ledger = self.ledger
        with in_double_precision():
            return ledger.evidence(self.method.name, ledger.stated(), self.flags(), elapsed, extra)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues bit for bit."""
        return self.ledger.state()

    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from a saved ``state``."""
        self.ledger.restore(arrays, plain)


def bring_in(
    ledger: Ledger, chunk: ChunkRows, anneal_chunk: Callable[[ChunkRows], Annealed]
) -> None:
    """Process one chunk: anneal the particles, record the outcome, keep the rows."""
    if chunk.num_observations > 0:
        with ledger.naming_rows(chunk):
            outcome = anneal_chunk(chunk)
        ledger.accept(outcome, chunk)
        ledger.record(outcome, chunk)
        ledger.add_point(outcome, chunk, *ledger.stated())
        ledger.settle()
    ledger.keep(chunk)


def paths_with_batches(
    method: PublishedSGAIS, ledger: Ledger, chunk: ChunkRows
) -> Callable[[int], Path]:
    """The path of a chunk at each step, with fresh mini-batches of the past for each island."""
    rows, islands = ledger.rows, ledger.islands
    shape = (method.num_moves if method.kernel.uses_batches else 1, method.batch_size)
    scale = np.full(len(islands), rows.num_seen / method.batch_size)
    padded = Rows(*pad(*chunk, method.chunk_size))

    def path_at(step: int) -> Path:
        if rows.num_kept:
            place = (ledger.seed, ledger.num_chunks, step, islands)
            batches = Rows(*rows.gather(_draw_rows(*place, rows.num_kept, shape)))
        else:  # there are no past rows yet: any valid row, at scale 0
            first = np.zeros((len(islands), *shape), int)
            batches = jax.tree_util.tree_map(lambda leaf: leaf[first], padded)
        past = Batches(batches, scale, np.zeros(len(islands), int))
        return Path(ledger.model, (past,), padded)

    return path_at


def batch_flags(ledger: Ledger) -> tuple[Status, ...]:
    """Reasons for caution about a run on mini-batches of its reservoir, the gravest first."""
    found = ledger.cautions(ledger.stated()[1])
    found |= {Status.RESERVOIR: not ledger.rows.is_complete}
    return tuple(flag for flag, raised in found.items() if raised)


def _draw_rows(
    seed: int, chunk: int, step: int, islands: np.ndarray, kept: int, shape: tuple[int, int]
) -> np.ndarray:
    """Indices of the rows in each island's mini-batches, drawn with replacement.

    The random numbers come from a counter-based generator on the host. Seed, chunk, step and island
    determine them, and nothing has to be compiled.
    """
    drawn = (random_numbers(seed, Stream.BATCHES, island, step, chunk) for island in islands)
    return np.stack([numbers.integers(0, kept, shape) for numbers in drawn])
