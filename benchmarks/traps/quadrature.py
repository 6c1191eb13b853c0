"""Quadrature in logarithms, for the exact values."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)


def panels(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of the Gauss-Legendre rule with ten points in each panel."""
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    points = middle[:, None] + half[:, None] * NODES
    return points.reshape(-1), (half[:, None] * WEIGHTS).reshape(-1)


def grid(low: float, high: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Points with a mean distance of at most ``step``, and their weights."""
    return panels(np.linspace(low, high, int(np.ceil((high - low) / (10 * step))) + 1))


def around(centres: np.ndarray, scales: np.ndarray, far: float) -> np.ndarray:
    """Edges of panels that are fine at some centres, and reach ``far`` to both sides of all."""
    edges = []
    for centre, scale in zip(centres, scales):
        steps = scale * np.geomspace(0.05, max(far / scale, 1.0), 200)
        edges += [centre - steps, [centre], centre + steps]
    return np.unique(np.concatenate(edges))


def log_integral(values: np.ndarray, weights: np.ndarray) -> float:
    """log of the integral of exp(values)."""
    return float(logsumexp(values, b=weights))
