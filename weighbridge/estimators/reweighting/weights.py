"""The evidence from importance weights, its error, and when not to believe it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.core.islands import combine_islands, rounding_error
from weighbridge.core.resampling import effective_sample_size, log_mean_exp
from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MAX_TEMPERED_SPREAD,
    MAX_UNSEEN_MODES,
    MIN_PROPOSAL_DRAWS,
)
from weighbridge.diagnostics.pareto import pareto_smooth
from weighbridge.estimators.reweighting.heavy_tails import heavy_flags, inflation


class WeighedDraws(NamedTuple):
    """What importance weights say.

    Attributes:
        log_evidence: log of the mean weight.
        std_error: its standard error; NaN if the mean of the weights may not exist.
        pareto_k: Pareto k-hat of the weights.
        ess: effective number of draws.
        islands: log evidence of every island.
        log_weights: normalised log weights for the posterior, with a smoothed tail, flat.
        flags: reasons for caution, the most serious first.
    """

    log_evidence: float
    std_error: float
    pareto_k: float
    ess: float
    islands: np.ndarray
    log_weights: np.ndarray
    flags: tuple[Status, ...]

    def with_unseen(self, unseen: float) -> WeighedDraws:
        """The same, if there are probably modes that the search missed.

        Args:
            unseen: probability that another climb would have ended at a mode that was not found;
                it counts as the share of the evidence that is missing.
        """
        missed = -math.log1p(-min(unseen, 0.95))
        flags = (Status.MODES_UNSEEN,) if unseen > MAX_UNSEEN_MODES else ()
        error = math.hypot(self.std_error, missed)
        return self._replace(std_error=error, flags=(*flags, *self.flags))


def weigh(log_ratio: np.ndarray) -> WeighedDraws:
    r"""The evidence from log f / q at independent draws of q, islands x draws.

    .. math:: \hat Z = \frac1n \sum_i \frac{f(u_i)}{q(u_i)}, \qquad
              \mathrm{se}(\log \hat Z) = \frac{\operatorname{sd}(f/q)}{\hat Z \sqrt n}

    The evidence is the plain mean: it is unbiased whatever the proposal. Smoothing its largest
    weights (PSIS) would replace the draws that tell of a heavy tail by a guess. The posterior is
    weighted with the smoothed weights, whose means vary less. The error is the larger one of this
    formula and of the spread of the islands, and is raised if the tail is heavy (see
    ``inflation``): a sample of weights with an infinite variance hides most of it.

    >>> found = weigh(np.random.default_rng(0).normal(size=(16, 500)) * 0.5 - 3.0)
    >>> abs(found.log_evidence + 3.0 - 0.125) < 4 * found.std_error < 0.1
    True
    """
    count = log_ratio.size
    islands = np.asarray(log_mean_exp(log_ratio))
    combined = combine_islands(islands)
    relative = np.exp(log_ratio - combined.log_evidence)
    error = float(np.std(relative, ddof=1)) / math.sqrt(count)
    error = math.hypot(error, rounding_error(combined.log_evidence))
    if not math.isnan(combined.std_error):
        error = max(error, combined.std_error)
    smooth, shape = pareto_smooth(log_ratio)
    error *= inflation(shape, count)
    effective = float(effective_sample_size(log_ratio.reshape(-1)))
    found = {
        Status.ROUNDED: combined.is_rounded,
        Status.LOW_ESS: effective < MIN_PROPOSAL_DRAWS,
        Status.ISLANDS_DISAGREE: combined.spread > MAX_TEMPERED_SPREAD,
        Status.ERROR_UNKNOWN: math.isnan(error),
    }
    flat = smooth.reshape(-1)
    return WeighedDraws(
        combined.log_evidence,
        error,
        shape,
        effective,
        islands,
        flat - np.logaddexp.reduce(flat),
        (*heavy_flags(shape, count), *(flag for flag, raised in found.items() if raised)),
    )
