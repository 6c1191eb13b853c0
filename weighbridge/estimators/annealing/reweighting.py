"""An annealing step before its moves: choose the next power, reweight, resample if needed."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.resampling import (
    effective_sample_size,
    log_mean_exp,
    relative_weights,
    require_resampling,
)
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.powers import choose_increment


class Settings(NamedTuple):
    """Settings of the loop; all of them are leaves, so changing one never retraces.

    Attributes:
        target_ess: ESS to aim for at each step, as a fraction of the particles.
        resample_below: resample if the ESS of the carried weights is below this fraction; 0: never,
            more than 1: always.
        conditional: 1: the ESS includes the carried weights (Zhou, Johansen & Aston 2016);
            0: it uses only the incremental weights (as published SGAIS does).
        next_power: go to this power, whatever the ESS; NaN: the ESS determines the power.
    """

    target_ess: Array | float
    resample_below: Array | float
    conditional: Array | float = 1.0
    next_power: Array | float = float("nan")


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
        moves: info of the moves, averaged over particles.
    """

    increment: Array
    power: Array
    ess: Array
    carried_ess: Array
    log_increment: Array
    log_evidence: Array
    mean: Array
    variance: Array
    num_infinite: Array
    num_undefined: Array
    num_unbounded: Array
    num_diverged: Array
    dropped: Array
    resampled: Array
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
    chosen: Array
    population: Cloud
    power: Array
    info: StepInfo


def weigh(
    keys: Array,
    cloud: Cloud,
    raw: Array,
    power: Array,
    settings: Settings,
    resampling: str,
    chain_length: int,
) -> Weighed:
    """Choose the next power, reweight, resample if needed; ``raw`` are the log-likelihoods."""
    log_likelihood = jnp.where(jnp.isnan(raw), -jnp.inf, raw)
    mean, variance = jax.vmap(moments)(log_likelihood, cloud.log_weight)
    log_weight, increment, following, ess, lowered = _reweight(
        cloud, power, log_likelihood, settings
    )
    reweighted = cloud._replace(log_weight=log_weight)
    before = jax.vmap(log_mean_exp)(cloud.log_weight)
    log_evidence = jax.vmap(log_mean_exp)(log_weight)
    resample = partial(
        _resample,
        resample_below=settings.resample_below,
        resampling=resampling,
        chain_length=chain_length,
    )
    resampled, chosen, was_resampled = jax.vmap(resample)(keys, reweighted)
    alive = jnp.isfinite(cloud.log_weight)
    info = StepInfo(
        increment=increment,
        power=following,
        ess=ess,
        carried_ess=jax.vmap(effective_sample_size)(log_weight),
        # An island without weight has the increment -inf, not the difference of two infinities.
        log_increment=jnp.where(jnp.isfinite(before), log_evidence - before, -jnp.inf),
        log_evidence=log_evidence,
        mean=mean,
        variance=variance,
        num_infinite=jnp.sum(alive & ~jnp.isfinite(log_likelihood), axis=1),
        num_undefined=jnp.sum(alive & jnp.isnan(raw), axis=1),
        num_unbounded=jnp.sum(alive & (raw == jnp.inf), axis=1),
        num_diverged=jnp.zeros(cloud.log_weight.shape[0], int),
        dropped=lowered,
        resampled=was_resampled,
        moves=None,
    )
    return Weighed(resampled, chosen, reweighted, following, info)


def _reweight(
    cloud: Cloud, power: Array, log_likelihood: Array, settings: Settings
) -> tuple[Array, Array, Array, Array, Array]:
    """Choose the next power and reweight.

    Returns the weights, the increment of the power, the power, the ESS, and whether the target
    ESS was lowered.
    """
    alive = jnp.isfinite(cloud.log_weight)
    carried = jnp.where(
        alive, settings.conditional * jnp.where(alive, cloud.log_weight, 0.0), -jnp.inf
    )
    remaining = 1.0 - power
    fixed = ~jnp.isnan(jnp.asarray(settings.next_power))
    increment, ess, lowered = choose_increment(
        log_likelihood, carried, settings.target_ess, remaining, settings.next_power - power
    )
    following = jnp.where(increment >= remaining, 1.0, power + increment)
    following = jnp.where(fixed, settings.next_power, following)
    # A particle at -inf loses its weight, also if the increment is 0 and the product would be NaN.
    gained = jnp.where(jnp.isfinite(log_likelihood), increment * log_likelihood, -jnp.inf)
    return cloud.log_weight + gained, increment, following, ess, lowered


def _resample(
    key: Array, cloud: Cloud, resample_below: Array | float, resampling: str, chain_length: int
) -> tuple[Cloud, Array, Array]:
    """Resample one island if its ESS is too low; then all weights become their mean.

    With chains only one of ``chain_length`` particles is kept. Returns the cloud, the indices of
    its particles before, and whether it was resampled.
    """
    num_particles = cloud.log_weight.shape[0]
    resample = effective_sample_size(cloud.log_weight) < resample_below * num_particles
    drawn = require_resampling(resampling)(key, cloud.log_weight)
    chosen = jnp.where(resample, drawn, jnp.arange(num_particles))
    log_weight = jnp.where(resample, log_mean_exp(cloud.log_weight), cloud.log_weight)
    if chain_length > 1:
        # Take every chain_length-th index from a random offset; a thinned systematic sample is
        # systematic.
        first = jnp.floor(chain_length * jax.random.uniform(jax.random.fold_in(key, 1))).astype(int)
        chosen, log_weight = (
            leaf.reshape(-1, chain_length)[:, first] for leaf in (chosen, log_weight)
        )
    return Cloud(cloud.position[chosen], log_weight, cloud.origin[chosen]), chosen, resample


def moments(log_likelihood: Array, log_weight: Array) -> tuple[Array, Array]:
    """Weighted mean and variance of the chunk's log-likelihood over one island."""
    usable = jnp.isfinite(log_likelihood) & jnp.isfinite(log_weight)
    weight, _ = relative_weights(jnp.where(usable, log_weight, -jnp.inf))
    share = weight / jnp.maximum(jnp.sum(weight), 1.0)
    values = jnp.where(usable, log_likelihood, 0.0)
    mean = jnp.sum(share * values)
    return mean, jnp.sum(share * (values - mean) ** 2)
