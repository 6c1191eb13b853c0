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

    Right in expectation, and hopeless where the likelihood is peaked: then the estimate hangs
    on one draw, and the status says so.

    Args:
        num_islands: independent sets of draws.
        num_particles: draws of each.
    """

    num_particles: int = 4096
    moves: Moves = Stay()  # noqa: RUF009

    resample_below: ClassVar[float] = 0.0

    @property
    def name(self) -> str:
        """What results call the method."""
        return "prior_sampling"

    def schedule(self) -> np.ndarray:
        """All at once."""
        return np.ones(1)
