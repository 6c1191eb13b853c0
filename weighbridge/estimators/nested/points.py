"""Points of nested sampling runs: their likelihoods, and the contours at which they were born.

A run is a set of points, each with its own log-likelihood and the contour above which it was drawn.
This is all that the evidence needs, so that independent runs are merged by concatenation:
Higson et al. (2018), Bayesian Analysis 13:873-896.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

# The contour of draws from the prior is below every point, also below those at -inf.
PRIOR_CONTOUR = (-np.inf, -1.0)


class Points(NamedTuple):
    """Points with their contours; the first axes of all arrays are the same.

    Attributes:
        position: unconstrained coordinates, along the last axis.
        log_prior: log density of the prior there.
        log_likelihood: log-likelihood there.
        tie: order of points with the same log-likelihood, in (0, 1).
        birth, birth_tie: the contour above which the point was drawn.
        insertion: how many of the points that it was inserted among are below it; -1 for draws from
            the prior.
        among: how many points it was inserted among.
        island: number of its run.
    """

    position: np.ndarray
    log_prior: np.ndarray
    log_likelihood: np.ndarray
    tie: np.ndarray
    birth: np.ndarray
    birth_tie: np.ndarray
    insertion: np.ndarray
    among: np.ndarray
    island: np.ndarray

    def take(self, index: Any) -> Points:
        """Some of the points, by an index of NumPy."""
        return Points(*(leaf[index] for leaf in self))

    def along(self, order: np.ndarray) -> Points:
        """For points of islands x live points: those of an index along the second axis."""
        island = np.arange(len(order))[:, None]
        return Points(*(leaf[island, order] for leaf in self))

    def flat(self) -> Points:
        """Points of islands x live points as one list."""
        return Points(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in self))

    def islands(self, num_islands: int) -> Points:
        """Points as one list, in the order of their islands, as islands x points."""
        return Points(*(leaf.reshape(num_islands, -1, *leaf.shape[1:]) for leaf in self))

    def sorted(self) -> Points:
        """The points from the lowest to the highest."""
        return self.take(np.lexsort((self.tie, self.log_likelihood)))


# Before a run has any.
NO_POINTS = Points(*[np.empty((0, 0))] * len(Points._fields))


def joined(pieces: Sequence[Points], axis: int = 0) -> Points:
    """Several sets of points as one."""
    return Points(*(np.concatenate(leaves, axis=axis) for leaves in zip(*pieces)))


def num_live(points: Points) -> np.ndarray:
    """For each point, from the lowest on: how many points live when it dies, itself included.

    A point lives from its birth contour up to its own likelihood.

    Args:
        points: from the lowest to the highest.

    >>> likelihood, birth = np.array([0.0, 1.0, 2.0, 3.0]), np.array([-np.inf, -np.inf, 0.0, 1.0])
    >>> none, tie = np.zeros(4), np.full(4, 0.5)
    >>> born = np.where(birth == -np.inf, -1.0, 0.5)
    >>> num_live(Points(none, none, likelihood, tie, birth, born, none, none, none)).tolist()
    [2, 2, 2, 1]
    """
    count = len(points.tie)
    level = np.concatenate([points.log_likelihood, points.birth])
    tie = np.concatenate([points.tie, points.birth_tie])
    # A point that is born at the contour of a death is born after it.
    is_birth = np.repeat([False, True], count)
    order = np.lexsort((is_birth, tie, level))
    births, event = np.cumsum(is_birth[order]), np.empty(2 * count, int)
    event[order] = births
    deaths_before = np.arange(count)
    return np.asarray(event[:count] - deaths_before)
