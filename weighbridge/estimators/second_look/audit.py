"""A second look at the end of a path: do the particles still drift, and did they miss a mode?

The estimate of a path is never far too high (by Markov's inequality). The spread over islands shows
when it is too low by chance, but not when all islands miss the same mass. Two checks test for this,
with the moves and the program of the path:

- Particles that have kept up with the path keep their distribution when they are moved further at
  its end. Particles that lagged behind drift. (A bridge that agrees with the path shows the same.)
- Particles are annealed further, to p(theta) p(data | theta)^lambda with lambda up to 64: they are
  quenched into the highest modes that they can reach. Importance sampling from a Gaussian there
  gives the mass of such a mode, which is never far too high either. If it is above the mass of the
  path in the same region, the path has missed a mode that is too narrow or too far away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

from weighbridge.core.islands import Combined
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.thresholds import DRIFT_FALSE_ALARM
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.labels import Cell, one_labelling
from weighbridge.estimators.annealing.loop import Annealed, PathSeed, anneal
from weighbridge.estimators.annealing.moves.adaptive import Adaptive
from weighbridge.estimators.annealing.moves.walks import needs_gradient
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.path_density import log_densities
from weighbridge.estimators.annealing.reweighting import Settings, final_moments
from weighbridge.estimators.bridging.gaussians import Gaussian, log_normal
from weighbridge.estimators.clusters import POINTS_FOR_EACH, find_clusters
from weighbridge.estimators.second_look.joining import Combine, Joined, Mode, join

# Stages of the random numbers: the path itself is stage 0.
DRIFT_STAGE, QUENCH_STAGE = 1, 2
QUENCH = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
# Particles within this many nats of the best are in modes of the same height.
SAME_HEIGHT = 3.0
NUM_FITS = 3
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


class PathLoop(NamedTuple):
    """What a second look takes over from the loop of the path, so that nothing new is compiled.

    Attributes:
        seed: of the run.
        islands: numbers of the islands.
        resampling: name of the resampling scheme.
        take_step: one step of the loop.
    """

    seed: int
    islands: np.ndarray
    resampling: str
    take_step: Callable[..., Any]


class Audit(NamedTuple):
    """The findings of a second look.

    Attributes:
        drift: change of the mean log-likelihood under further moves in each island, in nats; None
            if no further moves were made.
        log_evidence: from importance sampling with the Gaussian of the quenched particles.
        std_error: its standard error.
        ess: its effective draws; 0 if no Gaussian could be fitted.
        mode: its draws.
        groups: importance samples of the groups of quenched particles, if there are several.
    """

    drift: np.ndarray | None
    log_evidence: float
    std_error: float
    ess: float
    mode: Mode
    groups: tuple[ModeSample, ...] = ()

    def is_drifting(self, path: Combined) -> bool:
        """Whether the particles drifted by more than the path's stated error."""
        return self.drift is not None and is_drifting(self.drift, path.std_error)

    def missed(self, cloud: Cloud, islands: np.ndarray, combine: Combine) -> Joined | None:
        """The evidence with a mode that the path has clearly missed, at least in part; else None.

        Args:
            cloud: particles at the end of the path.
            islands: log evidence of each island.
            combine: combines the log evidences of islands, with an error.
        """
        if not np.isfinite(islands).any():
            return None
        samples = [(self.ess, self.mode), *((group.ess, group.mode) for group in self.groups)]
        found = [
            join(mode, cloud, islands, combine) for ess, mode in samples if ess >= ENOUGH_DRAWS
        ]
        clear = [joined for joined in found if joined.is_clear]
        return max(clear, key=lambda joined: joined.gain, default=None)

    @property
    def diagnostics(self) -> dict[str, Any]:
        """The findings as diagnostics of a result."""
        return {
            **drift_diagnostics([] if self.drift is None else [self.drift]),
            "quenched_log_evidence": self.log_evidence,
            "quenched_error": self.std_error,
            "quenched_ess": self.ess,
        }


def audit(
    loop: PathLoop,
    outcome: Annealed,
    path: Path,
    *,
    roam: bool,
    quench: bool,
    first_stage: int = 0,
    density: Path | None = None,
) -> Audit | None:
    """Check particles at the end of a path; None if their moves cannot be used for this.

    Args:
        loop: see ``PathLoop``.
        outcome: of the path.
        path: from the prior to the posterior.
        roam: whether to test for a drift; a bridge that agrees with the path is a better test.
        quench: whether to search for higher modes.
        density: the end of the path in other terms, for which there is a program; optional.
        first_stage: offset of the stage numbers, for a run with many stages.
    """
    mover = outcome.mover
    if not isinstance(mover, Adaptive) or not (roam or quench):
        return None

    def on(stage: int, cloud: Cloud, mover: Adaptive, below: float, powers: np.ndarray) -> Annealed:
        return anneal(
            PathSeed(loop.seed, first_stage + stage, loop.islands),
            cloud,
            lambda _: path,
            mover,
            Settings(0.5, below, resampling=loop.resampling, schedule=powers, start=1.0),
            take_step=loop.take_step,
        )

    cloud, before = outcome.cloud, None
    if roam:
        roamed = on(DRIFT_STAGE, cloud, mover.roaming(path.model.dimension), 0.0, np.ones(1))
        cloud, before = roamed.cloud, np.asarray(roamed.steps[0].mean)
    if not quench:
        drift = None if before is None else final_moments(path, cloud)[0] - before
        return Audit(drift, *_nothing(path.model.dimension))
    # The first step of the quench gives the mean log-likelihood after the further moves.
    fallen = on(QUENCH_STAGE, cloud, mover.falling(), 2.0, QUENCH)
    drift = None if before is None else np.asarray(fallen.steps[0].mean) - before
    # In one labelling, because one Gaussian cannot fit all labellings.
    cloud, cell = one_labelling(path.model, fallen.cloud, agreed=False)
    whole, groups = _samples(loop.seed, density or path, cloud, cell, needs_gradient(mover))
    return Audit(drift, *whole, groups)


