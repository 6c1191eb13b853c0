"""The annealing core: choose the next power, reweight, maybe resample, move.

One loop serves every estimator on a path of densities f_lambda(u) = past(u) chunk(u)^lambda;
they differ in what is past and what is chunk, in the kernel, and in whether they resample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from weighbridge.base import Array, Kernel
from weighbridge.model import Model
from weighbridge.particles import effective_sample_size, log_mean_exp, require_resampling
from weighbridge.target import Target, Tempered, Term

# The next power is searched between exp(-SEARCH_DEPTH) and all of what remains.
SEARCH_DEPTH = 700.0
SEARCH_STEPS = 48
# A move that lowers the log density by more than this many nats has diverged, as in Stan.
DIVERGENCE = 1000.0


class Cloud(NamedTuple):
    """Weighted particles; the mean weight is the estimate of the evidence so far."""

    position: Array
    log_weight: Array


@partial(jax.tree_util.register_dataclass, data_fields=["model", "past", "chunk"], meta_fields=[])
@dataclass(frozen=True)
class Path:
    """Densities from prior times past to prior times past times chunk."""

    model: Model
    past: tuple[Term, ...]
    chunk: Term

    def target(self, power: Array) -> Target:
        """The density at a power of the chunk's likelihood."""
        return Target(self.model, (*self.past, Tempered(self.chunk, power)))

    def chunk_log_likelihood(self, position: Array) -> Array:
        """What the weights grow by when the power goes from 0 to 1."""
        return self.chunk(self.model, self.model.transform(position)[0])


class Settings(NamedTuple):
    """Numbers that steer the loop; all of them are leaves, so changing one never retraces.

    Attributes:
        target_ess: ESS to aim for at each step, as a fraction of the particles.
        resample_below: resample when the carried ESS falls below this fraction; 0 never does.
        num_moves: kernel steps for each intermediate density.
        conditional: 1 to count the ESS with the carried weights (Zhou, Johansen & Aston 2016),
            0 to count it over the incremental weights alone (as published SGAIS does).
        finish: 1 to take all of what remains in one step.
        rows_past: the kernel is for one row; at power lambda it is rescaled to variances
            1 / (rows_past + lambda rows_chunk).
        rows_chunk: see above.
    """

    target_ess: Array | float
    resample_below: Array | float
    num_moves: Array | int
    conditional: Array | float = 1.0
    finish: Array | float = 0.0
    rows_past: Array | float = 1.0
    rows_chunk: Array | float = 0.0


class StepInfo(NamedTuple):
    """What one annealing step did on one island."""

    increment: Array
    ess: Array
    carried_ess: Array
    log_evidence: Array
    num_infinite: Array
    num_undefined: Array
    num_diverged: Array
    dropped: Array
    resampled: Array
    moves: Any


def choose_increment(
    log_likelihood: Array, log_weight: Array, target_ess: Array | float, remaining: Array
) -> tuple[Array, Array, Array]:
    r"""The step of the power at which the ESS of the incremental weights meets its target.

    .. math:: \mathrm{ESS}(\Delta) = M \frac{(\sum_i W_i e^{\Delta \ell_i})^2}
                                            {\sum_i W_i e^{2 \Delta \ell_i}}

    found by bisection in log Delta. Particles at log-likelihood -inf count for nothing at any
    positive step; if without them the target is out of reach, the target is that fraction of
    what is left.

    Args:
        log_likelihood: of the chunk, at each particle.
        log_weight: carried weights W (zeros count every particle alike).
        target_ess: as a fraction of the particles.
        remaining: the largest step allowed.

    Returns:
        The step, the ESS that it gives, and whether the target had to be lowered.

    >>> step, ess, lowered = choose_increment(jnp.arange(10.0) * 100, jnp.zeros(10), 0.5, 1.0)
    >>> round(float(ess), 2), bool(step < 1), bool(lowered)
    (5.0, True, False)
    """
    num_particles = log_likelihood.shape[0]
    finite = jnp.isfinite(log_likelihood) & jnp.isfinite(log_weight)
    nothing = ~jnp.any(finite)
    log_share = jnp.where(finite, log_weight - logsumexp(log_weight), -jnp.inf)
    height = jnp.where(finite, log_likelihood, 0.0)
    height = height - jnp.max(jnp.where(finite, height, -jnp.inf))

    def ess_at(log_step: Array) -> Array:
        tilted = jnp.where(finite, jnp.exp(log_step) * height, 0.0)
        log_ess = 2 * logsumexp(log_share + tilted) - logsumexp(log_share + 2 * tilted)
        return num_particles * jnp.exp(log_ess)

    reachable = num_particles * jnp.sum(jnp.where(finite, jnp.exp(log_share), 0.0))
    wanted = target_ess * num_particles
    lowered = reachable <= wanted * (1 + 1e-9)
    wanted = jnp.where(lowered, target_ess * reachable, wanted)

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        enough = ess_at(middle) >= wanted
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    log_remaining = jnp.log(remaining)
    low, _ = jax.lax.fori_loop(
        0, SEARCH_STEPS, halve, (log_remaining - SEARCH_DEPTH, log_remaining)
    )
    whole = nothing | (ess_at(log_remaining) >= wanted)
    log_step = jnp.where(whole, log_remaining, low)
    return jnp.where(whole, remaining, jnp.exp(low)), ess_at(log_step), lowered


