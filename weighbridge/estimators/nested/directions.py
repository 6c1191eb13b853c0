"""Directions of moves, drawn on the host from the live points.

The directions of a walker must not depend on where the walker is, or the moves would not leave
their target unchanged. So every block of moves takes a cluster at random, and the clusters and the
pairs are of points at which the walker did not start (``guides``). Most blocks are an orthonormal
basis in the metric of the cluster: a walker moves along each of its directions once, and forgets
its position faster than with directions that are independent of each other. The other blocks are
differences of pairs of points.
"""

from __future__ import annotations

import numpy as np

from weighbridge.estimators.nested.guides import Guide

# Lengths of brackets in standard deviations. A line through a ball that has unit variances is about
# as long inside it as the shortest, in any number of dimensions.
SHORTEST, LONGEST = 4.0, 8.0
# Shares of the blocks of moves with other directions than a basis: differences of pairs in one
# cluster, and differences of any pair, which lead from one cluster to another.
PAIRS = 0.1
FAR_PAIRS = 0.1


def draw_directions(generator: np.random.Generator, guide: Guide, num_moves: int) -> np.ndarray:
    """Brackets of slice moves: moves x walkers x coordinates.

    Args:
        generator: random numbers.
        guide: some walkers, and the points that shape their moves.
        num_moves: number of moves.
    """
    points, clusters = guide.points, guide.clusters
    num_walkers, dimension = len(guide.walkers), points.shape[1]
    # A block is a basis, so all of its moves have the metric of one cluster.
    num_blocks, count = -(-num_moves // dimension), num_moves * num_walkers
    sizes = np.array([len(cluster.members) for cluster in clusters], float)
    chosen = generator.choice(len(clusters), (num_blocks, num_walkers), p=sizes / sizes.sum())
    kinds = generator.random((num_blocks, num_walkers))
    cluster, kind = (
        np.repeat(of_block, dimension, axis=0)[:num_moves].reshape(-1)
        for of_block in (chosen, kinds)
    )
    found = _bases(generator, num_moves, num_walkers, dimension)
    for number, (members, _, scale) in enumerate(clusters):
        mine = np.flatnonzero(cluster == number)
        found[mine] = found[mine] @ scale.T
        pairs = mine[kind[mine] < PAIRS]
        if len(members) > 3 and len(pairs):
            apart = _pairs(generator, points[members], len(pairs))
            white = np.linalg.solve(scale, apart.T)
            length = np.sqrt(np.sum(white**2, axis=0))[:, None]
            usable = length[:, 0] > 0
            found[pairs[usable]] = apart[usable] / length[usable]
    low, high = np.log(SHORTEST), np.log(LONGEST)
    found *= np.exp(low + (high - low) * generator.random((count, 1)))
    if len(clusters) > 1:
        far = np.flatnonzero(kind > 1.0 - FAR_PAIRS)
        apart = _pairs(generator, points, len(far))
        usable = np.any(apart != 0, axis=1)
        found[far[usable]] = 2.0 * apart[usable]
    return found.reshape(num_moves, -1, dimension)


def draw_steps(
    generator: np.random.Generator, guide: Guide, num_moves: int
) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian steps in the metric of random clusters: moves x walkers x coordinates.

    Also returns the clusters: moves x walkers.
    """
    clusters, num_walkers = guide.clusters, len(guide.walkers)
    count = num_moves * num_walkers
    sizes = np.array([len(cluster.members) for cluster in clusters], float)
    cluster = generator.choice(len(clusters), count, p=sizes / sizes.sum())
    found = generator.standard_normal((count, len(clusters[0].mean)))
    for number, (_, _, scale) in enumerate(clusters):
        mine = cluster == number
        found[mine] = found[mine] @ scale.T
    shape = (num_moves, num_walkers)
    return found.reshape(*shape, -1), cluster.reshape(shape)


def _bases(
    generator: np.random.Generator, num_moves: int, num_walkers: int, dimension: int
) -> np.ndarray:
    """Unit vectors of which each walker has an orthonormal basis in every ``dimension`` moves.

    Every walker reflects a common random basis at a hyperplane of its own.

    Returns:
        (moves x walkers) x coordinates.
    """
    num_bases = -(-num_moves // dimension)
    normal = generator.standard_normal((num_bases, dimension, dimension))
    basis = np.linalg.qr(normal)[0].reshape(-1, dimension)[:num_moves]
    mirror = generator.standard_normal((num_bases, num_walkers, dimension))
    mirror /= np.sqrt(np.sum(mirror**2, axis=2, keepdims=True))
    mirror = np.repeat(mirror, dimension, axis=0)[:num_moves]
    along = np.einsum("mwd,md->mw", mirror, basis)
    found = basis[:, None, :] - 2.0 * along[:, :, None] * mirror
    return np.asarray(found.reshape(-1, dimension))


def _pairs(generator: np.random.Generator, points: np.ndarray, count: int) -> np.ndarray:
    """Differences of two points; zero where both are the same."""
    first, second = generator.integers(0, len(points), (2, count))
    return np.asarray(points[first] - points[second])
