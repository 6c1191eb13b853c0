"""A second look at the end of a path: do the particles still drift, and is there mass they missed?

An estimate along a path is never far too high (by Markov's inequality), and the spread over islands
shows when it is too low because of chance. It does not show what all islands miss alike. Two checks
look for that, with the moves and the program that are there already:

- Particles that have kept up with the path stay in place, as a population, when they move on at its
  end. Those that lagged behind drift.
- Annealed beyond the end, p(theta) p(data | theta)^lambda with lambda up to 64, they fall into the
  highest modes they can reach. A Gaussian there gives an estimate of the evidence by importance
  sampling. That, too, is never far too high: where it is above the path's, the path has missed a
  mode that is too narrow to be found on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp, stdtr

from weighbridge.base import Array
from weighbridge.estimators.adaptive import ENOUGH_PARTICLES, Adaptive
from weighbridge.estimators.anneal import Annealed, Cloud, Path, Settings, anneal
from weighbridge.estimators.bridge import Bridged, bridge
from weighbridge.estimators.host_likelihood import HostLikelihood
from weighbridge.model import Model
from weighbridge.particles import Combined

# Stages of the random numbers: the path itself is stage 0.
DRIFT_STAGE, QUENCH_STAGE = 1, 2
QUENCH_STREAM, BRIDGE_STREAM = 3, 4
QUENCH = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
QUENCH_MOVES = 3
# Particles that do not drift are said to with this probability.
FALSE_ALARM = 2e-4
# Particles within this many nats of the best have ended in modes of one height.
SAME_HEIGHT = 3.0
NUM_FITS = 3
# An importance sample counts from this many effective draws on.
ENOUGH_DRAWS = 30.0
# By how many errors, and nats, it must be above the path.
CLEARLY = 5.0
AT_LEAST = 0.5


class Audit(NamedTuple):
    """What a second look found.

    Attributes:
        drift: change of the mean log-likelihood under further moves, in nats.
        drifting: whether that is more than chance, and more than the stated error.
        log_evidence: by importance sampling from the Gaussian where the particles fell.
        std_error: its standard error.
        ess: its effective draws; 0 if there was no Gaussian to be had.
        position: its draws.
        log_weight: their log weights, not normalised.
    """

    drift: float
    drifting: bool
    log_evidence: float
    std_error: float
    ess: float
    position: np.ndarray
    log_weight: np.ndarray

    def exceeds(self, path: Combined) -> bool:
        """Whether the importance sample shows mass that the path has missed."""
        if self.ess < ENOUGH_DRAWS or not math.isfinite(path.log_evidence):
            return False
        error = math.hypot(self.std_error, 0.0 if math.isnan(path.std_error) else path.std_error)
        return self.log_evidence - path.log_evidence > max(CLEARLY * error, AT_LEAST)


def audit(
    seed: int,
    islands: np.ndarray,
    outcome: Annealed,
    path: Path,
    stated: Combined,
    take_step: Callable[..., Any],
    resampling: str,
    chain_length: int,
) -> Audit | None:
    """Look again at particles that have reached the end; None if their moves cannot tell.

    Args:
        seed: of the run.
        islands: numbers of the islands.
        outcome: of the path.
        path: from the prior to the posterior.
        stated: the evidence along the path, with its error.
        take_step: as in ``anneal``; the last three so that nothing is compiled anew.
        resampling: likewise.
        chain_length: likewise.
    """
    mover = outcome.mover
    if not isinstance(mover, Adaptive):
        return None

    def on(stage: int, cloud: Cloud, mover: Adaptive, below: float, powers: np.ndarray) -> Annealed:
        return anneal(
            seed,
            stage,
            islands,
            cloud,
            lambda _: path,
            mover,
            Settings(0.5, below),
            schedule=powers,
            start=1.0,
            resampling=resampling,
            chain_length=chain_length,
            take_step=take_step,
        )

    roamed = on(DRIFT_STAGE, outcome.cloud, mover.roaming(path.model.dimension), 0.0, np.ones(1))
    quick = mover.tuned(mover.first_step_size(), QUENCH_MOVES)
    fallen = on(QUENCH_STAGE, roamed.cloud, quick, 2.0, QUENCH)
    before, after = np.asarray(roamed.steps[0].mean), np.asarray(fallen.steps[0].mean)
    drift, drifting = _drift(before, after, stated.std_error)
    return Audit(drift, drifting, *_importance(seed, path, fallen.cloud))


def bridge_to_gaussians(seed: int, first_island: int, path: Path, cloud: Cloud) -> Bridged | None:
    """Bridge between the particles and Gaussians fitted to them; None if those cannot be fitted.

    The Gaussian of even islands is fitted to odd ones, and that of odd islands to even ones: a
    proposal made of the draws that it is compared with would fit them too well.
    """
    position, log_weight = np.asarray(cloud.position), np.asarray(cloud.log_weight)
    num_islands, _, dimension = position.shape
    if num_islands < 4:
        return None
    stream = np.random.Philox(key=[seed, BRIDGE_STREAM], counter=[0, first_island, 0, 0])
    generator = np.random.Generator(stream)
    noise = generator.standard_normal(position.shape)
    draws = np.empty_like(position)
    at_particles, at_draws = np.empty(position.shape[:2]), np.empty(position.shape[:2])
    for half in (0, 1):
        fitted = _gaussian(position[1 - half :: 2], log_weight[1 - half :: 2])
        if fitted is None:
            return None
        mean, root = fitted
        draws[half::2] = mean + noise[half::2] @ root.T
        back = np.linalg.solve(root, (position[half::2] - mean).reshape(-1, dimension).T).T
        at_particles[half::2] = _log_normal(back.reshape(position[half::2].shape), root)
        at_draws[half::2] = _log_normal(noise[half::2], root)
    log_posterior = log_densities(path, position) - at_particles
    log_proposal = log_densities(path, draws) - at_draws
    return bridge(
        log_posterior, np.where(np.isnan(log_proposal), -np.inf, log_proposal), log_weight
    )


def _gaussian(position: np.ndarray, log_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean and Cholesky factor of weighted particles, if there are enough of them."""
    dimension = position.shape[-1]
    share = np.exp(log_weight - logsumexp(log_weight, axis=1, keepdims=True)).reshape(-1)
    share = np.nan_to_num(share) / np.sum(np.nan_to_num(share))
    if 1 / np.sum(share**2) < ENOUGH_PARTICLES * dimension:
        return None
    flat = position.reshape(-1, dimension)
    covariance = np.atleast_2d(np.cov(flat.T, aweights=share))
    try:
        return share @ flat, np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None


