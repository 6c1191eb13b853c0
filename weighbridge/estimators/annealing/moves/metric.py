"""The metric of moves in many dimensions: a diagonal and a few directions, from few particles."""

from __future__ import annotations

import math

import numpy as np

from weighbridge.estimators.annealing.cloud import Cloud, shares
from weighbridge.estimators.annealing.moves.scales import from_other_islands
from weighbridge.sampling.kernels.parts.scale import LowRank

# Directions of a low-rank metric: each costs as much in a move as two more coordinates.
NUM_DIRECTIONS = 8
NUM_ITERATIONS = 2
# A direction counts if its variance exceeds the largest one of pure noise by this factor.
ABOVE_NOISE = 1.1


def others_low_rank(cloud: Cloud) -> LowRank:
    """For each island the scale of low rank from particles of other islands."""

    def scale(half: Cloud) -> LowRank:
        return low_rank_scale(half.position.reshape(-1, half.position.shape[-1]), shares(half))

    found: LowRank = from_other_islands(cloud, scale)
    return found


def low_rank_scale(position: np.ndarray, share: np.ndarray) -> LowRank:
    r"""A square root of the covariance of particles that are few for their dimension.

    The particles are divided by their standard deviations. Of their correlation matrix only the
    eigenvalues above those of pure noise are kept. For D independent coordinates and N particles,
    noise reaches

    .. math:: (1 + \sqrt{\gamma})^2, \qquad \gamma = D / N

    An eigenvalue a above it belongs to a variance b that is smaller,

    .. math:: a = b \Bigl( 1 + \frac{\gamma}{b - 1} \Bigr), \qquad
              b = \tfrac12 \bigl( a + 1 - \gamma + \sqrt{(a + 1 - \gamma)^2 - 4 a} \bigr)

    Narrow directions are not found: with fewer particles than dimensions there are always
    directions in which the particles do not vary at all. Donoho, Gavish & Johnstone (2018), Annals
    of Statistics 46:1742-1778.

    Args:
        position: particles x coordinates.
        share: weights of the particles, which add up to 1.

    Returns:
        The scale, with ``NUM_DIRECTIONS`` directions; those that are not used have stretch 1.

    >>> numbers = np.random.default_rng(0)
    >>> position = numbers.standard_normal((300, 500))
    >>> position += 3 * numbers.standard_normal((300, 1))  # all coordinates vary together
    >>> scale = low_rank_scale(position, np.full(300, 1 / 300))
    >>> bool(scale.stretch[0] > 10), bool(np.all(scale.stretch[1:] == 1))
    (True, True)
    """
    used = share > 0
    position, share = position[used], share[used] / share[used].sum()
    deviation = position - share @ position
    variance = share @ deviation**2
    diagonal = np.sqrt(np.where(variance > 0, variance, 1.0))
    # Copies from resampling count once.
    effective = min(1.0 / np.sum(share**2), float(len(np.unique(position[:, 0]))))
    dimension = position.shape[1]
    num_directions = min(NUM_DIRECTIONS, dimension)
    directions, stretch = np.zeros((dimension, num_directions)), np.ones(num_directions)
    if effective < 2:
        return LowRank(diagonal, directions, stretch)
    rows = np.sqrt(share)[:, None] * deviation / diagonal
    eigenvalues, vectors = _widest(rows, num_directions)
    gamma = dimension / effective
    edge = ABOVE_NOISE * (1 + math.sqrt(gamma)) ** 2
    for place, observed in enumerate(eigenvalues[eigenvalues > edge]):
        sum_ = observed + 1 - gamma
        true = 0.5 * (sum_ + math.sqrt(max(sum_**2 - 4 * observed, 0.0)))
        directions[:, place] = vectors[:, place]
        stretch[place] = math.sqrt(true)
    return LowRank(diagonal, directions, stretch)


def _widest(rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of R^T R, the largest first, and their eigenvectors as columns.

    Found by iteration of a block of vectors, which takes far less time than all eigenvalues. Those
    near the noise converge slowly, and are not needed.
    """
    # Any fixed vectors that are not special will do as a start.
    block = rows.T @ np.cos(np.outer(np.arange(len(rows)), 1.0 + np.arange(2 * count)))
    for _ in range(NUM_ITERATIONS):
        block = rows.T @ (rows @ np.linalg.qr(block)[0])
    basis = np.linalg.qr(block)[0]
    along = rows @ basis
    eigenvalues, turn = np.linalg.eigh(along.T @ along)
    return eigenvalues[::-1][:count], (basis @ turn)[:, ::-1][:, :count]
