"""Annealed importance sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC
from weighbridge.estimators.tempering.tempering import Tempering


@dataclass(frozen=True)
class AIS(Tempering):
    r"""Annealed importance sampling: the path of SMC without resampling.

    .. math:: \hat Z = \frac1M \sum_i \prod_t p(y | \theta_i^{(t)})^{\lambda_{t+1} - \lambda_t}

    Neal (2001), Statistics and Computing 11:125-139. The adaptive schedule meets a target ESS.
    Fixed schedules are linear, or sigmoidal, lambda_t = sigma(delta (2t/T - 1)), shifted and
    scaled to go from 0 to 1 (Grosse, Ghahramani & Adams 2015, arXiv:1511.02543).

    Args:
        num_islands, num_particles, target_ess, moves, max_annealing_steps: as in ``SMC``.
        path: adaptive, linear or sigmoidal.
        num_steps: number of powers of a fixed schedule.
        steepness: delta of the sigmoidal schedule.
    """

    # With n steps the variance that one step adds falls faster than 1 / n: use many short steps.
    target_ess: float = 0.98
    path: Literal["adaptive", "linear", "sigmoidal"] = "adaptive"
    num_steps: int = 100
    steepness: float = 4.0

    resample_below: ClassVar[float] = 0.0
    reversible: ClassVar[bool] = True
    default_moves: ClassVar[AdaptiveHMC] = AdaptiveHMC(decorrelated=0.3)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path not in ("adaptive", "linear", "sigmoidal"):
            raise MethodError(f"path must be adaptive, linear or sigmoidal, not {self.path!r}.")
        if self.num_steps < 1 or not self.steepness > 0:
            raise MethodError("num_steps must be at least 1, and steepness positive.")

    def schedule(self) -> np.ndarray | None:
        """The powers of a fixed schedule, or None."""
        if self.path == "adaptive":
            return None
        fraction = np.arange(self.num_steps + 1) / self.num_steps
        if self.path == "sigmoidal":
            curve = 1 / (1 + np.exp(-self.steepness * (2 * fraction - 1)))
            fraction = (curve - curve[0]) / (curve[-1] - curve[0])
        fraction[-1] = 1.0
        return np.asarray(fraction[1:])
