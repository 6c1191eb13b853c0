"""When a run of nested sampling stops."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.estimators.nested.points import Points
from weighbridge.estimators.nested.running_sum import RunningSum

RULES = ("remainder", "one_percent")
# The documents "run until the additive terms are less than 1 % of the current estimate" of Z.
ONE_PERCENT = 0.01
# After the stop, points go on until their log-likelihoods differ by less than this (nats).
THIN_SPAN = 0.1
# A run whose log volume is below this has a likelihood that grows without end.
LEAST_LOG_VOLUME, LEAST_FOR_EACH = -1000.0, -100.0


class Stop(NamedTuple):
    """When a run stops.

    Attributes:
        rule: "remainder": when the live points would add less than ``remainder`` nats;
            "one_percent": when the largest evidence that they may hold, the highest likelihood
            times the remaining prior mass, is less than 1 % of the evidence so far.
        remainder: evidence (nats) that may be left in the live points.
        max_calls: number of likelihood evaluations.
        time_limit: seconds.
        thin: share of the live points that goes on after the stop, to look for a higher peak.
    """

    rule: str = "remainder"
    remainder: float = 0.01
    max_calls: float = math.inf
    time_limit: float = math.inf
    thin: float = 0.1

    def is_spent(self, sums: RunningSum, live: Points) -> bool:
        """Whether little evidence is left in the live points.

        >>> live = Points(*[np.array([[0.0, 2.0]])] * 9)
        >>> spent = RunningSum(log_volume=-6.0, log_dead=0.0)
        >>> Stop("remainder").is_spent(spent, live), Stop("one_percent").is_spent(spent, live)
        (False, False)
        >>> spent = RunningSum(log_volume=-6.3, log_dead=0.0)
        >>> Stop("remainder").is_spent(spent, live), Stop("one_percent").is_spent(spent, live)
        (True, False)
        """
        if self.rule == "one_percent":
            return sums.log_largest_share(live) < math.log(ONE_PERCENT)
        return sums.remainder(live) < self.remainder

    def reason(self, num_calls: int, seconds: float, log_volume: float, dimension: int) -> str:
        """Why a run must end before little evidence is left; empty if it need not."""
        if num_calls >= self.max_calls:
            return "max_calls"
        if seconds >= self.time_limit:
            return "time_limit"
        if log_volume < LEAST_LOG_VOLUME + LEAST_FOR_EACH * dimension:
            return "endless"
        return ""


def spans(live: Points) -> np.ndarray:
    """Range of the log-likelihoods of the live points of each island; inf with one at -inf."""
    level = live.log_likelihood
    lowest, highest = level.min(axis=1), level.max(axis=1)
    finite = np.isfinite(lowest)
    return np.where(finite, highest - np.where(finite, lowest, 0.0), math.inf)


def has_arrived(live: Points, until: float) -> bool:
    """Whether every island is above a log-likelihood, or at its own highest peak.

    >>> live = Points(*[np.array([[3.0, 4.0], [1.0, 1.05]])] * 9)
    >>> has_arrived(live, 3.0), has_arrived(live, 3.5)
    (True, False)
    """
    above = live.log_likelihood.min(axis=1) >= until
    return bool(np.all(above | (spans(live) < THIN_SPAN)))
