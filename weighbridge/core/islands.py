"""Islands, independent estimates of the same evidence, combined to one answer."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import polygamma

from weighbridge.core.thresholds import MAX_ROUNDING

# What the log evidence is good to at best, as a share of it: a sum of so many rounded numbers.
ROUNDED_SHARE = 1e-14
# Its square must be a number.
LARGEST_ROUNDING = 1e100
# Events from which on a rate is known by its spread, whatever the tails.
FEW_EVENTS = 8.0


class Combined(NamedTuple):
    """The log evidence of several islands together."""

    log_evidence: float
    std_error: float
    spread: float

    @property
    def is_rounded(self) -> bool:
        """Whether double precision holds the log evidence no better than is worth a flag."""
        return rounding_error(self.log_evidence) > MAX_ROUNDING


def rounding_error(log_evidence: float, additions: int = 0) -> float:
    r"""What double precision may have lost of a log evidence that was added up, in nats.

    Log-likelihoods are summed over rows, powers and chunks, each time rounded to a share of
    2.2e-16 of the sum. Where what is added is large beside that, the errors are of both signs and
    grow with the root of their number: 1e-14 of the sum is enough for some thousand of them. Where
    the share itself matters, what a chunk adds is lost always in the same way, and the errors of
    all of them add up.

    Args:
        log_evidence: the sum.
        additions: how many chunks were added one after the other.

    >>> rounding_error(-1e6) < 1e-7, rounding_error(-5e35) > 1e20
    (True, True)
    """
    if not math.isfinite(log_evidence):
        return 0.0
    last_digit = float(np.spacing(abs(log_evidence)))
    lost = additions * last_digit if last_digit > MAX_ROUNDING else 0.0
    return min(ROUNDED_SHARE * abs(log_evidence) + lost, LARGEST_ROUNDING)


def combine_islands(log_evidences: np.ndarray) -> Combined:
    r"""Combine independent estimates of Z: their mean is the answer, their spread its error.

    With J islands of log evidence l_j and sample variance s^2,

    .. math:: \mathrm{se}^2 = \frac{J-1}{J-3} \Bigl( \frac{s^2}{J}
              + \min\bigl( \frac{s^4}{2 (J-1)}, s^2 \bigr) \Bigr)

    The first term is the delta method. The second is the error of the correction s^2 / 2 by
    which the log of a mean exceeds the mean of the logs: it is nothing while islands agree, and
    grows just where the mean becomes a maximum, up to the spread itself. The factor widens for
    the heavy tails of a Student-t with J - 1 degrees. Under four islands the error is unknown
    (NaN). What double precision loses of a sum as large as log Z is added in quadrature (see
    ``rounding_error``).

    Where a few islands have nearly all of the mean, because they hit what others did not, their
    spread says too little. The mean is then known as well as a rate from n events, and where n is
    below 8 the variance in brackets is not less than that of the log of such a rate,

    .. math:: \psi'(n), \qquad \frac1n = \frac{\sum_j Z_j^2}{(\sum_j Z_j)^2} - \frac1J

    which for islands that agree is the delta method again: psi'(n) is about 1/n.

    >>> combine_islands(np.array([-10.1, -9.9, -10.0, -10.0, -10.0])).log_evidence
    -9.998...
    >>> combine_islands(np.array([-10.0])).std_error
    nan
    """
    log_evidences = np.asarray(log_evidences, float)
    num_islands = log_evidences.size
    top = log_evidences.max()
    if not math.isfinite(top):
        return Combined(float(top), math.nan, math.nan)
    log_evidence = float(top + np.log(np.mean(np.exp(log_evidences - top))))
    finite = np.isfinite(log_evidences)
    spread = float(np.std(log_evidences[finite], ddof=1)) if finite.sum() > 1 else math.nan
    if num_islands < 4 or not finite.all():
        return Combined(log_evidence, math.nan, spread)
    # A product of floats overflows to infinity; a power would raise.
    square = spread * spread
    variance = square / num_islands + square * min(square / (2 * (num_islands - 1)), 1.0)
    part = np.exp(log_evidences - top)
    uneven = float(np.sum(part**2) / np.sum(part) ** 2) - 1.0 / num_islands
    if uneven > 1.0 / FEW_EVENTS:
        variance = max(variance, float(polygamma(1, 1.0 / uneven)))
    widened = math.sqrt(variance * (num_islands - 1) / (num_islands - 3))
    return Combined(log_evidence, math.hypot(widened, rounding_error(log_evidence)), spread)


def combine_logs(log_evidences: np.ndarray) -> Combined:
    """Combine independent estimates of log Z itself: their mean, and its standard error.

    >>> combine_logs(np.array([-10.1, -9.9, -10.0, -10.0])).log_evidence
    -10.0
    """
    log_evidences = np.asarray(log_evidences, float)
    num_islands = log_evidences.size
    mean = float(np.mean(log_evidences))
    spread = float(np.std(log_evidences, ddof=1)) if num_islands > 1 else math.nan
    if num_islands < 4 or not math.isfinite(mean):
        return Combined(mean, math.nan, spread)
    chance = spread / math.sqrt(num_islands) * math.sqrt((num_islands - 1) / (num_islands - 3))
    return Combined(mean, math.hypot(chance, rounding_error(mean)), spread)
