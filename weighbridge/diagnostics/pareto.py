"""Pareto k-hat: the tail weight of importance ratios."""

from __future__ import annotations

import math

import numpy as np


def pareto_khat(log_ratio: np.ndarray) -> float:
    r"""Shape of the upper tail of importance ratios; above 0.7 their mean is unreliable.

    A generalised Pareto distribution is fitted to the largest ratios, with the estimator of Zhang &
    Stephens (2009), Technometrics 51:316-325, and the prior of Vehtari, Simpson, Gelman, Yao &
    Gabry (2024), J. Machine Learning Research 25(72). (arviz-stats has it too, but its import takes
    longer than a short run.)

    >>> light = np.random.default_rng(0).normal(size=1000) * 0.1
    >>> pareto_khat(light) < 0.5
    True
    >>> pareto_khat(np.zeros(100))
    -inf
    """
    values = np.sort(log_ratio[np.isfinite(log_ratio)])
    if len(values) < 25:
        return math.inf
    tail = math.ceil(min(len(values) / 5, 3 * math.sqrt(len(values))))
    ratio = np.exp(values[-tail - 1 :] - values[-1])
    excess = ratio[1:] - ratio[0]
    if excess[-1] <= 1e-12:  # the largest ratios are all equal: there is no tail
        return -math.inf
    quartile = max(float(excess[int(tail / 4 + 0.5) - 1]), 1e-12 * float(excess[-1]))
    grid = 30 + int(math.sqrt(tail))
    slopes = (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * quartile) + 1 / excess[-1]
    shapes = np.mean(np.log1p(-slopes[:, None] * excess), axis=1)
    # For a slope of zero the tail is exponential.
    rates = np.full(grid, 1 / excess.mean())
    np.divide(-slopes, shapes, out=rates, where=shapes != 0)
    heights = tail * (np.log(rates) - shapes - 1)
    share = np.exp(heights - np.logaddexp.reduce(heights))
    shape = float(np.mean(np.log1p(-np.sum(share * slopes) * excess)))
    return (tail * shape + 10 * 0.5) / (tail + 10)
