"""Islands are independent estimates of the same evidence; here they are combined."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import polygamma

from weighbridge.core.thresholds import MAX_ROUNDING

# Smallest relative error of the log evidence: it is a sum of many rounded numbers.
ROUNDED_SHARE = 1e-14
# Largest rounding error; its square must be finite.
LARGEST_ROUNDING = 1e100
# Below this effective number of events, the variance of the log of a rate is a lower bound.
FEW_EVENTS = 8.0
# With this many particles for each parameter, their covariance is known well enough. More than
# MANY_PARAMETERS with fewer particles are too many.
MANY_PARAMETERS, ENOUGH_PARTICLES = 100, 4
# In many dimensions: the error of the mean over islands, as a part of the spread of one of them.
BEYOND_THE_MEAN = 0.8


class Combined(NamedTuple):
    """The log evidence of several islands, combined."""

    log_evidence: float
    std_error: float
    spread: float

    @property
    def is_rounded(self) -> bool:
        """Whether the rounding error of the log evidence is large enough for a flag."""
        return rounding_error(self.log_evidence) > MAX_ROUNDING


def rounding_error(log_evidence: float, additions: int = 0) -> float:
    r"""Upper estimate of the rounding error of a log evidence that is a long sum, in nats.

    Log-likelihoods are summed over rows, powers and chunks. Each sum is rounded, with a relative
    error of 2.2e-16. If the added terms are large compared with this error, the errors have both
    signs and grow with the square root of their number: a relative error of 1e-14 covers some
    thousand terms. If the spacing of the floating-point numbers itself is large, each chunk loses
    digits in the same direction, and the errors of all chunks add up.

    Args:
        log_evidence: the sum.
        additions: number of chunks that were added one after the other.

    >>> rounding_error(-1e6) < 1e-7, rounding_error(-5e35) > 1e20
    (True, True)
    """
    if not math.isfinite(log_evidence):
        return 0.0
    last_digit = float(np.spacing(abs(log_evidence)))
    lost = additions * last_digit if last_digit > MAX_ROUNDING else 0.0
    return min(ROUNDED_SHARE * abs(log_evidence) + lost, LARGEST_ROUNDING)


def combine_islands(log_evidences: np.ndarray) -> Combined:
    r"""Combine independent estimates of Z: the mean is the answer, the spread gives its error.

    With J islands of log evidence l_j and sample variance s^2,

    .. math:: \mathrm{se}^2 = \frac{J-1}{J-3} \Bigl( \frac{s^2}{J}
              + \min\bigl( \frac{s^4}{2 (J-1)}, s^2 \bigr) \Bigr)

    The first term is the delta method. The second is the error of the correction s^2 / 2 by which
    the log of a mean exceeds the mean of the logs. It is negligible while the islands agree. It
    grows where the largest island dominates the mean, up to the spread itself. The factor accounts
    for the heavy tails of a Student-t with J - 1 degrees of freedom. With fewer than four islands
    the error is unknown (NaN). The rounding error of a sum as large as log Z is added in quadrature
    (see ``rounding_error``).

    If a few islands have nearly all of the mean, because only they found a region, the spread is
    too small an error. The mean is then known as well as a rate estimated from n events. If n is
    below 8, the variance in brackets is at least the variance of the log of such a rate,

    .. math:: \psi'(n), \qquad \frac1n = \frac{\sum_j Z_j^2}{(\sum_j Z_j)^2} - \frac1J

    For islands that agree this equals the delta method, since psi'(n) is about 1/n.

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
    # If this product overflows it becomes infinite; a power of Python floats would raise.
    square = spread * spread
    variance = square / num_islands + square * min(square / (2 * (num_islands - 1)), 1.0)
    part = np.exp(log_evidences - top)
    uneven = float(np.sum(part**2) / np.sum(part) ** 2) - 1.0 / num_islands
    if uneven > 1.0 / FEW_EVENTS:
        variance = max(variance, float(polygamma(1, 1.0 / uneven)))
    widened = math.sqrt(variance * (num_islands - 1) / (num_islands - 3))
    return Combined(log_evidence, math.hypot(widened, rounding_error(log_evidence)), spread)


def has_few_particles(dimension: int, num_particles: int) -> bool:
    """Whether the particles of all islands are too few to know the shape of the posterior.

    >>> has_few_particles(80, 64), has_few_particles(200, 1024), has_few_particles(500, 1024)
    (False, False, True)
    """
    return dimension > MANY_PARAMETERS and num_particles < ENOUGH_PARTICLES * dimension


def dimension_bias(spread: float, dimension: int, num_particles: int) -> float:
    """How far the mean of all islands may be off in many dimensions, in nats.

    If particles are few for the dimension, Z has a long tail: few islands find much of it, most
    find little. If no island is one of the few, the mean is too low and the spread too small.
    More islands help little, so that the error is about the spread of one island:
    ``BEYOND_THE_MEAN`` of it, besides the error of the mean.

    Args:
        spread: standard deviation of the log evidence over islands.
        dimension: number of parameters.
        num_particles: particles of all islands.

    >>> dimension_bias(2.0, 500, 1024), dimension_bias(2.0, 200, 1024)
    (1.6, 0.0)
    """
    if not has_few_particles(dimension, num_particles) or not math.isfinite(spread):
        return 0.0
    return BEYOND_THE_MEAN * spread


def combine_logs(log_evidences: np.ndarray) -> Combined:
    """Combine independent estimates of log Z itself: their mean and its standard error.

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
