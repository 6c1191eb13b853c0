"""What heavy tails of importance ratios do to the error of their mean."""

from __future__ import annotations

import math

from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_PROPOSAL_PARETO_K
from weighbridge.diagnostics.pareto import tail_size


def inflation(pareto_k: float, count: int) -> float:
    r"""Factor by which the standard error of a mean of ratios is raised for a heavy tail.

    .. math:: n^{\max(0, \; \hat k + s - 1/2)}, \qquad s = (1 + \hat k) / \sqrt{M}

    For a Pareto shape k above 1/2 the variance is infinite, and the error of a mean of n ratios
    decreases as n^{k-1}, not as n^{-1/2}. Their sample variance knows only the part of the tail
    that was drawn. s is the standard error of k-hat from the M largest ratios, to which it is
    fitted. NaN for k of 1 or more: then the mean itself does not exist.

    Args:
        pareto_k: Pareto k-hat of the ratios.
        count: their number.

    >>> inflation(0.3, 10_000), round(inflation(0.6, 10_000), 2), inflation(1.2, 10_000)
    (1.0, 5.88, nan)
    """
    if pareto_k >= 1.0 or math.isnan(pareto_k):
        return math.nan
    return float(count ** max(0.0, pareto_k + doubt(pareto_k, count) - 0.5))


def is_heavy(pareto_k: float, count: int) -> bool:
    r"""Whether the tail of so many ratios is too heavy for their mean to be believed.

    .. math:: \hat k + s > 0.7 \quad \text{or} \quad \hat k > 1 - 1 / \log_{10} n

    Vehtari, Simpson, Gelman, Yao & Gabry (2024), J. Machine Learning Research 25(72). The doubt s
    about k-hat is added, because for the weights of a proposal with too light tails k-hat is too
    small by about as much.

    >>> is_heavy(0.5, 10_000), is_heavy(0.65, 10_000), is_heavy(0.6, 100)
    (False, True, True)
    """
    too_few = pareto_k > 1.0 - 1.0 / math.log10(max(count, 11))
    return too_few or pareto_k + doubt(pareto_k, count) > MAX_PROPOSAL_PARETO_K


def heavy_flags(pareto_k: float, count: int) -> tuple[Status, ...]:
    """Flags for the tail of so many ratios.

    >>> [len(heavy_flags(pareto_k, 10_000)) for pareto_k in (0.5, 0.8, 1.2)]
    [0, 1, 2]
    """
    if not is_heavy(pareto_k, count):
        return ()
    none = (Status.WEIGHTS_WITHOUT_MEAN,) if pareto_k >= 1.0 else ()
    return (*none, Status.HEAVY_WEIGHTS)


def doubt(pareto_k: float, count: int) -> float:
    """Standard error of k-hat, from the largest of so many ratios: (1 + k) / sqrt(M).

    >>> round(doubt(0.5, 10_000), 3)
    0.087
    """
    return max(0.0, 1.0 + pareto_k) / math.sqrt(max(tail_size(count), 1))
