"""A comparison of models of which only the ratios of evidences are known."""

from __future__ import annotations

import math
from collections.abc import Mapping

from weighbridge.results.evidence_ratio import EvidenceRatio
from weighbridge.weighing.comparison import Comparison
from weighbridge.weighing.model_probabilities import model_probabilities


def compare_ratio(
    ratio: EvidenceRatio, prior_odds: Mapping[str, float] | None, seed: int
) -> Comparison:
    """The comparison of the models of a ratio, with the errors of their log Bayes factors.

    The log evidences are NaN: they are not known. The probability of a model that was never visited
    is an upper bound, those of the others are lower bounds, and none has an error.

    Args:
        ratio: the log ratios.
        prior_odds: prior weight of each model; equal by default.
        seed: of the draws for the errors of the probabilities.
    """
    unknown = dict.fromkeys(ratio.names, math.nan)
    values = dict(zip(ratio.names, (float(value) for value in ratio.log_ratios)))
    probabilities, errors = model_probabilities(
        values, unknown, prior_odds, seed, covariance=ratio.covariance
    )
    best = ratio.leader
    return Comparison(
        log_evidences=unknown,
        std_errors=dict(unknown),
        log_bayes_factors={name: ratio.between(name, best) for name in ratio.names},
        probabilities=probabilities,
        probability_errors=dict(unknown) if ratio.unvisited else errors,
        num_observations=ratio.num_observations,
        flags=dict.fromkeys(ratio.names, ratio.flags),
        remarks=ratio.remarks,
        ratio=ratio,
    )
