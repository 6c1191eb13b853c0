"""Bridges from the particles at the end of a path to Gaussians fitted to them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

from weighbridge.core import interrupts
from weighbridge.core.islands import ENOUGH_PARTICLES
from weighbridge.core.random import Stream, random_numbers
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.path_density import log_densities
from weighbridge.estimators.bridging.bridge import Bridged, bridge

# With at least this many particles for each dimension, a Gaussian is fitted to their scores. For a
# Gaussian density one would be enough; the tails of the ratios show whether the fit is good.
ENOUGH_SCORES = 1.25

# Mean, and a triangular square root of the covariance.
Gaussian = tuple[np.ndarray, np.ndarray]
# Takes positions, their scores and their normalised weights, one row for each particle.
Fit = Callable[[np.ndarray, np.ndarray, np.ndarray], Gaussian]


def bridge_to_gaussians(
    seed: int,
    first_island: int,
    path: Path,
    cloud: Cloud,
    *,
    differentiable: bool,
    adjust: Callable[[np.ndarray], np.ndarray] | None = None,
    stage: int = 0,
    turn: int = 0,
) -> Bridged | None:
    """Bridge between the particles and Gaussians fitted to them; None if the fit fails.

    Islands are in five groups in a circle. The Gaussian of a group is fitted to the next two
    groups: a proposal fitted to the draws with which it is compared would fit them too well. Two
    groups must not fit each other either. The random error from the draws of A and B is about a
    product d_A d_B. It would occur twice, for the Gaussian of A at the draws of B and for that of B
    at the draws of A, and the jackknife would treat the two as independent.

    Gaussians are fitted to the scores first, and to the moments if the scores fit badly; the fit
    with the lighter tails is used. ``adjust`` gives an offset of the log density at positions: if
    the density has many symmetric copies, it restricts the density to one of them. Another
    ``stage`` of a run, or another ``turn``, uses other random numbers.
    """
    position, log_weight = np.asarray(cloud.position), np.asarray(cloud.log_weight)
    if len(position) < 4:
        return None
    height, score = log_densities(path, position, differentiable=differentiable)
    if adjust is not None:
        height = height + adjust(position)
    fits: list[tuple[Fit, float]] = [(fit_moments, ENOUGH_PARTICLES)]
    if score is not None:
        fits = [(fit_scores, ENOUGH_SCORES), *fits]
    found: list[Bridged] = []
    for number, (fit, enough) in enumerate(fits):
        scores = position if score is None else score
        proposals = _proposals(position, scores, log_weight, fit, enough)
        if proposals is None:
            continue
        name = number + len(fits) * turn
        numbers = random_numbers(seed, Stream.BRIDGES, first_island, name, stage)
        noise = numbers.standard_normal(position.shape)
        interrupts.check()
        draws, at_draws, at_particles = (np.empty(s) for s in (noise.shape, *2 * [height.shape]))
        for here, (mean, root) in proposals:
            draws[here] = mean + noise[here] @ root.T
            at_draws[here] = log_normal(noise[here], root)
            at_particles[here] = log_normal(_standardised(position[here], mean, root), root)
        log_proposal = log_densities(path, draws, differentiable=differentiable)[0] - at_draws
        if adjust is not None:
            log_proposal = log_proposal + adjust(draws)
        log_proposal = np.where(np.isnan(log_proposal), -np.inf, log_proposal)
        found.append(bridge(height - at_particles, log_proposal, log_weight))
        if found[-1].is_even:
            return found[-1]
    return min(found, key=lambda b: max(b.khat_proposal, b.khat_posterior), default=None)


def _proposals(
    position: np.ndarray, score: np.ndarray, log_weight: np.ndarray, fit: Fit, enough: float
) -> list[tuple[np.ndarray, Gaussian]] | None:
    """The Gaussian of each group of islands; None if particles are too few or a fit fails."""
    num_groups = 5 if len(position) >= 5 else 3
    group = np.arange(len(position)) % num_groups
    dimension = position.shape[-1]
    log_total = np.logaddexp.reduce(log_weight, axis=1, keepdims=True)
    # An island without weight has no share.
    share = np.exp(log_weight - np.where(np.isfinite(log_total), log_total, 0.0))
    proposals = []
    for own in range(num_groups):
        ahead = (group - own) % num_groups
        others = (ahead > 0) & (2 * ahead < num_groups)
        weights = share[others].reshape(-1)
        if not weights.sum() > 0:
            return None
        weights = weights / weights.sum()
        if not 1 / np.sum(weights**2) >= enough * dimension:
            return None
        where, scores = (leaf[others].reshape(-1, dimension) for leaf in (position, score))
        try:
            proposals.append((ahead == 0, fit(where, scores, weights)))
        except np.linalg.LinAlgError:
            return None
    return proposals


def fit_moments(position: np.ndarray, _: np.ndarray, share: np.ndarray) -> Gaussian:
    """The Gaussian with the mean and the covariance of weighted particles."""
    covariance = np.atleast_2d(np.cov(position.T, aweights=share))
    return share @ position, np.linalg.cholesky(covariance)


def fit_scores(position: np.ndarray, score: np.ndarray, share: np.ndarray) -> Gaussian:
    r"""The Gaussian whose score is the linear regression of the scores on the positions.

    .. math:: \nabla \log f(x) \approx -P (x - m)

    For a Gaussian density it is exact with D + 1 particles or more. Moments are noisy: the log
    ratio to a Gaussian with the moments of N particles has a variance of about D^2 / 2N.
    """
    usable = (share > 0) & np.isfinite(score).all(axis=1)
    position, score, share = position[usable], score[usable], share[usable] / share[usable].sum()
    centre, mean_score = share @ position, share @ score
    weighted = share[:, None] * (position - centre)
    slope = np.linalg.solve(weighted.T @ (position - centre), weighted.T @ (score - mean_score))
    root = np.linalg.cholesky(-0.5 * (slope + slope.T))
    inverse = solve_triangular(root, np.eye(len(root)), lower=True).T
    return centre + inverse @ (inverse.T @ mean_score), inverse


def log_normal(noise: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Log density of a Gaussian at these standardised coordinates."""
    constant = 0.5 * len(root) * math.log(2 * math.pi) + np.sum(np.log(np.diag(root)))
    return np.asarray(-0.5 * np.sum(noise**2, axis=-1) - constant)


def _standardised(position: np.ndarray, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
    flat = (position - mean).reshape(-1, len(root))
    return np.asarray(np.linalg.solve(root, flat.T).T.reshape(position.shape))
