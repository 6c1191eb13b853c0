"""The proposals of a bridge from posterior draws, and the choice among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from weighbridge.estimators.bridging.bridge import Sides
from weighbridge.estimators.proposals.mixture import Mixture, fit_clusters, fit_one

# Degrees of freedom that are tried for a Student-t proposal.
FREEDOMS = (3.0, 5.0, 10.0, 30.0)
# Draws of each of the two samples in the pilot bridge that chooses a proposal.
PILOT = 256
# The overlap by which another proposal must be better than a simpler one.
CLEARLY = 0.02

# The log density at positions x coordinates.
LogDensities = Callable[[np.ndarray], np.ndarray]


class Proposal(NamedTuple):
    r"""A normalised density, and whether the posterior is made symmetric around its centre first.

    For Warp-III (Meng & Schilling 2002, J. Comput. Graph. Stat. 11:552-586) the unnormalised
    posterior f is replaced by the mean of f and its mirror image,

    .. math:: \tilde f(u) = \tfrac12 \bigl( f(u) + f(2 m - u) \bigr), \qquad q = N(m, R R^\top)

    which has the same integral, no skewness, and so a larger overlap with a Gaussian. In
    standardised coordinates z = R^{-1} (u - m) it is |R| (f(m + R z) + f(m - R z)) / 2, against a
    standard normal.

    Attributes:
        density: the density.
        mirrored: whether f is replaced by its symmetric form (the density then has one component).
    """

    density: Mixture
    mirrored: bool = False

    def images(self, points: np.ndarray) -> np.ndarray:
        """The mirror images of points."""
        return np.asarray(2.0 * self.density.mean[0] - points)

    def log_ratio(
        self, points: np.ndarray, height: np.ndarray, image_height: np.ndarray | None
    ) -> np.ndarray:
        """Log ratio of the (symmetric) posterior to the density at points.

        Args:
            points: points x coordinates.
            height: log f at the points.
            image_height: log f at their mirror images, if there are any.
        """
        if image_height is not None:
            height = np.logaddexp(height, image_height) - math.log(2.0)
        return np.asarray(height - self.density.log_density(points))


def fit(kind: str, draws: np.ndarray) -> Proposal:
    """A proposal of a kind, fitted to equally weighted draws.

    >>> draws = np.random.default_rng(0).normal(size=(500, 2))
    >>> fit("warp3", draws).mirrored, fit("normal", draws).mirrored
    (True, False)
    """
    if kind == "mixture":
        return Proposal(fit_clusters(draws))
    if kind == "student_t":
        return Proposal(_fit_student(draws))
    return Proposal(fit_one(draws), kind == "warp3")


def _fit_student(draws: np.ndarray) -> Mixture:
    """The Student-t with the moments of the draws and the most likely degrees of freedom."""
    gaussian = fit_one(draws)
    fits = [
        gaussian.with_freedom(freedom).stretched(math.sqrt((freedom - 2.0) / freedom))
        for freedom in FREEDOMS
    ]
    return max(fits, key=lambda found: float(np.mean(found.log_density(draws))))


# From the simplest to the most elaborate.
KINDS: tuple[str, ...] = ("normal", "student_t", "warp3", "mixture")


def choose(
    density: LogDensities, first: np.ndarray, second: np.ndarray, numbers: np.random.Generator
) -> tuple[str, dict[str, float]]:
    """The kind of proposal that overlaps most with the posterior, and the overlaps of all kinds.

    Each kind is fitted to the first draws and bridged to some of the second ones. The estimates of
    log Z of these pilot bridges are not looked at. A kind must overlap clearly more than a simpler
    one.

    Args:
        density: the unnormalised log posterior.
        first: equally weighted posterior draws.
        second: others, independent of them.
        numbers: for the draws from the proposals.
    """
    tested = second[np.linspace(0, len(second) - 1, min(PILOT, len(second))).astype(int)]
    height = density(tested)
    overlaps: dict[str, float] = {}
    best = KINDS[0]
    for kind in KINDS:
        proposal = fit(kind, first)
        if kind == "mixture" and len(proposal.density.share) == 1:
            continue  # it is the normal proposal
        drawn = proposal.density.draw(numbers, PILOT)
        below = proposal.log_ratio(
            tested, height, density(proposal.images(tested)) if proposal.mirrored else None
        )
        above = proposal.log_ratio(
            drawn, density(drawn), density(proposal.images(drawn)) if proposal.mirrored else None
        )
        overlaps[kind] = _overlap(below, above)
        if overlaps[kind] > overlaps[best] + CLEARLY:
            best = kind
    return best, overlaps


def _overlap(posterior: np.ndarray, proposal: np.ndarray) -> float:
    share = np.full((1, len(posterior)), 1.0 / len(posterior))
    sides = Sides(posterior[None], proposal[None], share, 0.5)
    log_evidence = sides.solve()
    if not math.isfinite(log_evidence):
        return 0.0
    return float(np.mean(sides.terms(log_evidence)[1]))
