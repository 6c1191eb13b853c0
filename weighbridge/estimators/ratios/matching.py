"""Two densities of different dimension on one space: a conditional proposal, and matched shapes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from weighbridge.estimators.clusters import covariance
from weighbridge.estimators.proposals.mixture import Mixture, fit_clusters


class Matching(NamedTuple):
    r"""A map of the other coordinates of the full model to those of the smaller one.

    .. math:: T_b(v) = m_0 + R_0 R^{-1} (v - m - A (b - \mu))

    With b the coordinates that only the full model has, and q a normalised density of them, the
    density g of the smaller model becomes one of all coordinates with the same integral:

    .. math:: G(b, v) = q(b) \, g(T_b(v)) \, |R_0| / |R|

    With the linear regression A of v on b, and the centres and shapes of both posteriors, G is the
    posterior of the full model where both are Gaussian, however far the point is from the centre.
    Such maps: Meng & Schilling (2002), Warp bridge sampling, J. Comp. Graph. Stat. 11:552-586.
    """

    marginal: Mixture
    centre: np.ndarray
    slope: np.ndarray
    mean: np.ndarray
    root: np.ndarray
    smaller_mean: np.ndarray
    smaller_root: np.ndarray

    @property
    def log_det(self) -> float:
        """Log determinant of the map."""
        wide, narrow = np.diag(self.smaller_root), np.diag(self.root)
        return float(np.sum(np.log(wide)) - np.sum(np.log(narrow)))

    def to_smaller(self, held: np.ndarray, rest: np.ndarray) -> np.ndarray:
        """The coordinates of the smaller model: draws x coordinates."""
        away = rest - self.mean - (held - self.centre) @ self.slope.T
        return np.asarray(self.smaller_mean + _solve(self.root, away) @ self.smaller_root.T)

    def to_full(self, held: np.ndarray, smaller: np.ndarray) -> np.ndarray:
        """The other coordinates of the full model, by the inverse map."""
        white = _solve(self.smaller_root, smaller - self.smaller_mean)
        shift = (held - self.centre) @ self.slope.T
        return np.asarray(self.mean + shift + white @ self.root.T)


def match(full: np.ndarray, smaller: np.ndarray, kept: np.ndarray) -> Matching:
    """Fit the map to equally weighted draws of both posteriors.

    Args:
        full: draws of the full model, draws x coordinates.
        smaller: draws of the smaller model, draws x its coordinates.
        kept: which coordinates of the full model correspond to those of the smaller one.

    >>> numbers = np.random.default_rng(0)
    >>> full = numbers.normal(size=(400, 3))
    >>> found = match(full, 2.0 * full[:, 1:] + 1.0, np.array([False, True, True]))
    >>> there = found.to_smaller(full[:, :1], full[:, 1:])
    >>> bool(np.allclose(found.to_full(full[:, :1], there), full[:, 1:]))
    True
    """
    alone = regress(full, kept)
    return alone._replace(
        smaller_mean=smaller.mean(axis=0), smaller_root=np.linalg.cholesky(covariance(smaller))
    )


def regress(full: np.ndarray, kept: np.ndarray, at: np.ndarray | None = None) -> Matching:
    """The map to the conditional distribution at a point of b, from draws of the full model alone.

    Args:
        full: draws of the full model, draws x coordinates.
        kept: which coordinates the smaller model has, too.
        at: the point, in unconstrained coordinates; None if it is at infinity.
    """
    held, rest = full[:, ~kept], full[:, kept]
    both = covariance(full)
    own, cross = both[np.ix_(~kept, ~kept)], both[np.ix_(kept, ~kept)]
    slope = np.linalg.solve(own, cross.T).T
    left = both[np.ix_(kept, kept)] - slope @ cross.T
    root = np.linalg.cholesky(left) if len(left) else left
    centre, mean = held.mean(axis=0), rest.mean(axis=0)
    shift = np.zeros_like(mean) if at is None else slope @ (at - centre)
    return Matching(fit_clusters(held), centre, slope, mean, root, mean + shift, root)


def _solve(root: np.ndarray, away: np.ndarray) -> np.ndarray:
    if not root.size:
        return away
    return np.asarray(solve_triangular(root, away.T, lower=True, check_finite=False).T)
