"""Sequential Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weighbridge.core.errors import MethodError
from weighbridge.core.islands import has_few_particles
from weighbridge.core.resampling import require_resampling
from weighbridge.estimators.annealing.moves.adaptive import Adaptive
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC
from weighbridge.estimators.annealing.moves.walks import MOVES
from weighbridge.estimators.tempering.tempering import Tempering

# In many dimensions twice as many steps reduce the variance by a factor of three to four.
USUAL_ESS, CAREFUL_ESS = 0.7, 0.9


@dataclass(frozen=True)
class SMC(Tempering):
    r"""Sequential Monte Carlo along p(theta) p(data | theta)^lambda.

    .. math:: \log \hat Z = \sum_t \log \sum_i W_i^{(t)}
              p(y | \theta_i^{(t)})^{\lambda_{t+1} - \lambda_t}

    At the next power the conditional ESS meets its target. Particles are resampled when their
    weights have degenerated, and moved until they are nearly independent of their start. If the
    posterior is close to a Gaussian, a bridge between the last particles and Gaussians fitted to
    them (see ``estimators.bridging``) gives the answer, with a far smaller error. If Pareto k-hat
    is too large, or if the path finds clearly more, the path gives the answer. ``diagnostics`` has
    both. Del Moral, Doucet & Jasra (2006), J. R. Stat. Soc. B 68:411-436; Buchholz, Chopin & Jacob
    (2021), Bayesian Analysis 16:745-771.

    Args:
        num_islands: independent populations; their spread gives the error.
        num_particles: particles of each island.
        target_ess: ESS of a step, as a fraction of the particles. The default of 0.7 becomes 0.9 in
            models with many parameters and fewer than 4 particles for each.
        moves: "hmc", or without gradients "random_walk", "slice" or "stretch"; a mover
            (``AdaptiveHMC``, ``AdaptiveWalk``) with its settings; or a kernel (``SGHMC``) with step
            sizes for one row, which makes 20 steps at each power. The default is
            ``AdaptiveHMC(decorrelated=0.3, max_leapfrog=8)``, and a random walk if the likelihood
            runs in plain Python.
        max_annealing_steps: most steps; the last one goes directly to power 1, with a flag.
        resampling: systematic, stratified, multinomial or residual. With multinomial, which
            resamples at every step, ``diagnostics["genealogy_error"]`` is a second estimate of
            the error, from the genealogy of the particles (Lee & Whiteley 2018, Biometrika
            105:609-625).
        waste_free: resample only one of P particles, and keep all states of the chains of P - 1
            moves that start from them (Dau & Chopin 2022, J. R. Stat. Soc. B 84:114-148). True
            chooses P up to 8; a number is P itself, which must divide ``num_particles``. A step
            makes less than one move for each particle: use more particles.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(100, seed=1)
    >>> result = wb.evidence(wb.zoo.gaussian.model(), data, SMC(), seed=0)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 4 * result.std_error
    True
    """

    # Many short steps with few moves give a smaller variance than few long steps with many moves.
    target_ess: float = USUAL_ESS
    resampling: str = "systematic"
    waste_free: bool | int = False

    bridges: ClassVar[bool] = True
    reversible: ClassVar[bool] = True
    # Longer trajectories take more time and gain nothing (benchmarks/results/moves.md).
    default_moves: ClassVar[AdaptiveHMC] = AdaptiveHMC(decorrelated=0.3, max_leapfrog=8)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_resampling(self.resampling)
        if not self.waste_free:
            return
        length = self.chain_length
        if not isinstance(self.waste_free, int) or length < 2 or self.num_particles % length:
            raise MethodError(
                f"waste_free={self.waste_free!r} needs chains of at least 2 states whose length "
                f"divides num_particles={self.num_particles}: use a multiple of 8 particles."
            )
        if self.moves is not None and not isinstance(self.moves, str | Adaptive):
            raise MethodError(
                f"waste_free=True needs moves that tune themselves: use one of {list(MOVES)}, or a "
                "mover such as wb.AdaptiveHMC()."
            )

    def step_ess(self, dimension: int) -> float:
        """The target ESS; the default is higher if particles are few for the parameters.

        >>> SMC().step_ess(20), SMC().step_ess(500), SMC(target_ess=0.5).step_ess(500)
        (0.7, 0.9, 0.5)
        """
        few = has_few_particles(dimension, self.num_islands * self.num_particles)
        return CAREFUL_ESS if few and self.target_ess == USUAL_ESS else self.target_ess

    @property
    def chain_length(self) -> int:
        """States of a waste-free chain: for True the largest divisor up to 8."""
        if self.waste_free is True:
            return max(length for length in range(1, 9) if self.num_particles % length == 0)
        return self.waste_free or 1

    @property
    def resample_below(self) -> float:  # type: ignore[override]
        """2 (always resample) for multinomial and waste-free resampling, else 0.5.

        The theory of the genealogy needs multinomial resampling at every step. Waste-free
        resampling without it would have more particles at every step.
        """
        return 2.0 if self.resampling == "multinomial" or self.waste_free else 0.5

    def resampling_scheme(self) -> str:
        """Name of the resampling scheme."""
        return self.resampling