def _log_normal(noise: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Log density of a Gaussian where its standardised coordinates are these."""
    constant = 0.5 * len(root) * math.log(2 * math.pi) + np.sum(np.log(np.diag(root)))
    return np.asarray(-0.5 * np.sum(noise**2, axis=-1) - constant)


def _drift(before: np.ndarray, after: np.ndarray, std_error: float) -> tuple[float, bool]:
    """Mean change over islands, and whether a t-test finds it."""
    change = after - before
    change = change[np.isfinite(change)]
    drift = float(change.mean()) if len(change) else math.nan
    if len(change) < 4 or not np.ptp(change) > 0:
        return drift, False
    score = abs(drift) / (np.std(change, ddof=1) / math.sqrt(len(change)))
    unlikely = 2 * stdtr(len(change) - 1, -score) < FALSE_ALARM
    return drift, bool(unlikely and abs(drift) > std_error)


def _importance(
    seed: int, path: Path, cloud: Cloud
) -> tuple[float, float, float, np.ndarray, np.ndarray]:
    """Importance sampling from the Gaussian of particles at the highest power.

    While it fits badly it is fitted again, to its own weighted draws; what counts are fresh draws
    from the last one.
    """
    position = np.asarray(cloud.position)
    dimension = position.shape[-1]
    height = log_densities(path, position)
    # What the data say nothing about is as wide as the prior, half a nat for each dimension.
    highest = position[height >= height.max() - SAME_HEIGHT - 0.5 * dimension]
    nothing = (-math.inf, math.nan, 0.0, np.empty((0, dimension)), np.empty(0))
    if len(np.unique(highest, axis=0)) < 2 * dimension + 2:
        return nothing
    mean, covariance = highest.mean(0), QUENCH[-1] * np.atleast_2d(np.cov(highest.T))
    generator = np.random.Generator(np.random.Philox(key=[seed, QUENCH_STREAM]))
    for _ in range(NUM_FITS):
        try:
            root = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return nothing
        noise = generator.standard_normal(position.shape)
        draws = mean + noise @ root.T
        log_weight = log_densities(path, draws) - _log_normal(noise, root)
        log_weight = np.where(np.isnan(log_weight), -np.inf, log_weight).reshape(-1)
        draws = draws.reshape(-1, dimension)
        if not math.isfinite(log_weight.max()):
            return nothing
        weight = np.exp(log_weight - log_weight.max())
        ess = float(weight.sum() ** 2 / np.sum(weight**2))
        if ess > 0.5 * len(weight) or ess < dimension + 2:
            break
        mean = weight @ draws / weight.sum()
        covariance = np.atleast_2d(np.cov(draws.T, aweights=weight))
    error = float(np.std(weight, ddof=1) / weight.mean() / math.sqrt(len(weight)))
    log_evidence = float(log_weight.max() + np.log(weight.mean()))
    return log_evidence, error, ess, draws, log_weight


def log_densities(path: Path, position: np.ndarray) -> np.ndarray:
    """Log density of the posterior at positions, islands x particles x coordinates."""
    where: Array = position  # type: ignore[assignment]
    if isinstance(path.chunk, HostLikelihood):
        log_prior = np.asarray(_log_priors(path.model, where))
        log_likelihood = np.asarray(path.chunk.of_cloud(path.model, where))
        return np.asarray(log_prior + log_likelihood)
    return np.asarray(_log_densities(path, where))


@jax.jit
def _log_densities(path: Path, position: Array) -> Array:
    log_density: Array = jax.vmap(jax.vmap(path.target(jnp.ones(()))))(position)
    return log_density


@jax.jit
def _log_priors(model: Model, position: Array) -> Array:
    log_prior: Array = jax.vmap(jax.vmap(lambda u: model.transform(u)[1]))(position)
    return log_prior
