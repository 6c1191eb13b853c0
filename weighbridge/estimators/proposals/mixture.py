"""Mixtures of Gaussians and Student-t distributions, for importance and bridge sampling."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from weighbridge.core.resampling import systematic_indices
from weighbridge.estimators.clusters import covariance, find_clusters


class Mixture(NamedTuple):
    r"""A mixture of multivariate Student-t distributions; infinite degrees of freedom: a Gaussian.

    .. math:: q(u) = \sum_k w_k \, t_{\nu_k}(u; m_k, R_k R_k^\top)

    Attributes:
        share: weights of the components; they sum to 1.
        mean: centres, components x coordinates.
        root: lower triangular roots of the scale matrices, components x coordinates x coordinates.
        freedom: degrees of freedom of each component; infinity for a Gaussian.

    >>> standard = Mixture.of(np.zeros(2), np.eye(2))
    >>> round(float(standard.log_density(np.zeros((1, 2)))[0]), 6)
    -1.837877
    >>> standard.draw(np.random.default_rng(0), 5).shape
    (5, 2)
    """

    share: np.ndarray
    mean: np.ndarray
    root: np.ndarray
    freedom: np.ndarray

    @classmethod
    def of(cls, mean: np.ndarray, root: np.ndarray, freedom: float = math.inf) -> Self:
        """One component."""
        return cls(np.ones(1), mean[None], root[None], np.array([freedom]))

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return int(self.mean.shape[1])

    def draw(self, numbers: np.random.Generator, count: int) -> np.ndarray:
        """Draws x coordinates, shuffled.

        The numbers of draws of the components are those of systematic sampling, at most one from
        their expectation: this leaves estimates unbiased and makes them vary less.
        """
        with np.errstate(divide="ignore"):
            log_share = np.log(self.share)
        chosen = np.asarray(systematic_indices(numbers.random(), log_share, count))
        chosen = numbers.permutation(chosen)
        noise = numbers.standard_normal((count, self.dimension))
        freedom = self.freedom[chosen]
        heavy = np.isfinite(freedom)
        if heavy.any():
            chi_square = numbers.chisquare(np.where(heavy, freedom, 1.0))
            noise *= np.where(heavy, np.sqrt(np.where(heavy, freedom, 1.0) / chi_square), 1.0)[
                :, None
            ]
        draws = np.empty_like(noise)
        for component, (mean, root) in enumerate(zip(self.mean, self.root)):
            own = chosen == component
            draws[own] = mean + noise[own] @ root.T
        return draws

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """Log density at points x coordinates."""
        with np.errstate(divide="ignore"):
            terms = np.log(self.share)[:, None] + self.log_components(points)
        return np.asarray(np.logaddexp.reduce(terms, axis=0))

    def log_components(self, points: np.ndarray) -> np.ndarray:
        """Log density of every component, without its share: components x points."""
        found = np.empty((len(self.share), len(points)))
        for component, (mean, root, freedom) in enumerate(zip(self.mean, self.root, self.freedom)):
            white = solve_triangular(root, (points - mean).T, lower=True, check_finite=False)
            square = np.sum(white**2, axis=0)
            found[component] = log_student(square, self.dimension, float(freedom))
            found[component] -= np.sum(np.log(np.diag(root)))
        return found

    def stretched(self, factor: float) -> Self:
        """The same mixture with every component wider by this factor."""
        return self._replace(root=self.root * factor)

    def with_freedom(self, freedom: float) -> Self:
        """The same components with these degrees of freedom."""
        return self._replace(freedom=np.full(len(self.share), freedom))

    def joined(self, other: Self, share: float) -> Self:
        """A mixture of this one and a second one, which has this share: a defensive mixture.

        With a wide second one the density is nowhere much lower than that one, so importance
        weights are bounded: Hesterberg (1995), Technometrics 37:185-194.
        """
        shares = np.concatenate([(1.0 - share) * self.share, share * other.share])
        pairs = zip(self[1:], other[1:])
        return type(self)(shares, *(np.concatenate(pair) for pair in pairs))


def log_student(square: np.ndarray, dimension: int, freedom: float) -> np.ndarray:
    """Log density of a standard Student-t, or Gaussian, at a squared distance from its centre.

    >>> near = log_student(np.ones(1), 3, 1e9), log_student(np.ones(1), 3, math.inf)
    >>> bool(abs(near[0] - near[1])[0] < 1e-6)
    True
    """
    if math.isinf(freedom):
        return -0.5 * (square + dimension * math.log(2.0 * math.pi))
    constant = gammaln(0.5 * (freedom + dimension)) - gammaln(0.5 * freedom)
    constant -= 0.5 * dimension * math.log(freedom * math.pi)
    return np.asarray(constant - 0.5 * (freedom + dimension) * np.log1p(square / freedom))


def fit_one(draws: np.ndarray, freedom: float = math.inf) -> Mixture:
    """One component with the mean and the covariance of equally weighted draws.

    The covariance is shrunk towards its diagonal if there are few draws for each coordinate.

    >>> fit_one(np.random.default_rng(0).normal(size=(5000, 2))).root[0].round(1).tolist()
    [[1.0, 0.0], [-0.0, 1.0]]
    """
    return Mixture.of(draws.mean(axis=0), np.linalg.cholesky(covariance(draws)), freedom)


def fit_clusters(draws: np.ndarray, freedom: float = math.inf) -> Mixture:
    """A component for each cluster of equally weighted draws; see ``find_clusters``.

    >>> draws = np.random.default_rng(0).normal(size=(400, 1)) + np.repeat([[-9.0], [9.0]], 200, 0)
    >>> sorted(fit_clusters(draws).mean[:, 0].round().tolist())
    [-9.0, 9.0]
    """
    found = find_clusters(draws)
    share = np.array([len(cluster.members) for cluster in found], float)
    return Mixture(
        share / share.sum(),
        np.stack([cluster.mean for cluster in found]),
        np.stack([cluster.scale for cluster in found]),
        np.full(len(found), freedom),
    )
