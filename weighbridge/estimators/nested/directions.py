"""Directions of moves, drawn on the host from the live points.

The directions of a walker must not depend on where the walker is, or the moves would not leave
their target unchanged. So every move takes a cluster at random, and no pair has the walker's own
starting point in it.
"""

from __future__ import annotations

import numpy as np

from weighbridge.estimators.nested.clusters import Cluster

# Lengths of brackets in standard deviations. A line through a ball that has unit variances is about
# this long inside it, in any number of dimensions.
SHORTEST, LONGEST = 2.5, 10.0
# Shares of the directions: differences of pairs in one cluster, and differences of any pair, which
# lead from one cluster to another. The others are random in the metric of a cluster.
PAIRS = 0.5
FAR_PAIRS = 0.1


def draw_directions(
    generator: np.random.Generator,
    position: np.ndarray,
    clusters: list[Cluster],
    own: np.ndarray,
    num_moves: int,
) -> np.ndarray:
    """Brackets of slice moves: moves x walkers x coordinates.

    Args:
        generator: random numbers.
        position: the surviving points, points x coordinates.
        clusters: clusters of these points.
        own: index of the point at which each walker starts.
        num_moves: number of moves.
    """
    count, dimension = num_moves * len(own), position.shape[1]
    sizes = np.array([len(cluster.members) for cluster in clusters], float)
    cluster = generator.choice(len(clusters), count, p=sizes / sizes.sum())
    kind = generator.random(count)
    own = np.tile(own, num_moves)
    found = np.empty((count, dimension))
    for number, (members, _, scale) in enumerate(clusters):
        mine = np.flatnonzero(cluster == number)
        normal = generator.standard_normal((len(mine), dimension))
        length = np.sqrt(np.sum(normal**2, axis=1, keepdims=True))
        found[mine] = (normal / length) @ scale.T
        pairs = mine[kind[mine] < PAIRS]
        if len(members) > 3 and len(pairs):
            apart = _pairs(generator, position[members], members, own[pairs])
            white = np.linalg.solve(scale, apart.T)
            length = np.sqrt(np.sum(white**2, axis=0))[:, None]
            usable = length[:, 0] > 0
            found[pairs[usable]] = apart[usable] / length[usable]
    low, high = np.log(SHORTEST), np.log(LONGEST)
    found *= np.exp(low + (high - low) * generator.random((count, 1)))
    if len(clusters) > 1:
        far = np.flatnonzero(kind > 1.0 - FAR_PAIRS)
        apart = _pairs(generator, position, np.arange(len(position)), own[far])
        usable = np.any(apart != 0, axis=1)
        found[far[usable]] = 2.0 * apart[usable]
    return found.reshape(num_moves, -1, dimension)


def draw_steps(
    generator: np.random.Generator, clusters: list[Cluster], num_walkers: int, num_moves: int
) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian steps in the metric of random clusters: moves x walkers x coordinates.

    Also returns the clusters: moves x walkers.
    """
    count = num_moves * num_walkers
    sizes = np.array([len(cluster.members) for cluster in clusters], float)
    cluster = generator.choice(len(clusters), count, p=sizes / sizes.sum())
    found = generator.standard_normal((count, len(clusters[0].mean)))
    for number, (_, _, scale) in enumerate(clusters):
        mine = cluster == number
        found[mine] = found[mine] @ scale.T
    shape = (num_moves, num_walkers)
    return found.reshape(*shape, -1), cluster.reshape(shape)


def _pairs(
    generator: np.random.Generator, points: np.ndarray, names: np.ndarray, own: np.ndarray
) -> np.ndarray:
    """Differences of two points that are not the walker's own; zero if that failed."""
    first, second = generator.integers(0, len(points), (2, len(own)))
    usable = (first != second) & (names[first] != own) & (names[second] != own)
    return np.where(usable[:, None], points[first] - points[second], 0.0)
