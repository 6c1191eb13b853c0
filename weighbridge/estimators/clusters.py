"""Clusters of points, each with its own centre and covariance."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

# A cluster has at least this many points, and this many for each coordinate.
LEAST_POINTS = 10
POINTS_FOR_EACH = 2
MAX_CLUSTERS = 32
# Iterations of two-means.
LLOYD = 8
# Share of the variances that is added to the diagonal, relative to points per coordinate.
RIDGE = 1e-9


class Cluster(NamedTuple):
    """Some of the points.

    Attributes:
        members: their indices.
        mean: their mean.
        scale: Cholesky factor of their covariance.
    """

    members: np.ndarray
    mean: np.ndarray
    scale: np.ndarray


def find_clusters(position: np.ndarray) -> list[Cluster]:
    """Split the points in two, again and again, while two Gaussians describe them better.

    A split by two-means is kept if it lowers the Bayesian information criterion of Gaussians with
    full covariances: Pelleg & Moore (2000), X-means, ICML. Clusters only tune moves and proposals,
    so a poor split costs time and nothing else.

    Args:
        position: points x coordinates.
    """
    pending = [np.arange(len(position))]
    found: list[Cluster] = []
    while pending:
        members = pending.pop()
        parts = None
        if len(pending) + len(found) + 2 <= MAX_CLUSTERS:
            parts = _split(position[members])
        if parts is None:
            found.append(_cluster(position, members))
        else:
            pending += [members[parts], members[~parts]]
    return found


def _cluster(position: np.ndarray, members: np.ndarray) -> Cluster:
    points = position[members]
    return Cluster(members, points.mean(axis=0), np.linalg.cholesky(covariance(points)))


def covariance(points: np.ndarray) -> np.ndarray:
    """Covariance, shrunk towards its diagonal if there are few points for each coordinate."""
    count, dimension = points.shape
    away = points - points.mean(axis=0)
    found = away.T @ away / max(count - 1, 1)
    diagonal = found.diagonal()
    floor = diagonal.max(initial=0.0)
    diagonal = np.maximum(diagonal, 1e-24 * floor) if floor > 0 else np.ones(dimension)
    share = min(1.0, dimension / max(count, 1) / 4.0)
    mixed = (1.0 - share) * found
    of_mixed = mixed.reshape(-1)[:: dimension + 1]  # a view of its diagonal
    of_mixed += share * diagonal
    of_mixed += RIDGE * diagonal
    return np.asarray(mixed)


def _split(points: np.ndarray) -> np.ndarray | None:
    """Which points are in the first of two parts; None if one part is better."""
    count, dimension = points.shape
    least = max(LEAST_POINTS, POINTS_FOR_EACH * dimension)
    if count < 2 * least:
        return None
    factor = np.linalg.cholesky(covariance(points))
    away = points - points.mean(axis=0)
    white = np.linalg.solve(factor, away.T).T
    # Two clusters make the distribution along the line between them flat: low kurtosis.
    axes = np.linalg.eigh(away.T @ away / (count - 1))[1].T[::-1]
    lines = np.concatenate([white.T, (away @ axes[:3].T).T])
    lines = lines - lines.mean(axis=1, keepdims=True)
    spread = lines.std(axis=1, keepdims=True)
    varies = spread[:, 0] > 0
    lines = lines[varies] / spread[varies]
    if not len(lines):
        return None
    line = lines[np.argmin(np.square(np.square(lines)).sum(axis=1))]
    first = line > 0
    for _ in range(LLOYD):
        if not least <= first.sum() <= count - least:
            return None
        centres = white[first].mean(axis=0), white[~first].mean(axis=0)
        near, far = (np.square(white - centre).sum(axis=1) for centre in centres)
        again = near < far
        if np.array_equal(again, first):
            break
        first = again
    if not least <= first.sum() <= count - least:
        return None
    together = _description(white, count)
    apart = _description(white[first], count) + _description(white[~first], count)
    penalty = 0.5 * (0.5 * dimension * (dimension + 3) + 1) * math.log(count)
    return first if apart + penalty < together else None


def _description(points: np.ndarray, total: int) -> float:
    """Minus the log-likelihood of points under their own Gaussian, up to a common constant."""
    count = len(points)
    log_det = np.linalg.slogdet(covariance(points))[1]
    return float(count * (0.5 * log_det - math.log(count / total)))