def is_drifting(drift: np.ndarray, std_error: float) -> bool:
    """Whether a t-test over islands finds a change, and the change exceeds the stated error.

    >>> is_drifting(np.array([1.0, 1.1, 0.9, 1.0, 1.2, 0.8]), 0.1)
    True
    """
    change = drift[np.isfinite(drift)]
    if len(change) < 4 or not np.ptp(change) > 0:
        return False
    mean = float(change.mean())
    score = abs(mean) / (np.std(change, ddof=1) / math.sqrt(len(change)))
    unlikely = 2 * stdtr(len(change) - 1, -score) < DRIFT_FALSE_ALARM
    return bool(unlikely and abs(mean) > std_error)


def drift_diagnostics(drifts: Sequence[np.ndarray]) -> dict[str, Any]:
    """The drifts of rounds of islands as diagnostics; empty if there was no test for a drift.

    >>> drift_diagnostics([np.array([0.5, np.nan]), np.array([1.5])])["drift"]
    1.0
    """
    if not drifts:
        return {}
    every = np.concatenate(drifts)
    known = every[np.isfinite(every)]
    mean = float(known.mean()) if len(known) else math.nan
    return {"drift": mean, "island_drift": every}


class ModeSample(NamedTuple):
    """An importance sample: log evidence, its error, effective draws, and the draws."""

    log_evidence: float
    std_error: float
    ess: float
    mode: Mode


def _nothing(dimension: int) -> ModeSample:
    """An empty importance sample."""
    standard = np.zeros(dimension), np.empty((0, 0))  # no D x D matrix for nothing
    none = Mode(np.empty((0, dimension)), np.empty(0), standard)
    return ModeSample(-math.inf, math.nan, 0.0, none)


def _samples(
    seed: int, path: Path, cloud: Cloud, cell: Cell | None, differentiable: bool
) -> tuple[ModeSample, tuple[ModeSample, ...]]:
    """Importance samples of the highest quenched particles: of all, and of their groups.

    One Gaussian for two modes, or for a mode and a few stragglers, has so few effective draws that
    no mode is clearly missed.
    """
    position = np.asarray(cloud.position)
    dimension = position.shape[-1]
    height = log_densities(path, position, differentiable=differentiable)[0]
    # Directions without information from the data vary as in the prior: half a nat each.
    highest = position[height >= height.max() - SAME_HEIGHT - 0.5 * dimension]
    sample = partial(_importance, path, cell, position.shape, differentiable)
    whole = sample(highest, random_numbers(seed, Stream.QUENCHING))
    groups = [
        sample(group, random_numbers(seed, Stream.QUENCHING, number))
        for number, group in enumerate(_groups(highest), 1)
    ]
    return whole, tuple(groups)


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
    highest: np.ndarray,
    numbers: np.random.Generator,
) -> ModeSample:
    """Importance sampling from a Gaussian fitted to particles at the highest power.

    While it fits badly, the Gaussian is fitted again, to its own weighted draws. The result uses
    new draws: half from the last Gaussian, half from a Student-t with the same centre and scale,
    for the tails.

    Args:
        path: ends at the posterior.
        cell: the cell of the labelling, if components may be permuted.
        shape: islands x particles x coordinates: as many draws need no new program.
        differentiable: whether the model has gradients.
        highest: the particles, particles x coordinates.
        numbers: random numbers.
    """
    dimension = shape[-1]
    nothing = _nothing(dimension)
    if len(np.unique(highest, axis=0)) < 2 * dimension + 2:
        return nothing
    mean, covariance = highest.mean(0), QUENCH[-1] * np.atleast_2d(np.cov(highest.T))

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
            is_own = mode.distance(mode.position) <= mode.radius(np.empty(0))
            log_weight = np.where(is_own, log_weight, -np.inf)
        top = float(log_weight.max())
        if not math.isfinite(top):
            return nothing
        weight = np.exp(log_weight - top)
        ess = float(weight.sum() ** 2 / np.sum(weight**2))
        error = float(np.std(weight, ddof=1) / weight.mean() / math.sqrt(len(weight)))
        return ModeSample(top + math.log(weight.mean()), error, ess, mode)

    for _ in range(NUM_FITS):
        try:
            gaussian = mean, np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return nothing
        found = sample(gaussian, heavy=False)
        if not 0.0 < found.ess <= 0.5 * shape[0] * shape[1] or found.ess < dimension + 2:
            break
        weight = np.exp(found.mode.log_weight - found.mode.log_weight.max())
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
