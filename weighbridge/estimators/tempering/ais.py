"""Annealed importance sampling."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

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
        path: adaptive, linear or sigmoidal; or the powers themselves, which rise to 1.
        num_steps: number of powers of a fixed schedule.
        steepness: delta of the sigmoidal schedule.
        ess: which ESS meets its target on the adaptive path: ``"conditional"`` includes the carried
            weights (Zhou, Johansen & Aston 2016); ``"incremental"`` is that of the incremental
            weights alone, as in S. Cameron, Evidence Estimation Using Stochastic Likelihood
            Approximations (Stellenbosch University), algorithm 6.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(50, seed=1)
    >>> method = wb.AIS(path=(0.001, 0.01, 0.1, 0.3, 1.0))
    >>> wb.evidence(wb.zoo.gaussian.model(), data, method).trace.power.tolist()
    [0.001, 0.01, 0.1, 0.3, 1.0]
    """

    # With n steps the variance that one step adds falls faster than 1 / n: use many short steps.
    target_ess: float = 0.98
    path: Literal["adaptive", "linear", "sigmoidal"] | tuple[float, ...] = "adaptive"
    num_steps: int = 100
    steepness: float = 4.0
    ess: Literal["conditional", "incremental"] = "conditional"

    resample_below: ClassVar[float] = 0.0
    reversible: ClassVar[bool] = True
    default_moves: ClassVar[AdaptiveHMC] = AdaptiveHMC(decorrelated=0.3)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.path, str):
            object.__setattr__(self, "path", _checked(self.path))
        elif self.path not in ("adaptive", "linear", "sigmoidal"):
            raise MethodError(
                "path must be adaptive, linear or sigmoidal, or the powers themselves, not "
                f"{self.path!r}."
            )
        if self.ess not in ("conditional", "incremental"):
            raise MethodError(f"ess must be conditional or incremental, not {self.ess!r}.")
        if self.num_steps < 1 or not self.steepness > 0:
            raise MethodError("num_steps must be at least 1, and steepness positive.")

    @property
    def conditional(self) -> float:
        """Whether the ESS includes the carried weights."""
        return float(self.ess == "conditional")

    def schedule(self) -> np.ndarray | None:
        """The powers of a fixed schedule, or None."""
        if not isinstance(self.path, str):
            return np.asarray(self.path)
        if self.path == "adaptive":
            return None
        fraction = np.arange(self.num_steps + 1) / self.num_steps
        if self.path == "sigmoidal":
            curve = 1 / (1 + np.exp(-self.steepness * (2 * fraction - 1)))
            fraction = (curve - curve[0]) / (curve[-1] - curve[0])
        fraction[-1] = 1.0
        return np.asarray(fraction[1:])


def _checked(powers: Any) -> tuple[float, ...]:
    """The powers of the user's own schedule, which must rise from above 0 to exactly 1."""
    try:
        found = tuple(float(power) for power in powers)
    except (TypeError, ValueError):
        raise MethodError(f"path must be a name or a sequence of powers, not {powers!r}.") from None
    rises = all(low < high for low, high in itertools.pairwise((0.0, *found)))
    if not found or not rises or found[-1] != 1.0:
        raise MethodError(
            "The powers of path must rise from above 0 to 1, such as (0.01, 0.1, 1.0), not "
            f"{found}."
        )
    return found
