"""Islands, independent estimates of the same evidence, combined to one answer."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import polygamma

# Events from which on a rate is known by its spread, whatever the tails.
FEW_EVENTS = 8.0


class Combined(NamedTuple):
    """The log evidence of several islands together."""

    log_evidence: float
    std_error: float
    spread: float


def combine_islands(log_evidences: np.ndarray) -> Combined:
    r"""Combine independent estimates of Z: their mean is the answer, their spread its error.

    With J islands of log evidence l_j and sample variance s^2,

    .. math:: \mathrm{se}^2 = \frac{J-1}{J-3} \Bigl( \frac{s^2}{J}
              + \min\bigl( \frac{s^4}{2 (J-1)}, s^2 \bigr) \Bigr)

    The first term is the delta method. The second is the error of the correction s^2 / 2 by
    which the log of a mean exceeds the mean of the logs: it is nothing while islands agree, and
    grows just where the mean becomes a maximum, up to the spread itself. The factor widens for
    the heavy tails of a Student-t with J - 1 degrees. Under four islands the error is unknown
    (NaN).

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
    widened = variance * (num_islands - 1) / (num_islands - 3)
    return Combined(log_evidence, math.sqrt(widened), spread)


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
    return Combined(
        mean,
        spread / math.sqrt(num_islands) * math.sqrt((num_islands - 1) / (num_islands - 3)),
        spread,
    )
