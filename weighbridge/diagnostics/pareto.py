"""Pareto k-hat, the tail weight of importance ratios, and ratios with a smoothed tail."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

# With fewer ratios nothing can be said about their tail.
FEWEST = 25


class Tail(NamedTuple):
    """A generalised Pareto distribution of the largest ratios, relative to the largest one.

    Attributes:
        shape: k-hat.
        scale: its scale; 0 if there is no tail.
        cutoff: where the tail begins.
        size: number of ratios in it.
    """

    shape: float
    scale: float
    cutoff: float
    size: int


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
    return _fit_tail(np.sort(log_ratio[np.isfinite(log_ratio)])).shape


def pareto_smooth(log_ratio: np.ndarray) -> tuple[np.ndarray, float]:
    r"""Importance ratios, their largest replaced by quantiles of the fitted tail, and k-hat.

    .. math:: r_{(z)} \leftarrow \min\Bigl( u + \frac{\sigma}{k}
              \bigl[ \bigl(1 - \tfrac{z - 1/2}{M}\bigr)^{-k} - 1 \bigr], \; \max_i r_i \Bigr)

    for the M largest ratios, which keep their order. This makes weighted means of draws vary less.
    Vehtari, Simpson, Gelman, Yao & Gabry (2024), J. Machine Learning Research 25(72).

    Args:
        log_ratio: log ratios of any shape; infinite ones (no weight) stay as they are.

    >>> heavy = np.random.default_rng(0).standard_cauchy(size=1000)
    >>> smooth, shape = pareto_smooth(heavy)
    >>> bool(shape > 0.7), bool(smooth.max() <= heavy.max()), bool((smooth == heavy).mean() > 0.9)
    (True, True, True)
    """
    flat = np.array(log_ratio, float).reshape(-1)
    order = np.argsort(flat, kind="stable")
    order = order[np.isfinite(flat[order])]
    tail = _fit_tail(flat[order])
    if tail.scale > 0:
        below = (np.arange(tail.size) + 0.5) / tail.size
        stretch = -np.log1p(-below)
        excess = stretch if tail.shape == 0 else np.expm1(tail.shape * stretch) / tail.shape
        smooth = np.log(tail.cutoff + tail.scale * excess)
        flat[order[-tail.size :]] = flat[order[-1]] + np.minimum(smooth, 0.0)
    return flat.reshape(np.shape(log_ratio)), tail.shape


def tail_size(count: int) -> int:
    """How many of so many ratios are the tail to which the distribution is fitted.

    >>> tail_size(10_000)
    300
    """
    return math.ceil(min(count / 5, 3 * math.sqrt(count)))


def _fit_tail(values: np.ndarray) -> Tail:
    """The tail of finite log ratios in growing order."""
    if len(values) < FEWEST:
        return Tail(math.inf, 0.0, 1.0, 0)
    tail = tail_size(len(values))
    ratio = np.exp(values[-tail - 1 :] - values[-1])
    excess = ratio[1:] - ratio[0]
    if excess[-1] <= 1e-12:  # the largest ratios are all equal: there is no tail
        return Tail(-math.inf, 0.0, 1.0, tail)
    if ratio[0] == 0:  # the rest of the tail vanishes next to the largest ratios
        return Tail(math.inf, 0.0, 0.0, tail)
    # In a tie with the cutoff the first positive excess takes its place.
    quartile = float(excess[int(tail / 4 + 0.5) - 1] or excess[excess > 0][0])
    grid = 30 + int(math.sqrt(tail))
    slopes = (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * quartile) + 1 / excess[-1]
    shapes = np.mean(np.log1p(-slopes[:, None] * excess), axis=1)
    # For a slope of zero the tail is exponential.
    rates = np.full(grid, 1 / excess.mean())
    np.divide(-slopes, shapes, out=rates, where=shapes != 0)
    heights = tail * (np.log(rates) - shapes - 1)
    share = np.exp(heights - np.logaddexp.reduce(heights))
    slope = float(np.sum(share * slopes))
    shape = float(np.mean(np.log1p(-slope * excess)))
    scale = -shape / slope if slope != 0 else float(excess.mean())
    return Tail((tail * shape + 10 * 0.5) / (tail + 10), scale, float(ratio[0]), tail)
