"""The points that shape the moves of walkers: never those at which they start.

Scales and directions of moves come from the surviving points, and every survivor is also the start
of a walker. Given a covariance that was computed with a point in it, this point is no exact draw:
it is nearer to the centre, in this metric, than a new draw would be. With 24 points in 10
dimensions the mean of its squared distance is 10, that of a new draw 20. Walks forget this, but
slowly, and the evidence is too high until they have. So the points are divided into folds, and the
moves of walkers that start in one fold are shaped by the points of the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weighbridge.estimators.clusters import Cluster, find_clusters

# Number of folds.
FOLDS = 4
# With fewer points in the other folds all points shape the moves.
LEAST_OTHERS = 3


class Guide(NamedTuple):
    """Points that shape the moves of some of the walkers.

    Attributes:
        walkers: indices of these walkers.
        points: points x coordinates; none of these walkers starts at one of them.
        clusters: of the points.
    """

    walkers: np.ndarray
    points: np.ndarray
    clusters: list[Cluster]


def find_guides(
    generator: np.random.Generator, position: np.ndarray, own: np.ndarray
) -> list[Guide]:
    """Guides of all walkers, by random folds of the points.

    Args:
        generator: random numbers.
        position: points x coordinates.
        own: for each walker, the index of the point at which it starts.

    >>> generator = np.random.default_rng(0)
    >>> guides = find_guides(generator, generator.standard_normal((40, 2)), np.arange(40))
    >>> [len(guide.points) for guide in guides]
    [30, 30, 30, 30]
    >>> sorted(np.concatenate([guide.walkers for guide in guides])) == list(range(40))
    True
    """
    count = len(position)
    if count - -(-count // FOLDS) < LEAST_OTHERS:
        return [Guide(np.arange(len(own)), position, find_clusters(position))]
    fold = generator.permutation(count) % FOLDS
    found = []
    for number in range(FOLDS):
        walkers, others = np.flatnonzero(fold[own] == number), position[fold != number]
        if len(walkers):
            found.append(Guide(walkers, others, find_clusters(others)))
    return found
