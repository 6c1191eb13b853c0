"""An annealing step before its moves: choose the next power, reweight, resample if needed.

These are sums over some thousand numbers: NumPy does them in microseconds, and compiling them would
take seconds.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core.resampling import (
    effective_sample_size,
    log_mean_exp,
    relative_weights,
    require_resampling,
)
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.path import Path, evaluate_chunk
from weighbridge.estimators.annealing.powers import Tilted, search_increment
from weighbridge.models.targets.host import HostLikelihood


class Settings(NamedTuple):
    """Settings of the loop.

    Attributes:
        target_ess: ESS to aim for at each step, as a fraction of the particles.
        resample_below: resample if the ESS of the carried weights is below this fraction; 0: never,
            more than 1: always.
        conditional: 1: the ESS includes the carried weights (Zhou, Johansen & Aston 2016);
            0: it uses only the incremental weights (as published SGAIS does).
        resampling: name of the resampling scheme.
        schedule: the powers in their order, up or down; None: the ESS determines them.
        start: power of the particles at the start.
        max_steps: most steps if the ESS determines the powers; the last one goes to power 1.
        may_end_early: whether an interrupted run returns the steps so far; if not, or before the
            end of the first step, an interruption is an error.
        next_power: of the step, set by the loop; NaN: the ESS determines it.
    """

    target_ess: float
    resample_below: float
    conditional: float = 1.0
    resampling: str = "systematic"
    schedule: np.ndarray | None = None
    start: float = 0.0
    max_steps: int = 2000
    may_end_early: bool = False
    next_power: float = float("nan")


class StepInfo(NamedTuple):
    """Info of one annealing step; arrays have one entry for each island.

    Attributes:
        increment: increase of the power.
        power: the new power.
        ess: of the incremental weights.
        carried_ess: of the total weights, before resampling.
        log_increment: log of the weighted mean of chunk^increment, as in stepping stones.
        log_evidence: so far.
        mean: mean of the chunk's log-likelihood over the particles, before this step.
        variance: variance of the chunk's log-likelihood, before this step.
        num_infinite: particles with log-likelihood -inf.
        num_undefined: particles whose log-likelihood is NaN; they count as -inf.
        num_unbounded: particles whose log-likelihood is +inf, which is an error.
        num_diverged: particles whose moves diverged and were undone.
        dropped: whether the target ESS was lowered because too few particles were finite.
        resampled: whether the island was resampled.
        moves: info of the moves, averaged over particles; () if there were none.
    """

    increment: float
    power: float
    ess: np.ndarray
    carried_ess: np.ndarray
    log_increment: np.ndarray
    log_evidence: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    num_infinite: np.ndarray
    num_undefined: np.ndarray
    num_unbounded: np.ndarray
    num_diverged: np.ndarray
    dropped: bool
    resampled: np.ndarray
    moves: Any


class Weighed(NamedTuple):
    """An annealing step before its moves.

    Attributes:
        cloud: the particles to move.
        chosen: their indices among the particles before resampling.
        population: all particles before resampling, with their new weights.
        power: the power at which they move.
        info: info of the step, without the moves.
    """

    cloud: Cloud
    chosen: np.ndarray
    population: Cloud
    power: float
    info: StepInfo


def weigh(
    numbers: np.random.Generator,
    cloud: Cloud,
    raw: np.ndarray,
    power: float,
    settings: Settings,
    chain_length: int,
) -> Weighed:
    """Choose the next power, reweight, resample if needed; ``raw`` are the log-likelihoods."""
    log_likelihood = np.where(np.isnan(raw), -np.inf, raw)
    mean, variance = moments(log_likelihood, cloud.log_weight)
    log_weight, increment, following, ess, lowered = _reweight(
        cloud, power, log_likelihood, settings
    )
    reweighted = cloud._replace(log_weight=log_weight)
    before, log_evidence = log_mean_exp(cloud.log_weight), log_mean_exp(log_weight)
    carried_ess = effective_sample_size(log_weight)
    is_low = carried_ess < settings.resample_below * log_weight.shape[1]
    resampled, chosen = _resample(
        numbers, reweighted, log_evidence, is_low, settings.resampling, chain_length
    )
    alive = np.isfinite(cloud.log_weight)
    with np.errstate(invalid="ignore"):
        gained = log_evidence - before
    info = StepInfo(
        increment=increment,
        power=following,
        ess=ess,
        carried_ess=carried_ess,
        # An island without weight has the increment -inf, not the difference of two infinities.
        log_increment=np.where(np.isfinite(before), gained, -np.inf),
        log_evidence=log_evidence,
        mean=mean,
        variance=variance,
        num_infinite=np.sum(alive & ~np.isfinite(log_likelihood), axis=1),
        num_undefined=np.sum(alive & np.isnan(raw), axis=1),
        num_unbounded=np.sum(alive & (raw == np.inf), axis=1),
        num_diverged=np.zeros(len(before), int),
        dropped=lowered,
        resampled=is_low,
        moves=(),
    )
    return Weighed(resampled, chosen, reweighted, following, info)


def _reweight(
    cloud: Cloud, power: float, log_likelihood: np.ndarray, settings: Settings
) -> tuple[np.ndarray, float, float, np.ndarray, bool]:
    """Choose the next power and reweight.

    Returns the weights, the increment of the power, the power, the ESS, and whether the target
    ESS was lowered.
    """
    alive = np.isfinite(cloud.log_weight)
    carried = np.where(
        alive, settings.conditional * np.where(alive, cloud.log_weight, 0.0), -np.inf
    )
    if math.isnan(settings.next_power):
        remaining = 1.0 - power
        found = search_increment(log_likelihood, carried, settings.target_ess, remaining)
        increment, ess, lowered = found.step, found.ess, found.lowered
        following = 1.0 if increment >= remaining else power + increment
    else:
        following, increment = settings.next_power, settings.next_power - power
        ess, lowered = Tilted(log_likelihood, carried).ess(increment), False
    # A particle at -inf loses its weight, also if the increment is 0 and the product would be NaN.
    finite = np.isfinite(log_likelihood)
    gained = np.where(finite, increment * np.where(finite, log_likelihood, 0.0), -np.inf)
    return cloud.log_weight + gained, increment, following, ess, lowered


def _resample(
    numbers: np.random.Generator,
    cloud: Cloud,
    log_mean: np.ndarray,
    is_low: np.ndarray,
    resampling: str,
    chain_length: int,
) -> tuple[Cloud, np.ndarray]:
    """Resample the islands whose ESS is too low; then all their weights become ``log_mean``.

    With chains only one of ``chain_length`` particles is kept. Returns the cloud and the indices of
    its particles before.
    """
    islands, num_particles = cloud.log_weight.shape
    # Draw for all islands, so that the numbers of one do not depend on the ESS of another.
    drawn = require_resampling(resampling)(numbers, cloud.log_weight)
    chosen = np.where(is_low[:, None], drawn, np.arange(num_particles))
    log_weight = np.where(is_low[:, None], log_mean[:, None], cloud.log_weight)
    if chain_length > 1:
        # Take every chain_length-th index from a random offset; a thinned systematic sample is
        # systematic.
        offset = numbers.integers(0, chain_length, (islands, 1))
        place = offset + chain_length * np.arange(num_particles // chain_length)
        chosen = np.take_along_axis(chosen, place, axis=1)
        log_weight = np.take_along_axis(log_weight, place, axis=1)
    position = np.take_along_axis(cloud.position, chosen[..., None], axis=1)
    return Cloud(position, log_weight, np.take_along_axis(cloud.origin, chosen, axis=1)), chosen


def moments(log_likelihood: np.ndarray, log_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and variance of the chunk's log-likelihood over each island."""
    usable = np.isfinite(log_likelihood) & np.isfinite(log_weight)
    weight, _ = relative_weights(np.where(usable, log_weight, -np.inf))
    share = weight / np.maximum(np.sum(weight, axis=-1, keepdims=True), 1.0)
    values = np.where(usable, log_likelihood, 0.0)
    mean = np.sum(share * values, axis=-1)
    with np.errstate(over="ignore"):  # of log-likelihoods near the largest double
        variance = np.sum(share * (values - mean[..., None]) ** 2, axis=-1)
    return mean, variance


def final_moments(path: Path, cloud: Cloud) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the log-likelihood over the particles of each island."""
    if isinstance(path.chunk, HostLikelihood):
        values = path.chunk.of_cloud(path.model, cloud.position)
    else:
        values = evaluate_chunk(path, cloud.position)
    return moments(values, cloud.log_weight)
