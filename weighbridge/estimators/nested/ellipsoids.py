"""Ellipsoids around clusters of points, as a distribution to draw from."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special

from weighbridge.estimators.nested.guides import Guide


class Ellipsoids(NamedTuple):
    """A density on ellipsoids around clusters.

    It is a mixture: in each ellipsoid half is uniform and half is a Gaussian cut off at its edge.
    The Gaussian halves are for priors that are much denser at the centre.

    Attributes:
        mean, scale, inverse: centres, Cholesky factors of the covariances, and their inverses.
        radius: in standard deviations.
        log_share: of the points.
        log_flat: log density of the uniform half.
        log_peak: log density of the Gaussian half at the centre.
    """

    mean: np.ndarray
    scale: np.ndarray
    inverse: np.ndarray
    radius: np.ndarray
    log_share: np.ndarray
    log_flat: np.ndarray
    log_peak: np.ndarray

    @staticmethod
    def around(guide: Guide, stretch: float) -> Ellipsoids:
        """Ellipsoids that reach a little further than the points.

        Args:
            guide: the points and their clusters.
            stretch: radius relative to that of the farthest point.
        """
        mean = np.stack([cluster.mean for cluster in guide.clusters])
        scale = np.stack([cluster.scale for cluster in guide.clusters])
        inverse = np.linalg.inv(scale)
        sizes = np.array([len(cluster.members) for cluster in guide.clusters], float)
        farthest = [
            np.square((guide.points[cluster.members] - cluster.mean) @ into.T).sum(axis=1).max()
            for cluster, into in zip(guide.clusters, inverse)
        ]
        radius = stretch * np.sqrt(np.maximum(farthest, 1e-9))
        half = mean.shape[1] / 2
        log_det = np.log(np.diagonal(scale, axis1=1, axis2=2)).sum(axis=1)
        log_ball = half * math.log(math.pi) - special.gammaln(half + 1) + 2 * half * np.log(radius)
        log_mass = np.log(special.gammainc(half, radius**2 / 2))
        log_half = math.log(0.5) - log_det
        return Ellipsoids(
            mean,
            scale,
            inverse,
            radius,
            np.log(sizes / sizes.sum()),
            log_half - log_ball,
            log_half - half * math.log(2 * math.pi) - log_mass,
        )

    def log_density(self, position: np.ndarray) -> np.ndarray:
        """Log of the density; -inf outside all ellipsoids."""
        turned = np.swapaxes(self.inverse, 1, 2)
        white = position @ turned - self.mean[:, None, :] @ turned
        squares = np.square(white).sum(axis=2)
        each = np.logaddexp(self.log_flat[:, None], self.log_peak[:, None] - squares / 2)
        outside = squares > self.radius[:, None] ** 2
        each = np.where(outside, -np.inf, each + self.log_share[:, None])
        return np.asarray(np.logaddexp.reduce(each, axis=0))

    def draw(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Draws, points x coordinates."""
        dimension, half = self.mean.shape[1], self.mean.shape[1] / 2
        chosen = generator.choice(len(self.mean), count, p=np.exp(self.log_share))
        direction = generator.standard_normal((count, dimension))
        direction /= np.sqrt(np.square(direction).sum(axis=1, keepdims=True))
        radius, uniform = self.radius[chosen], generator.random(count)
        gaussian = special.gammaincinv(half, uniform * special.gammainc(half, radius**2 / 2))
        is_flat = generator.random(count) < 0.5
        length = np.where(is_flat, radius * uniform ** (1 / dimension), np.sqrt(2 * gaussian))
        found = length[:, None] * direction
        for number, scale in enumerate(self.scale):
            mine = chosen == number
            found[mine] = found[mine] @ scale.T
        return np.asarray(found + self.mean[chosen])
