"""Iterated batch importance sampling: rows one by one, moves with all rows so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weighbridge.core.checks import require_fraction, require_particles
from weighbridge.core.resampling import require_resampling
from weighbridge.estimators.annealing.loop import COUNTS
from weighbridge.estimators.annealing.moves.walks import Moves, check_moves
from weighbridge.estimators.ibis.run import IBISRun
from weighbridge.estimators.protocols import SequentialMethod
from weighbridge.models.model import Model


@dataclass(frozen=True)
class IBIS(SequentialMethod):
    r"""Iterated batch importance sampling: data tempering with exact targets.

    .. math:: \log \hat Z = \sum_n \log \sum_i W_i^{(n-1)} p(y_n | \theta_i), \qquad
              f_n(\theta) = p(\theta) \prod_{k \le n} p(y_k | \theta)

    Rows are taken in their order. Particles are reweighted by each row, until the next row would
    make the weights degenerate. Then particles are resampled, and moved with the posterior of all
    rows so far as the target. A row that alone makes the weights degenerate is tempered. As the
    posterior narrows, one such stage takes in more and more rows: the number of stages grows like
    the logarithm of the number of rows, and the cost of a stage like the number of rows so far.
    On the way the method gives the evidence of every first part of the data. It keeps all rows.

    Chopin (2002), Biometrika 89:539-552; S. Cameron, Evidence Estimation Using Stochastic
    Likelihood Approximations (Stellenbosch University), algorithm 7.

    Args:
        num_islands: independent populations; their spread is the error bar.
        num_particles: particles of each island.
        target_ess: a stage ends before the ESS, averaged over islands, falls below this fraction
            of the particles.
        moves: how particles move, as in ``SMC``; by default ``AdaptiveHMC()``.
        resampling: systematic, stratified, multinomial or residual.
        move_every_row: move the particles after every row, and resample only where the weights
            degenerate, as in algorithm 7. This costs far more, since every move uses all rows so
            far, and gains little.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(100, seed=1)
    >>> result = wb.evidence(wb.zoo.gaussian.model(), data, IBIS(), seed=0)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 4 * result.std_error
    True
    """

    num_islands: int = 16
    num_particles: int = 64
    target_ess: float = 0.5
    moves: Moves | None = None
    resampling: str = "systematic"
    move_every_row: bool = False

    counts: ClassVar[tuple[str, ...]] = COUNTS
    chunk_size: ClassVar[int] = 1000  # where a stream is cut does not matter here
    name: ClassVar[str] = "ibis"

    def __post_init__(self) -> None:
        require_particles(self)
        require_fraction(self, "target_ess")
        require_resampling(self.resampling)
        check_moves(self.moves)

    def chunk_after(self, rows_seen: int, *, in_memory: bool) -> int:
        """Rows taken in at once: always the same number."""
        return self.chunk_size

    def start(self, model: Model, *, seed: int = 0, first_island: int = 0) -> IBISRun:
        """Begin a run; ``absorb`` then takes rows."""
        return IBISRun(self, model, seed, first_island)
