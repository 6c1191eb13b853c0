"""Thermodynamic integration and stepping stones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.islands import Combined, combine_islands, combine_logs
from weighbridge.estimators.annealing.loop import Annealed
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import final_moments
from weighbridge.estimators.tempering.tempering import Tempering


@dataclass(frozen=True)
class Thermodynamic(Tempering):
    r"""Thermodynamic integration, or stepping stones, along the tempered path.

    .. math:: \log Z = \int_0^1 E_\lambda[\ell] \, d\lambda \approx \sum_t
        \tfrac{\Delta_t}{2} (E_t + E_{t+1}) - \tfrac{\Delta_t^2}{12} (V_{t+1} - V_t)

    E and V are the mean and variance of the log-likelihood at each power. This is the trapezium
    rule with its second-order correction (Friel, Hurn & Wyse 2014, Statistics and Computing
    24:709-723). Stepping stones multiply the ratios of successive normalising constants instead
    (Xie et al. 2011, Systematic Biology 60:150-160).

    Args:
        num_islands, num_particles, target_ess, max_annealing_steps: as in ``SMC``.
        moves: as in ``SMC``; by default ``AdaptiveHMC()``.
        rule: trapezium or stepping_stones.
    """

    target_ess: float = 0.9
    rule: Literal["trapezium", "stepping_stones"] = "trapezium"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule not in ("trapezium", "stepping_stones"):
            raise MethodError(f"rule must be trapezium or stepping_stones, not {self.rule!r}.")

    def island_estimates(self, outcome: Annealed, path: Path) -> np.ndarray:
        """Integrate along the path, or add up the log ratios of the stepping stones."""
        if self.rule == "stepping_stones":
            return np.asarray(np.sum([step.log_increment for step in outcome.steps], axis=0))
        last = final_moments(path, outcome.cloud)
        means = np.array([*(step.mean for step in outcome.steps), last[0]])
        variances = np.array([*(step.variance for step in outcome.steps), last[1]])
        width = np.diff(outcome.powers)[:, None]
        area = 0.5 * width * (means[1:] + means[:-1])
        return np.asarray(np.sum(area - width**2 / 12 * np.diff(variances, axis=0), axis=0))

    def combine(self, islands: np.ndarray) -> Combined:
        """The trapezium rule estimates log Z, so the log Z of the islands are averaged.

        The difference between the log of the mean Z and the mean log Z is part of the error. Where
        islands agree it is small, about s^2 / 2. Where only a few islands found a mode, the mean
        log Z is too low by this difference.
        """
        if self.rule == "stepping_stones":
            return combine_islands(islands)
        combined = combine_logs(islands)
        if math.isnan(combined.std_error):
            return combined
        gap = combine_islands(islands).log_evidence - combined.log_evidence
        return combined._replace(std_error=math.hypot(combined.std_error, gap))
