"""Whether results of unlike methods on the same model and data agree, in units of their errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.islands import combine_islands
from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MAX_METHOD_ERRORS,
    MIN_METHOD_DIFFERENCE,
    MIN_METHOD_ERRORS,
    SAME_METHOD_DIFFERENCE,
)
from weighbridge.results.evidence_result import Evidence

# Methods whose islands are unbiased estimates of Z: their mean is one too. The mean of a log, a
# bridge, and paths moved by noisy batches are not.
UNBIASED = ("smc", "ais", "prior_sampling")


def distance(one: Evidence, other: Evidence) -> float:
    """The difference of two log evidences, in units of their errors together."""
    error = math.hypot(one.std_error, other.std_error, SAME_METHOD_DIFFERENCE)
    return (one.log_evidence - other.log_evidence) / error


def agree(one: Evidence, other: Evidence) -> bool:
    """Whether two results with errors agree.

    They do not if they differ by more than 4 of their errors together, or by more than 3 of them
    and half a nat.

    >>> from weighbridge.results.trace import Trace
    >>> def found(z, error): return Evidence(z, error, 9, "smc", Trace(), {}, np.zeros(1))
    >>> agree(found(-9.0, 0.1), found(-9.3, 0.1)), agree(found(-9.0, 0.1), found(-9.6, 0.1))
    (True, False)
    """
    apart = abs(distance(one, other))
    far = abs(one.log_evidence - other.log_evidence) > MIN_METHOD_DIFFERENCE
    return apart <= (MIN_METHOD_ERRORS if far else MAX_METHOD_ERRORS)


def all_agree(results: Sequence[Evidence]) -> bool:
    """Whether all pairs of some results agree."""
    return all(agree(one, other) for one, other in combinations(results, 2))


def most_exact(results: Sequence[Evidence]) -> Evidence:
    """The result with the smallest stated error; the first of equal ones."""
    return min(results, key=lambda result: result.std_error)


def path_lower_bound(result: Evidence, probability: float) -> float:
    r"""A lower bound on log Z from the mean of unbiased estimates, by Markov's inequality.

    .. math:: \Pr[\log Z \ge \log \hat Z - b] \ge 1 - e^{-b}

    Cameron (2020), MSc thesis, eq. 3.10; Grosse, Ghahramani & Adams (2015), arXiv:1511.02543. It
    needs no error and no agreement of islands, only an unbiased estimate of Z, which the mean over
    the islands of a path is, up to the adaptation of the path to its own particles. The mean of
    their logs and a bridge are not. NaN for methods without such an estimate.

    Args:
        result: of "smc", "ais" or "prior_sampling".
        probability: 1 - exp(-b).

    >>> from weighbridge.results.trace import Trace
    >>> told = {"island_log_evidence": np.array([-9.0, -9.0])}
    >>> path = Evidence(-9.0, 0.1, 9, "smc", Trace(), {}, np.zeros(1), told)
    >>> round(path_lower_bound(path, 0.95), 3)
    -11.996
    """
    check_probability(probability)
    if result.method not in UNBIASED or Status.UNADJUSTED in result.flags:
        return math.nan
    return islands_lower_bound(result, probability)


def check_probability(probability: float) -> None:
    """Refuse a number that is not a probability between 0 and 1."""
    if not 0 < probability < 1:
        raise MethodError(f"probability must lie between 0 and 1, not {probability!r}.")


def islands_lower_bound(result: Evidence, probability: float) -> float:
    """The same bound for any result with islands, as if they were unbiased; NaN without a path."""
    islands = result.diagnostics.get("island_log_evidence")
    if islands is None or result.diagnostics.get("power_reached", 1.0) < 1:
        return math.nan
    return combine_islands(np.asarray(islands)).log_evidence + math.log1p(-probability)
