"""Importance samples of modes: of quenched particles, and of the tops of climbs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.thresholds import MAX_PROPOSAL_PARETO_K
from weighbridge.diagnostics.pareto import pareto_khat
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.labels import Cell
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.path_density import log_densities
from weighbridge.estimators.bridging.gaussians import Gaussian, log_normal
from weighbridge.estimators.clusters import POINTS_FOR_EACH, find_clusters
from weighbridge.estimators.second_look.joining import Mode
from weighbridge.estimators.second_look.peaks import Peak

# Particles within this many nats of the best are in modes of the same height.
SAME_HEIGHT = 3.0
# Powers at which particles are quenched.
QUENCH = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
# Fits of a Gaussian to its own draws, and more of them for the curvature at a peak.
NUM_FITS, MORE_FITS = 3, 3
# Groups of quenched particles that are looked at, the largest first.
MAX_GROUPS = 8
# Particles are stragglers if a coordinate is this many median deviations from its median; of
# normal coordinates one in two million is.
STRAGGLING = 7.5
# An importance sample is used if it has at least this many effective draws.
ENOUGH_DRAWS = 30.0
# Degrees of freedom of the Student-t for half of the draws: the tails of a Gaussian may be too
# light.
FREEDOM = 3.0
# With this many effective draws its mass is known better than from the particles of a path.
SHARP_DRAWS = 100.0
# With this share of effective draws, the tails of the weights do not matter.
EVEN = 0.3
# Peaks that are sampled at most; those with less than exp(-NEGLIGIBLE) of the heaviest never count.
MAX_SAMPLED, NEGLIGIBLE = 32, 7.0
# First number of their random streams.
PEAKS_FROM = 100


class ModeSample(NamedTuple):
    """An importance sample of a mode.

    Attributes:
        log_evidence: of the mode; by Laplace's method if the draws of a peak are of no use.
        std_error: its standard error.
        ess: effective draws; 0 if no Gaussian could be fitted.
        mode: the draws.
        found_by: how many climbs ended in the mode; 0 if there were no climbs.
    """

    log_evidence: float
    std_error: float
    ess: float
    mode: Mode
    found_by: int = 0

    @property
    def is_usable(self) -> bool:
        """Whether it has enough effective draws to say anything."""
        return self.ess >= ENOUGH_DRAWS

    @property
    def is_sharp(self) -> bool:
        """Whether its mass is known well enough to replace what a path says."""
        if self.ess < SHARP_DRAWS:
            return False
        # Half of the draws are from a Student-t: with nearly equal weights the tails do not matter.
        even = self.ess > EVEN * len(self.mode.log_weight)
        return even or pareto_khat(self.mode.log_weight) < MAX_PROPOSAL_PARETO_K

    def holds(self, position: np.ndarray) -> bool:
        """Whether a position is in the mode."""
        if not self.is_usable:
            return False
        return bool(self.mode.distance(position[None])[0] <= self.mode.radius(np.empty(0)))


def no_sample(dimension: int) -> ModeSample:
    """An empty importance sample."""
    standard = np.zeros(dimension), np.empty((0, 0))  # no D x D matrix for nothing
    none = Mode(np.empty((0, dimension)), np.empty(0), standard)
    return ModeSample(-math.inf, math.nan, 0.0, none)


def mode_samples(
    seed: int,
    path: Path,
    cloud: Cloud,
    cell: Cell | None,
    differentiable: bool,
    peaks: Sequence[Peak] = (),
) -> tuple[ModeSample, tuple[ModeSample, ...]]:
    """Importance samples of modes: of all the highest quenched particles, and of single modes.

    One Gaussian for two modes, or for a mode and a few stragglers, has so few effective draws that
    no mode is clearly missed. So there are samples of groups of the particles, and of the peaks
    that climbs found elsewhere.

    Args:
        seed: of the random numbers.
        path: ends at the posterior.
        cloud: quenched particles.
        cell: the cell of the labelling, if components may be permuted.
        differentiable: whether the model has gradients.
        peaks: the tops of climbs.
    """
    position = np.asarray(cloud.position)
    dimension = position.shape[-1]
    height = log_densities(path, position, differentiable=differentiable)[0]
    # Directions without information from the data vary as in the prior: half a nat each.
    highest = position[height >= height.max() - SAME_HEIGHT - 0.5 * dimension]
    density = partial(_importance, path, cell, position.shape, differentiable)

    def of_particles(particles: np.ndarray, *number: int) -> ModeSample:
        if len(np.unique(particles, axis=0)) < 2 * dimension + 2:
            return no_sample(dimension)
        covariance = QUENCH[-1] * np.atleast_2d(np.cov(particles.T))
        numbers = random_numbers(seed, Stream.QUENCHING, *number)
        return density(particles.mean(axis=0), covariance, numbers)

    whole = of_particles(highest)
    groups = [of_particles(group, number) for number, group in enumerate(_groups(highest), 1)]
    known = [whole, *groups]
    for number, peak in enumerate(_heaviest(peaks)):
        inside = [place for place, sample in enumerate(known) if sample.holds(peak.position)]
        for place in inside:
            met = known[place].found_by + peak.found_by
            known[place] = known[place]._replace(found_by=met)
        if not (peak.is_known or any(known[place].is_sharp for place in inside)):
            numbers = random_numbers(seed, Stream.QUENCHING, PEAKS_FROM + number)
            sample = density(peak.position, peak.covariance, numbers, of_a_peak=True)
            if not sample.is_usable:
                sample = sample._replace(log_evidence=peak.log_mass)
            known.append(sample._replace(found_by=peak.found_by))
    return known[0], tuple(known[1:])


def _heaviest(peaks: Sequence[Peak]) -> list[Peak]:
    """The peaks whose mass may count, the heaviest first."""
    ordered = sorted(peaks, key=lambda peak: -peak.log_mass)[:MAX_SAMPLED]
    return [peak for peak in ordered if peak.log_mass >= ordered[0].log_mass - NEGLIGIBLE]


def _groups(highest: np.ndarray) -> list[np.ndarray]:
    """The largest groups of particles without stragglers, if this is not simply all of them.

    >>> near, far = np.random.default_rng(0).normal(size=(200, 1)), np.full((5, 1), 20.0)
    >>> [len(group) for group in _groups(np.concatenate([near, far]))], _groups(near)
    ([200], [])
    >>> [len(group) for group in _groups(np.concatenate([near, near + 20.0]))]
    [200, 200]
    """
    count, dimension = highest.shape
    if count < 2 * POINTS_FOR_EACH * dimension:  # too few for two groups
        return []
    apart = np.abs(highest - np.median(highest, axis=0))
    core = highest[np.all(apart <= STRAGGLING * np.median(apart, axis=0), axis=1)]
    groups = [core[cluster.members] for cluster in find_clusters(core)] if len(core) else []
    if len(groups) == 1 and len(core) == count:
        return []
    return sorted(groups, key=len, reverse=True)[:MAX_GROUPS]


def _importance(
    path: Path,
    cell: Cell | None,
    shape: tuple[int, ...],
    differentiable: bool,
    mean: np.ndarray,
    covariance: np.ndarray,
    numbers: np.random.Generator,
    *,
    of_a_peak: bool = False,
) -> ModeSample:
    """Importance sampling from a Gaussian.

    While it fits badly, the Gaussian is fitted again, to its own weighted draws. The result uses
    new draws: half from the last Gaussian, half from a Student-t with the same centre and scale,
    for the tails.

    Args:
        path: ends at the posterior.
        cell: the cell of the labelling, if components may be permuted.
        shape: islands x particles x coordinates: as many draws need no new program.
        differentiable: whether the model has gradients.
        mean: of the first Gaussian.
        covariance: of the first Gaussian.
        numbers: random numbers.
        of_a_peak: whether the Gaussian has the curvature of a peak, which may be far from the width
            of the mode: then all draws are like those of the result, and are fitted more often.
    """
    dimension = shape[-1]
    nothing = no_sample(dimension)

    def sample(gaussian: Gaussian, *, heavy: bool) -> ModeSample:
        centre, root = gaussian
        noise, log_proposal = _proposed(numbers, shape, root, heavy=heavy)
        draws = centre + noise @ root.T
        log_weight = log_densities(path, draws, differentiable=differentiable)[0] - log_proposal
        if cell is not None:
            log_weight = log_weight + cell(draws)
        log_weight = np.where(np.isnan(log_weight), -np.inf, log_weight).reshape(-1)
        mode = Mode(draws.reshape(-1, dimension), log_weight, gaussian, cell)
        if heavy:  # distant draws belong to the density around the mode: leave them out
            log_weight = np.where(mode.is_own, log_weight, -np.inf)
        top = float(log_weight.max())
        if not math.isfinite(top):
            return nothing
        weight = np.exp(log_weight - top)
        ess = float(weight.sum() ** 2 / np.sum(weight**2))
        error = float(np.std(weight, ddof=1) / weight.mean() / math.sqrt(len(weight)))
        return ModeSample(top + math.log(weight.mean()), error, ess, mode)

    for number in range(NUM_FITS + MORE_FITS * of_a_peak):
        try:
            gaussian = mean, np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return nothing
        found = sample(gaussian, heavy=of_a_peak)
        if found.ess < dimension + 2:
            if not of_a_peak:
                break
            # The curvature at a peak may be that of a narrow top.
            covariance = 2.0 * covariance
            continue
        if found.ess > 0.5 * shape[0] * shape[1] and (number or not of_a_peak):
            break
        weight = np.exp(found.mode.log_weight - found.mode.log_weight.max())
        if of_a_peak:
            weight = np.where(found.mode.is_own, weight, 0.0)
        mean = weight @ found.mode.position / weight.sum()
        covariance = np.atleast_2d(np.cov(found.mode.position.T, aweights=weight))
    return sample(gaussian, heavy=True) if found.ess >= ENOUGH_DRAWS else found


def _proposed(
    numbers: np.random.Generator, shape: tuple[int, ...], root: np.ndarray, *, heavy: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Standardised draws from a Gaussian or its mixture with a Student-t, and their log density."""
    noise = numbers.standard_normal(shape)
    if not heavy:
        return noise, log_normal(noise, root)
    # Every second draw is from the Student-t: a stratified sample of the mixture.
    stretch = np.sqrt(FREEDOM / numbers.chisquare(FREEDOM, noise.shape[:-1]))
    second = np.arange(shape[0] * shape[1]).reshape(shape[:2]) % 2 == 1
    noise = noise * np.where(second, stretch, 1.0)[..., None]
    dimension, square = shape[-1], np.sum(noise**2, axis=-1)
    log_student = -0.5 * (FREEDOM + dimension) * np.log1p(square / FREEDOM) + (
        math.lgamma(0.5 * (FREEDOM + dimension))
        - math.lgamma(0.5 * FREEDOM)
        - 0.5 * dimension * math.log(FREEDOM * math.pi)
        - float(np.sum(np.log(np.diag(root))))
    )
    return noise, np.logaddexp(log_normal(noise, root), log_student) - math.log(2.0)
