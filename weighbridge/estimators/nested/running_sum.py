"""The evidence so far, summed while a run goes on: for its stop, and for reports."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.estimators.nested.points import Points
from weighbridge.estimators.nested.volumes import log_shrinkage


class RunningSum(NamedTuple):
    r"""Shells of the points that died so far, as means over independent runs side by side.

    .. math:: Z \approx \sum_{dead} \bar L_i (X_{i-1} - X_i) + \bar L_{live} X

    It only decides when to stop; the answer comes from all points (``merging.weigh_points``).

    Attributes:
        log_volume: log of the prior mass X above the last deleted points.
        log_dead: log evidence of the dead points.
    """

    log_volume: float = 0.0
    log_dead: float = -math.inf

    def after(self, lowest: Points, num_live: int) -> RunningSum:
        """The sum after the deaths of the lowest points.

        Args:
            lowest: islands x points, from the lowest to the highest.
            num_live: live points of an island before they die.
        """
        nlive = num_live - np.arange(lowest.tie.shape[1])
        shrink = log_shrinkage(nlive)
        volumes = self.log_volume + np.cumsum(shrink)
        shells = volumes - shrink + np.log(-np.expm1(shrink))
        mean = _log_mean(lowest.log_likelihood, axis=0)
        dead = np.logaddexp(self.log_dead, np.logaddexp.reduce(mean + shells))
        return RunningSum(float(volumes[-1]), float(dead))

    def log_evidence(self, live: Points) -> float:
        """Log evidence so far, with that in the live points."""
        in_live = self.log_volume + float(_log_mean(live.log_likelihood.reshape(-1), axis=0))
        return float(np.logaddexp(self.log_dead, in_live))

    def remainder(self, live: Points) -> float:
        """How much the live points add to the log evidence of the dead ones (nats)."""
        if self.log_dead == -math.inf:
            return math.inf
        return self.log_evidence(live) - self.log_dead

    def log_largest_share(self, live: Points) -> float:
        """Log of the largest evidence that may be left, max L times X, relative to the dead points.

        >>> live = Points(*[np.array([[0.0, 1.0]])] * 9)
        >>> RunningSum(log_volume=-3.0, log_dead=0.0).log_largest_share(live)
        -2.0
        """
        if self.log_dead == -math.inf:
            return math.inf
        return float(live.log_likelihood.max()) + self.log_volume - self.log_dead


NOTHING_YET = RunningSum()


def _log_mean(values: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(np.logaddexp.reduce(values, axis=axis) - math.log(values.shape[axis]))
