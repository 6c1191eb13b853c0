"""Stochastic gradient annealed importance sampling on anchored targets, chunk by chunk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from weighbridge.core.checks import require_counts, require_fraction, require_particles
from weighbridge.core.errors import MethodError
from weighbridge.core.thresholds import MAX_STREAMED_SPREAD
from weighbridge.core.types import Kernel
from weighbridge.estimators.annealing.loop import COUNTS
from weighbridge.estimators.protocols import AtOnce, SequentialMethod
from weighbridge.estimators.sgais.at_once import evidence_at_once, suits
from weighbridge.estimators.sgais.preparation import EXACT_ROWS
from weighbridge.estimators.sgais.published import PublishedSGAIS
from weighbridge.estimators.sgais.run import SGAISRun
from weighbridge.models.model import Model

# Rows of a chunk of a stream, and of the first chunk of data in memory, whose chunks grow.
STREAM_CHUNK = 500
FIRST_CHUNK = 256
# The largest chunk as a share of the half-life, unless its size is given.
SHARE_OF_HALF_LIFE = 0.25


@dataclass(frozen=True)
class SGAIS(SequentialMethod):
    r"""Stochastic gradient annealed importance sampling, on anchored targets.

    The rows come in chunks. Each chunk is added along the densities

    .. math:: f_n^{(\lambda)}(\theta) = p(y_n | \theta)^\lambda
              \prod_{k<n} p(y_k | \theta) \; p(\theta), \qquad \lambda: 0 \to 1

    with steps of lambda chosen by the ESS. For moves the past is its exact second-order expansion
    at an anchor near the posterior's centre, plus a remainder that is estimated on mini-batches
    (see ``Anchored``). The variance of this estimate over batches is measured. The size of the
    batch, and an anchor that follows the particles, keep it below ``noise``. Trajectories follow
    the gradient of a few rows of the batch, and are accepted with all of its rows. The cost of a
    chunk does not grow with the number of rows seen. Cameron, Eggers & Kroon (2019), Entropy
    21:1109; control variates for mini-batches: Baker, Fearnhead, Fox & Nemeth (2019), Statistics
    and Computing 29:599-615.

    At the end, and at every request for a result, a two-sided bridge to a Gaussian gives a second
    estimate of log Z, without the errors of the path. It is the answer if Pareto k-hat is below
    0.5 in both directions, unless the path is clearly higher; ``diagnostics`` has both.

    From 301 to 1,000 parameters a path takes long, and its particles are too few for a bridge. With
    all rows in memory, ``wb.evidence`` and ``wb.compare`` then try importance sampling first, with
    a Gaussian around the mode that 256 climbs from prior draws find (``answer`` is "mode"). If one
    of them ends elsewhere, or if k-hat is not below 0.5, the rows are taken in chunks as ever.

    Args:
        num_islands: independent populations; their spread is the error bar.
        num_particles: particles of each island.
        chunk_size: rows of a chunk; a chunk has at most as many rows as were seen before, or 1,024
            if those are fewer. By default 500 for a stream; for rows in memory as many as were
            seen before, and 256 at first.
        batch_size: the most rows of a mini-batch; if such batches are too noisy, the result is
            flagged. By default 8,192; and all rows if no anchor fits (as in a mixture with more
            components than clusters), if they are in memory and at most 131,072. This takes long,
            but is right.
        noise: allowed variance of the log density over mini-batches.
        target_ess: ESS of a step, as a fraction of the particles.
        kernel: how particles move, by default HMC on one batch. A kernel such as ``SGHMC``, with
            step sizes for ONE observation, makes 20 steps at each power, each on a new batch.
        reservoir: rows kept for mini-batches; if there are more, those kept are a uniform sample.
        shuffle: whether ``wb.evidence`` and ``wb.compare`` take rows that are in memory in random
            order. By default (None) they do if the rows change along the data by more than chance,
            as rows sorted by a label do: the posterior of the first rows is then far from that of
            all. The trace is then that of random first parts of the data, and
            ``diagnostics["row_order"]`` reports it. The rows of a stream are never shuffled.
        half_life: number of observations after which a row counts half; None never forgets. Before
            each chunk of c observations the likelihood of all rows before is raised to the power
            2^(-c / half_life) (a power prior: Ibrahim & Chen 2000, Statistical Science 15:46-60).
            The log evidence is then the sum over chunks of log p(chunk | faded past). It can be
            compared with that of any model on the same chunks.

    >>> import weighbridge as wb
    >>> data = wb.zoo.linear.simulate(2000, seed=1)
    >>> result = wb.evidence(wb.zoo.linear.model(), data, SGAIS(), seed=0)
    >>> abs(result.log_evidence - wb.zoo.linear.log_evidence(data)) < 1e-4
    True
    """

    num_islands: int = 16
    num_particles: int = 64
    chunk_size: int | None = None
    batch_size: int | None = None
    noise: float = 0.01
    target_ess: float = 0.5
    kernel: Kernel | None = None
    reservoir: int = 1_000_000
    half_life: float | None = None
    shuffle: bool | None = None

    name: ClassVar[str] = "sgais"
    counts: ClassVar[tuple[str, ...]] = COUNTS
    disagreement: ClassVar[float] = MAX_STREAMED_SPREAD
    evens_islands: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_counts(self, "reservoir")
        for name in ("chunk_size", "batch_size"):
            if getattr(self, name) is not None:
                require_counts(self, name)
        require_particles(self)
        require_fraction(self, "target_ess")
        if not isinstance(self.noise, int | float):
            raise MethodError(f"noise must be a number, not {self.noise!r}.")
        if not self.noise > 0:
            raise MethodError(f"noise must be positive, not {self.noise!r}: it is a variance.")
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise MethodError(f"kernel must be a kernel such as wb.SGHMC(), not {self.kernel!r}.")
        if self.shuffle not in (None, True, False):
            raise MethodError(f"shuffle must be True, False or None, not {self.shuffle!r}.")
        if self.half_life is not None:
            self._check_forgetting()

    def _check_forgetting(self) -> None:
        if not isinstance(self.half_life, int | float) or not 0 < self.half_life < math.inf:
            raise MethodError(
                f"half_life must be a positive number of observations, not {self.half_life!r}; "
                "None never forgets."
            )
        if self.kernel is not None:
            raise MethodError("half_life works only with the default moves: leave out kernel.")
        if self.shuffle:
            raise MethodError("half_life needs rows in their own order: leave out shuffle.")

    @staticmethod
    def published() -> PublishedSGAIS:
        """The algorithm and the parameters of the paper: 10 particles, ESS 5, no resampling.

        Mini-batch noise heats its particles. The spread over islands does not show this bias, so
        its error is always stated as unknown.

        >>> SGAIS.published().num_particles
        10
        """
        return PublishedSGAIS(
            num_islands=1,
            num_particles=10,
            resample_below=0.0,
            step_follows_power=False,
            states_error=False,
        )

    def chunk_after(self, rows_seen: int, *, in_memory: bool) -> int:
        """Rows of the next chunk.

        >>> [SGAIS().chunk_after(rows, in_memory=True) for rows in (0, 256, 512)]
        [256, 256, 512]
        """
        if self.chunk_size is not None:
            return min(self.chunk_size, max(rows_seen, EXACT_ROWS))
        chunk = max(rows_seen, FIRST_CHUNK) if in_memory else STREAM_CHUNK
        if self.half_life is None:
            return chunk
        # Nothing is forgotten within a chunk, so it must be short.
        return max(min(chunk, int(SHARE_OF_HALF_LIFE * self.half_life)), 1)

    @property
    def shuffles(self) -> bool | None:
        """Whether rows in memory are shuffled; None: only if their order is not random."""
        return False if self.half_life is not None else self.shuffle

    def at_once(self, model: Model) -> AtOnce | None:
        """For 301 to 1,000 parameters and default chunks: importance sampling around the mode."""
        return partial(evidence_at_once, self, model) if suits(self, model) else None

    def start(self, model: Model, *, seed: int = 0, first_island: int = 0) -> SGAISRun:
        """Begin a run; ``absorb`` then takes chunks."""
        return SGAISRun(self, model, seed, first_island)
