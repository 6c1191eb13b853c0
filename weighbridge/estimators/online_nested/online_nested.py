"""Nested sampling on a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weighbridge.core.checks import require_counts
from weighbridge.core.errors import MethodError
from weighbridge.core.islands import Combined, combine_logs
from weighbridge.core.thresholds import MAX_STREAMED_SPREAD
from weighbridge.estimators.nested.merging import COUNTS
from weighbridge.estimators.nested.nested_sampling import NestedSampling
from weighbridge.estimators.online_nested.run import OnlineNestedRun
from weighbridge.estimators.protocols import SequentialMethod
from weighbridge.models.model import Model

# Moves that leave any density unchanged.
MOVES = ("slice", "random_walk", "galilean")


@dataclass(frozen=True)
class OnlineNestedSampling(SequentialMethod):
    r"""Nested sampling on a stream: the posterior of earlier rows is the prior of a chunk.

    .. math:: \log Z = \sum_n \log p(y_n | y_{<n}), \qquad
              p(y_n | y_{<n}) = \int p(y_n | \theta) \, p(\theta | y_{<n}) \, d\theta

    Each factor is a run of nested sampling. Its live points start from a weighted reservoir of the
    points of the run before (``core/weighted_reservoir.py``), one for each island. They are moved
    with the posterior of the earlier rows as the target before the first one dies.

    **Cost.** This posterior is computed from all rows so far, which are kept. A chunk takes about
    20,000 evaluations for each hundred live points in one dimension and 170,000 in six, and each
    evaluation takes all rows so far: the cost of a chunk grows in proportion to the rows seen, and
    that of a stream in n chunks with the square of n. On data in memory chunks double, so that all
    chunks together cost about twice as much as the last one. The document moves particles by SGHMC
    on mini-batches, at a cost that does not grow. Mini-batch noise heats the particles, so this is
    not done here; ``SGAIS`` is the method for long streams.

    **Error.** The variances of the chunks add up; each is that of simulated volumes. The islands
    never exchange particles. If their sums over chunks differ by more than these errors explain,
    the error is raised to that of their spread: it shows particles that are too few for the shape
    of the posterior, and modes that got lost on the way. What all islands have lost is not shown.

    S. Cameron, Evidence Estimation Using Stochastic Likelihood Approximations (Stellenbosch
    University), section 4.3; Skilling (2006), Bayesian Analysis 1:833-859.

    Args:
        num_live: live points of all islands together; as many particles are kept.
        num_islands: independent runs.
        chunk_size: most rows of a chunk of a stream. In memory, a chunk has as many rows as all
            before it, and at least this many.
        moves: "slice", "random_walk" or "galilean", as in ``NestedSampling``.
        num_moves, delete, remainder: as in ``NestedSampling``.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(60, seed=1)
    >>> online = wb.Online(wb.zoo.gaussian.model(), OnlineNestedSampling(num_live=200), seed=0)
    >>> for start in (0, 20, 40):
    ...     update = online.update(data[start : start + 20])
    >>> exact = wb.zoo.gaussian.log_evidence(data)
    >>> abs(update.log_evidence - exact) < 4 * update.std_error
    True
    """

    num_live: int = 500
    num_islands: int = 4
    chunk_size: int = 500
    moves: str = "slice"
    num_moves: int | None = None
    delete: float = 0.5
    remainder: float = 0.01

    name: ClassVar[str] = "online_nested"
    counts: ClassVar[tuple[str, ...]] = (*COUNTS, "num_chunks")
    disagreement: ClassVar[float] = MAX_STREAMED_SPREAD

    def __post_init__(self) -> None:
        require_counts(self, "chunk_size")
        if self.moves not in MOVES:
            raise MethodError(
                f"moves is one of {list(MOVES)} on a stream, not {self.moves!r}: the posterior of "
                "earlier rows cannot be drawn from, and moves must leave it unchanged."
            )
        self.engine()  # checks the other settings

    def engine(self) -> NestedSampling:
        """Nested sampling with the same settings, for one chunk."""
        return NestedSampling(
            num_live=self.num_live,
            num_islands=self.num_islands,
            moves=self.moves,
            num_moves=self.num_moves,
            delete=self.delete,
            remainder=self.remainder,
        )

    def combine(self, islands: np.ndarray) -> Combined:
        """Errors of nested sampling are errors of log Z: its mean over islands is the answer."""
        return combine_logs(islands)

    def chunk_after(self, rows_seen: int, *, in_memory: bool) -> int:
        """Rows of the next chunk.

        >>> [OnlineNestedSampling().chunk_after(rows, in_memory=True) for rows in (0, 500, 1000)]
        [500, 500, 1000]
        """
        return max(rows_seen, self.chunk_size) if in_memory else self.chunk_size

    def start(self, model: Model, *, seed: int = 0, first_island: int = 0) -> OnlineNestedRun:
        """Begin a run; ``absorb`` then takes chunks."""
        return OnlineNestedRun(self, model, seed, first_island)
