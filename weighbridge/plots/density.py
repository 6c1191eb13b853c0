"""A smooth density of weighted draws of two coordinates, and its highest-density levels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Bandwidths to choose from, as fractions of the best one for a single Gaussian mode.
BANDWIDTHS = (1.0, 0.6, 0.35, 0.2)


def smooth_density(
    across: np.ndarray,
    below: np.ndarray,
    weights: np.ndarray,
    ess: float,
    edges: Sequence[np.ndarray],
) -> np.ndarray:
    """Smoothed weights on a grid.

    The bandwidth maximises the leave-one-out likelihood of the draws (Habbema, Hermans & van den
    Broek 1974): a fixed bandwidth would blur modes and rings.
    """
    counts, _, _ = np.histogram2d(across, below, bins=list(edges), weights=weights)
    squares, _, _ = np.histogram2d(across, below, bins=list(edges), weights=weights**2)
    own = np.divide(squares, counts, out=np.zeros_like(counts), where=counts > 0)
    scales = [_deviation(values, weights) * ess ** (-1 / 6) for values in (across, below)]
    best, highest = counts, -np.inf
    for fraction in BANDWIDTHS:
        smooth = [_smoother(fraction * scale, line) for scale, line in zip(scales, edges)]
        density = smooth[0] @ counts @ smooth[1].T
        left_out = density - own * np.outer(np.diag(smooth[0]), np.diag(smooth[1]))
        score = float(np.sum(counts * np.log(np.maximum(left_out, 1e-12))))
        if score > highest:
            best, highest = density, score
    return np.asarray(best)


def levels_of(density: np.ndarray, masses: Sequence[float]) -> list[float]:
    """Levels above which the density holds each of these masses.

    >>> levels_of(np.array([[0.4, 0.3], [0.2, 0.1]]), [0.9, 0.4])
    [0.2, 0.4]
    """
    ordered = np.sort(density, axis=None)[::-1]
    held = np.cumsum(ordered) / ordered.sum()
    return [float(ordered[np.searchsorted(held, mass * (1 - 1e-9))]) for mass in masses]


def _deviation(values: np.ndarray, weights: np.ndarray) -> float:
    mean = np.sum(weights * values)
    return float(np.sqrt(np.sum(weights * (values - mean) ** 2)))


def _smoother(bandwidth: float, edges: np.ndarray) -> np.ndarray:
    """Matrix that smooths counts along one axis; no mass is lost at the ends."""
    cells = max(bandwidth / (edges[1] - edges[0]), 0.8)
    place = np.arange(len(edges) - 1)
    kernel = np.exp(-0.5 * ((place[:, None] - place[None, :]) / cells) ** 2)
    return np.asarray(kernel / kernel.sum(axis=0))
