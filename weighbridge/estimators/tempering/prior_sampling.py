"""The mean likelihood over draws from the prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weighbridge.estimators.annealing.moves.kernels import Stay
from weighbridge.estimators.annealing.moves.walks import Moves
from weighbridge.estimators.tempering.tempering import Tempering


@dataclass(frozen=True)
class PriorSampling(Tempering):
    r"""The mean likelihood over draws from the prior.

    .. math:: \hat Z = \frac1M \sum_i p(y | \theta_i), \qquad \theta_i \sim p(\theta)

    It is unbiased, but useless if the likelihood is peaked: then the estimate depends on one draw,
    and the result is flagged.

    Args:
        num_islands: number of independent sets of draws.
        num_particles: number of draws in each set.
    """

    num_particles: int = 4096
    moves: Moves = Stay()  # noqa: RUF009

    resample_below: ClassVar[float] = 0.0

    @property
    def name(self) -> str:
        """Name of the method in results."""
        return "prior_sampling"

    def schedule(self) -> np.ndarray:
        """One step, from power 0 to power 1."""
        return np.ones(1)