def _move(key: Array, cloud: Cloud, target: Target, kernel: Kernel, num_moves: Array | int) -> Any:
    """Move every particle; the info is averaged over the second half of the moves."""

    def move_one(key: Array, position: Array) -> tuple[Array, Any]:
        state = kernel.init(position, target)
        shape = jax.eval_shape(kernel.step, key, state, target)[1]
        zero = jax.tree_util.tree_map(lambda leaf: jnp.zeros(leaf.shape), shape)
        first = num_moves // 2

        def body(index: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            state, total = carry
            state, info = kernel.step(jax.random.fold_in(key, index), state, target)
            share = jnp.where(index >= first, 1.0 / (num_moves - first), 0.0)
            total = jax.tree_util.tree_map(lambda sum_, leaf: sum_ + share * leaf, total, info)
            return state, total

        state, info = jax.lax.fori_loop(0, num_moves, body, (state, zero))
        return state.position, info

    keys = jax.random.split(key, cloud.position.shape[0])
    return jax.vmap(move_one)(keys, cloud.position)


def _step_island(
    key: Array,
    cloud: Cloud,
    power: Array,
    path: Path,
    kernel: Kernel,
    settings: Settings,
    resampling: str,
) -> tuple[Cloud, Array, StepInfo]:
    num_particles = cloud.log_weight.shape[0]
    key_resample, key_move = jax.random.split(key)

    raw = jax.vmap(path.chunk_log_likelihood)(cloud.position)
    alive = jnp.isfinite(cloud.log_weight)
    undefined = alive & jnp.isnan(raw)
    log_likelihood = jnp.where(jnp.isnan(raw), -jnp.inf, raw)
    carried = settings.conditional * jnp.where(alive, cloud.log_weight, 0.0)
    carried = jnp.where(alive, carried, -jnp.inf)
    remaining = 1.0 - power
    increment, ess, lowered = choose_increment(
        log_likelihood, carried, settings.target_ess, remaining
    )
    increment = jnp.where(settings.finish > 0, remaining, increment)
    increment = jnp.where(remaining > 0, increment, 0.0)
    # A particle at -inf is dropped, also from a step so small that -inf times it is NaN.
    gained = jnp.where(jnp.isfinite(log_likelihood), increment * log_likelihood, -jnp.inf)
    log_weight = cloud.log_weight + gained
    following = jnp.where(increment >= remaining, 1.0, power + increment)

    carried_ess = effective_sample_size(log_weight)
    resample = carried_ess < settings.resample_below * num_particles
    chosen = jnp.where(
        resample,
        require_resampling(resampling)(key_resample, log_weight),
        jnp.arange(num_particles),
    )
    log_evidence = log_mean_exp(log_weight)
    position = cloud.position[chosen]
    log_weight = jnp.where(resample, log_evidence, log_weight)

    scaled = kernel.rescale(1.0 / (settings.rows_past + following * settings.rows_chunk))
    moved, moves = _move(
        key_move, Cloud(position, log_weight), path.target(following), scaled, settings.num_moves
    )
    usable = jnp.isfinite(log_weight)
    # An unstable integrator runs away long before its numbers overflow.
    fall = following * (log_likelihood[chosen] - jax.vmap(path.chunk_log_likelihood)(moved))
    stable = jnp.all(jnp.isfinite(moved), axis=1) & (fall < DIVERGENCE)
    diverged = usable & ~stable
    position = jnp.where((usable & ~diverged)[:, None], moved, position)
    counted = usable & ~diverged
    info = StepInfo(
        increment=increment,
        ess=ess,
        carried_ess=carried_ess,
        log_evidence=log_evidence,
        num_infinite=jnp.sum(alive & ~jnp.isfinite(log_likelihood)),
        num_undefined=jnp.sum(undefined),
        num_diverged=jnp.sum(diverged),
        dropped=lowered,
        resampled=resample,
        moves=jax.tree_util.tree_map(
            lambda leaf: jnp.sum(jnp.where(counted, leaf, 0.0)) / jnp.maximum(jnp.sum(counted), 1),
            moves,
        ),
    )
    # An island that has already arrived stays as it is while the others go on.
    arrived = power >= 1.0
    keep = partial(jax.tree_util.tree_map, lambda old, new: jnp.where(arrived, old, new))
    return keep(cloud, Cloud(position, log_weight)), jnp.where(arrived, power, following), info


@partial(jax.jit, static_argnames="resampling")
def anneal_step(
    key: Array,
    counters: Array,
    islands: Array,
    cloud: Cloud,
    power: Array,
    path: Path,
    kernel: Kernel,
    settings: Settings,
    resampling: str,
) -> tuple[Cloud, Array, StepInfo]:
    """One annealing step of all islands; the first axis of cloud, power and past is the island."""
    key = jax.random.fold_in(jax.random.fold_in(key, counters[0]), counters[1])
    keys = jax.vmap(partial(jax.random.fold_in, key))(islands)
    axes = Path(model=None, past=0, chunk=None)  # type: ignore[arg-type]
    step = partial(_step_island, kernel=kernel, settings=settings, resampling=resampling)
    return jax.vmap(step, in_axes=(0, 0, 0, axes))(keys, cloud, power, path)


class Annealed(NamedTuple):
    """Particles at the end of a path, and what happened on each step (host arrays).

    An island that arrives before the others has increments of 0 from then on.
    """

    cloud: Cloud
    steps: list[StepInfo]
    powers: np.ndarray
    stalled: bool


def anneal(
    key: Array,
    stage: int,
    islands: np.ndarray,
    cloud: Cloud,
    path_at: Callable[[int], Path],
    kernel: Kernel,
    settings: Settings,
    *,
    resampling: str = "systematic",
    max_steps: int = 2000,
) -> Annealed:
    """Take the particles along a path, from power 0 to power 1.

    Args:
        key: of the whole run; the step's own key follows from stage, step and island.
        stage: number of this path within the run.
        islands: numbers of the islands, so that an island's draws are its own.
        cloud: particles of all islands.
        path_at: the path for a step; a new one each time, for it may carry new mini-batches.
        kernel: the move.
        settings: see ``Settings``.
        resampling: name of the scheme.
        max_steps: after this many the rest is taken at once, and the result says so.
    """
    power = np.zeros(len(islands))
    steps: list[StepInfo] = []
    stalled = False
    while power.min() < 1.0:
        step = len(steps)
        stalled = step >= max_steps - 1
        cloud, new_power, info = anneal_step(
            key,
            np.array([stage, step]),
            islands,
            cloud,
            power,
            path_at(step),
            kernel,
            settings._replace(finish=float(stalled)),
            resampling=resampling,
        )
        power = np.asarray(new_power)
        steps.append(jax.tree_util.tree_map(np.asarray, info))
    return Annealed(cloud, steps, power, stalled)
