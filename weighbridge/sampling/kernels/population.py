"""Population Monte Carlo: importance sampling with a proposal that adapts to its draws."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from weighbridge.core.errors import MethodError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.resampling import effective_sample_size, log_mean_exp, relative_weights
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.accept import metropolis_accept, select
from weighbridge.sampling.kernels.parts.mixture import (
    FittedMixture,
    Statistics,
    draw_from,
    fitted,
    log_components,
    num_squares,
    spread_over,
    statistics_of,
)


class PopulationState(NamedTuple):
    """The walkers, their log density and evidence estimate, the proposal, and the steps so far."""

    position: Array
    log_density: Array
    log_evidence: Array
    mixture: FittedMixture
    statistics: Statistics
    num_steps: Array


class PopulationInfo(NamedTuple):
    """How well the proposal fits.

    Attributes:
        acceptance: probability of accepting the new population.
        accepted: whether it was accepted.
        ess: effective sample size of the new population, from its weights.
        perplexity: exp(entropy of the weights) / walkers; 1 if proposal and target agree.
        log_evidence: log of the mean weight of the new population.
    """

    acceptance: Array
    accepted: Array
    ess: Array
    perplexity: Array
    log_evidence: Array


@partial(
    register_dataclass,
    data_fields=["defensive", "num_adapt"],
    meta_fields=["num_components", "population", "degrees"],
)
@dataclass(frozen=True)
class PopulationMonteCarlo(Kernel):
    r"""Draw walkers from a mixture, weight them, fit the mixture to them, and resample.

    .. math:: q(\theta) = \sum_d \alpha_d \, q_d(\theta), \quad w_i = f(\theta_i) / q(\theta_i),
              \quad \rho_d = \alpha_d q_d / q, \quad
              \alpha_d \leftarrow \sum_i \bar w_i \rho_d(\theta_i), \quad
              \mu_d \leftarrow \sum_i \bar w_i \rho_d(\theta_i) \theta_i / \alpha_d

    and the covariances likewise: a draw counts for each component with its probability, not only
    for the component that it came from. One component is fixed: a Student-t over the first walkers.
    The first walkers should therefore be spread wider than the target; modes outside their range
    are not found. Uneven weights are flattened, so that a poor first fit does not collapse. After
    ``num_adapt`` steps the mixture is fixed. A new population of mean weight Z' then replaces the
    last one with probability min(1, Z' / Z), which makes every walker exactly distributed as the
    target. It suits a few modes in up to about ten dimensions; the perplexity measures the fit.
    Cappe, Douc, Guillin, Marin & Robert (2008), Statistics and Computing 18:447-459; Koblents &
    Miguez (2015), ibid. 25:407-425; Andrieu, Doucet & Holenstein (2010), JRSS B 72:269-342, section
    4.2.

    Args:
        num_components: number of Gaussians, or Student-t distributions, of the proposal.
        population: number of walkers; by default enough to fit the components.
        degrees: degrees of freedom of the components; None for Gaussians.
        defensive: share of the fixed component.
        num_adapt: number of steps in which the mixture adapts; at most those of the warm-up.

    >>> import jax, jax.numpy as jnp
    >>> kernel = PopulationMonteCarlo(num_components=2)
    >>> walkers = 2 * jax.random.normal(jax.random.key(1), (kernel.num_walkers(1), 1))
    >>> density = lambda u: -0.5 * jnp.sum(u**2)
    >>> state = jax.jit(lambda start: kernel.init(start, density))(walkers)
    >>> state, info = jax.jit(lambda key: kernel.step(key, state, density))(jax.random.key(0))
    >>> state.position.shape, bool(0 < info.perplexity <= 1)
    ((256, 1), True)
    """

    num_components: int = 8
    population: int | None = None
    degrees: int | None = None
    defensive: float | Array = 0.1
    num_adapt: int | Array = 100

    uses_gradient: ClassVar[bool] = False
    ensemble: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("num_components", "population", "degrees"):
            value = getattr(self, name)
            if value is None and name != "num_components":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise MethodError(f"{name} must be a whole number of at least 1, not {value!r}.")

    def num_walkers(self, dimension: int) -> int:
        """Twenty per coordinate of each component's mean, or the requested population."""
        return self.population or max(256, 20 * self.num_components * dimension)

    def init(self, position: Array, target: LogDensity) -> PopulationState:
        """Components on walkers that are far from each other, each as wide as all walkers."""
        mixture = spread_over(position, self.num_components, self.defensive)
        # Overwritten by the statistics of the first population.
        nothing = jax.tree_util.tree_map(
            jnp.zeros_like, statistics_of(position, position[:, 0], mixture, self.degrees)
        )
        return PopulationState(
            position=position,
            log_density=_no_nan(jax.vmap(target)(position)),
            # Below that of any population, so that the first one is accepted.
            log_evidence=jnp.full((), np.finfo(position.dtype).min, position.dtype),
            mixture=mixture,
            statistics=nothing,
            num_steps=jnp.zeros((), int),
        )

    def step(
        self, key: Array, state: PopulationState, target: LogDensity
    ) -> tuple[PopulationState, PopulationInfo]:
        """One population: draw, weight, adapt, resample."""
        num, dimension = state.position.shape
        key_normal, key_uniform, key_resample = jax.random.split(key, 3)
        normal = jax.random.normal(key_normal, (num, dimension + num_squares(self.degrees)))
        uniform = jax.random.uniform(key_uniform, (num + 1,))
        position = draw_from(state.mixture, normal, uniform[:-1], self.degrees)
        log_density = _no_nan(jax.vmap(target)(position))
        components, _ = log_components(position, state.mixture, self.degrees)
        log_weight = log_density - logsumexp(components, axis=1)
        log_evidence = log_mean_exp(log_weight)

        chosen = _multinomial(key_resample, log_weight)
        adapting = state.num_steps < self.num_adapt
        # A population without any weight is never accepted.
        log_ratio = jnp.where(adapting, jnp.inf, log_evidence - state.log_evidence)
        log_ratio = jnp.where(jnp.isfinite(log_evidence), log_ratio, -jnp.inf)
        proposed = (position[chosen], log_density[chosen], log_evidence)
        current = (state.position, state.log_density, state.log_evidence)
        taken, probability, accepted = metropolis_accept(uniform[-1], log_ratio, proposed, current)
        adapts = adapting & jnp.isfinite(log_evidence)
        gain = adapts * (1.0 + 0.1 * state.num_steps) ** -0.6
        found = statistics_of(position, log_weight, state.mixture, self.degrees)
        statistics = jax.tree_util.tree_map(
            lambda old, new: old + gain * (new - old), state.statistics, found
        )
        draws = num / jnp.maximum(gain, 1 / num)
        learnt = fitted(statistics, draws, state.mixture, self.defensive)
        mixture = select(adapts, learnt, state.mixture)
        info = PopulationInfo(
            probability,
            accepted,
            effective_sample_size(log_weight),
            _perplexity(log_weight),
            log_evidence,
        )
        state = PopulationState(*taken, mixture, statistics, state.num_steps + 1)
        return state, info

    def rescale(self, variance: Array | float) -> PopulationMonteCarlo:
        """Unchanged: the walkers have the scale of the target."""
        return self


def _multinomial(key: Array, log_weight: Array) -> Array:
    """Indices of a population that is resampled independently, in their order."""
    share, _ = relative_weights(log_weight)
    cumulative = jnp.cumsum(share)
    points = jnp.sort(jax.random.uniform(key, log_weight.shape))
    chosen = jnp.searchsorted(cumulative / cumulative[-1], points, side="right")
    # Rounding may put a point above the last weight: use the last walker with a positive weight.
    last = jnp.max(jnp.where(share > 0, jnp.arange(share.shape[0]), 0))
    return jnp.minimum(chosen, last)


def _no_nan(log_density: Any) -> Array:
    return jnp.where(jnp.isnan(log_density), -jnp.inf, log_density)


def _perplexity(log_weight: Array) -> Array:
    weight = jax.nn.softmax(log_weight)
    entropy = -jnp.sum(jnp.where(weight > 0, weight * jnp.log(jnp.maximum(weight, 1e-300)), 0.0))
    return jnp.exp(entropy) / log_weight.shape[0]
