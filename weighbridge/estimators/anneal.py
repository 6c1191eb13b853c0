"""The annealing core: choose the next power, reweight, maybe resample, move.

One loop serves every estimator on a path of densities f_lambda(u) = past(u) chunk(u)^lambda;
they differ in what is past and what is chunk, in the move, and in whether they resample.
Islands share the schedule and the tuning of the moves, and nothing else: given those, their
estimates are independent, and a schedule chosen from all particles is a better one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.base import Array
from weighbridge.estimators.powers import choose_increment
from weighbridge.model import Model
from weighbridge.numerics import jit, jit_for_speed
from weighbridge.particles import (
    effective_sample_size,
    log_mean_exp,
    relative_weights,
    require_resampling,
)
from weighbridge.pytrees import register_dataclass
from weighbridge.relabel import Walls
from weighbridge.target import Target, Tempered, Term

# A move that lowers the log density by more than this many nats has diverged, as in Stan.
DIVERGENCE = 1000.0
# Names the stream of random numbers that steps draw their keys from.
STEP_STREAM = 2
# And the one that prior draws do.
DRAW_STREAM = 15
# Told the power reached, the log evidence so far and the number of steps.
Report = Callable[[float, float, int], None]


class Cloud(NamedTuple):
    """Weighted particles of all islands; the mean weight estimates the evidence so far.

    Attributes:
        position: islands x particles x coordinates.
        log_weight: islands x particles.
        origin: which of its island's first particles each descends from.
    """

    position: Array
    log_weight: Array
    origin: Array


def shares(cloud: Cloud) -> np.ndarray:
    """What each particle of all islands counts; islands count alike, whatever their evidence.

    >>> shares(Cloud(np.zeros((2, 2, 1)), np.array([[0.0, 0.0], [-9.0, -np.inf]]), None))
    array([0.25, 0.25, 0.5 , 0.  ])
    """
    log_weight = np.asarray(cloud.log_weight)
    highest = log_weight.max(axis=1, keepdims=True)
    weight = np.exp(log_weight - np.where(np.isfinite(highest), highest, 0.0))
    total = weight.sum(axis=1, keepdims=True)
    share = np.where(total > 0, weight / np.where(total > 0, total, 1.0), 0.0).reshape(-1)
    return np.asarray(share / share.sum())


@partial(
    register_dataclass,
    data_fields=["model", "past", "chunk", "walls"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Path:
    """Densities from prior times past to prior times past times chunk.

    Where components may be permuted, ``walls`` may restrict them to the cell of one labelling.
    """

    model: Model
    past: tuple[Term, ...]
    chunk: Term
    walls: Walls | None = None

    @property
    def axes(self) -> Any:
        """Where the island axes of its terms lie, for jax.vmap; the model is common to all."""
        past = tuple(term.axes for term in self.past)
        return Path(None, past, self.chunk.axes, None)  # type: ignore[arg-type]

    def target(self, power: Array) -> Target:
        """The density at a power of the chunk's likelihood."""
        return Target(self.model, (*self.past, Tempered(self.chunk, power)))

    def permits(self, before: Array, after: Array) -> Array:
        """Which moves, islands x particles, do not leave the walls, if there are any.

        A few particles at the edge of the prior may begin outside; those may go on.
        """
        if self.walls is None:
            return jnp.ones(after.shape[:2], bool)
        inside = jax.vmap(jax.vmap(partial(self.walls.allow, self.model)))
        permitted: Array = inside(after) | ~inside(before)
        return permitted

    def chunk_log_likelihood(self, position: Array) -> Array:
        """What the weights grow by when the power goes from 0 to 1."""
        return self.chunk(self.model, position, self.model.transform(position)[0])


@runtime_checkable
class Mover(Protocol):
    """How particles are moved at one power; a pytree that carries its own tuning.

    A mover whose moves all have an accept test says so by a class attribute ``adjusted``: they
    need no check for runaways. One that can keep every state of its chains, for waste-free
    resampling, has a method ``chain`` too (see ``adaptive.Adaptive``).
    """

    def move(self, keys: Array, cloud: Cloud, path: Path, power: Array) -> tuple[Array, Any, Any]:
        """New positions of all islands, info averaged over particles, and the mover tuned."""
        ...


class Settings(NamedTuple):
    """Numbers that steer the loop; all of them are leaves, so changing one never retraces.

    Attributes:
        target_ess: ESS to aim for at each step, as a fraction of the particles.
        resample_below: resample when the carried ESS falls below this fraction; 0 never does,
            more than 1 always does.
        conditional: 1 to count the ESS with the carried weights (Zhou, Johansen & Aston 2016),
            0 to count it over the incremental weights alone (as published SGAIS does).
        next_power: go to this power, whatever the ESS; NaN chooses it by the ESS.
    """

    target_ess: Array | float
    resample_below: Array | float
    conditional: Array | float = 1.0
    next_power: Array | float = float("nan")


class StepInfo(NamedTuple):
    """What one annealing step did; arrays have one entry for each island.

    Attributes:
        increment: by how much the power grew.
        power: where it is now.
        ess: of the incremental weights.
        carried_ess: of the weights carried, before resampling.
        log_increment: log of the weighted mean of chunk^increment: a stepping stone.
        log_evidence: so far.
        mean: of the chunk's log-likelihood over the particles, before this step.
        variance: likewise.
        num_infinite: particles at log-likelihood -inf.
        num_undefined: particles whose log-likelihood is not a number, counted as -inf.
        num_diverged: moves that were undone because the position was not finite.
        dropped: whether the target ESS had to be lowered for want of finite particles.
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
    num_diverged: Array
    dropped: Array
    resampled: Array
    moves: Any


def _reweight(
    cloud: Cloud, power: Array, log_likelihood: Array, settings: Settings
) -> tuple[Array, Array, Array, Array, Array]:
    """Choose the next power and grow the weights: weights, step, power, ESS, lowered."""
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
    # A particle at -inf is dropped, also from a step so small that -inf times it is NaN.
    gained = jnp.where(jnp.isfinite(log_likelihood), increment * log_likelihood, -jnp.inf)
    return cloud.log_weight + gained, increment, following, ess, lowered


def _resample(
    key: Array, cloud: Cloud, resample_below: Array | float, resampling: str, chain_length: int
) -> tuple[Cloud, Array, Array]:
    """Resample one island if its weights have degenerated; all weights become their mean.

    With chains only one of ``chain_length`` is kept. Returns the cloud, which particles it is
    made of, and whether it was resampled.
    """
    num_particles = cloud.log_weight.shape[0]
    resample = effective_sample_size(cloud.log_weight) < resample_below * num_particles
    drawn = require_resampling(resampling)(key, cloud.log_weight)
    chosen = jnp.where(resample, drawn, jnp.arange(num_particles))
    log_weight = jnp.where(resample, log_mean_exp(cloud.log_weight), cloud.log_weight)
    if chain_length > 1:
        # Every so many of them from a random one on: of a systematic draw again a systematic draw.
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


class Weighed(NamedTuple):
    """A step before its moves.

    Attributes:
        cloud: the particles to move.
        chosen: which of the particles before they are.
        population: all particles, with their new weights.
        power: the one that the moves are for.
        info: what is known before them.
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
    """Choose the next power, reweight and maybe resample; ``raw`` are the log-likelihoods."""
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
        # An island without weight stays without: -inf, and not the difference of two.
        log_increment=jnp.where(jnp.isfinite(before), log_evidence - before, -jnp.inf),
        log_evidence=log_evidence,
        mean=mean,
        variance=variance,
        num_infinite=jnp.sum(alive & ~jnp.isfinite(log_likelihood), axis=1),
        num_undefined=jnp.sum(alive & jnp.isnan(raw), axis=1),
        num_diverged=jnp.zeros(cloud.log_weight.shape[0], int),
        dropped=lowered,
        resampled=was_resampled,
        moves=None,
    )
    return Weighed(resampled, chosen, reweighted, following, info)


def stretched(cloud: Cloud, chain_length: int) -> Cloud:
    """Every particle as often as its chain has states."""
    if chain_length == 1:
        return cloud
    return Cloud(*(jnp.repeat(leaf, chain_length, axis=1) for leaf in cloud))


def settle(start: Cloud, moved: Array, stable: Array | None) -> tuple[Cloud, Array, Array]:
    """Take the moves of particles that have weight, and undo those that ran away.

    Returns the particles, which of them have moved, and how many were undone in each island.
    """
    usable = jnp.isfinite(start.log_weight)
    diverged = jnp.zeros_like(usable) if stable is None else usable & ~stable
    kept = usable & ~diverged
    position = jnp.where(kept[..., None], moved, start.position)
    return start._replace(position=position), kept, jnp.sum(diverged, axis=1)


def _anneal_step(
    key_data: Array,
    cloud: Cloud,
    power: Array,
    path: Path,
    mover: Any,
    settings: Settings,
    resampling: str,
    chain_length: int = 1,
    patient: bool = False,
) -> tuple[Cloud, Array, Any, StepInfo]:
    """One annealing step of all islands; ``key_data`` has two keys for each."""
    keys = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    raw = chunk_log_likelihoods(path, cloud.position)
    weighed = weigh(keys[:, 0], cloud, raw, power, settings, resampling, chain_length)
    start, following = weighed.cloud, weighed.power
    if patient:
        moved, moves, mover = _move_if(
            jnp.any(weighed.info.resampled), mover, keys[:, 1], start, path, following
        )
    elif chain_length == 1:
        moved, moves, mover = mover.move(keys[:, 1], start, path, following)
    else:
        moved, moves, mover = mover.chain(
            keys[:, 1], start, path, following, weighed.population, chain_length
        )
        start = stretched(start, chain_length)
    adjusted = getattr(mover, "adjusted", False)
    stable = None if adjusted else stable_moves(path, following, start.position, moved)
    cloud, _, num_diverged = settle(start, moved, stable)
    info = weighed.info._replace(num_diverged=num_diverged, moves=moves)
    return cloud, following, mover, info


STATIC = ("resampling", "chain_length", "patient")
anneal_step = jit_for_speed(_anneal_step, static_argnames=STATIC)
# The same, for a likelihood that is cheap: it takes less time to compile, and may take more to run.
quick_step = jit(_anneal_step, static_argnames=STATIC)


def _move_if(
    wanted: Array, mover: Any, keys: Array, cloud: Cloud, path: Path, power: Array
) -> tuple[Array, Any, Any]:
    """Move all particles, or none; then the info is zero."""
    mover = jax.tree_util.tree_map(jnp.asarray, mover)

    def move() -> tuple[Array, Any, Any]:
        found: tuple[Array, Any, Any] = mover.move(keys, cloud, path, power)
        return found

    def stay() -> tuple[Array, Any, Any]:
        info = jax.tree_util.tree_map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape[1])
        return cloud.position, info, mover

    shape = jax.eval_shape(move)
    found: tuple[Array, Any, Any] = jax.lax.cond(wanted, move, stay)
    return found


def chunk_log_likelihoods(path: Path, position: Array) -> Array:
    """Log-likelihood of the chunk at every particle of every island."""

    def island(path: Path, position: Array) -> Array:
        return jax.vmap(path.chunk_log_likelihood)(position)

    found: Array = jax.vmap(island, in_axes=(path.axes, 0))(path, position)
    return found


def stable_moves(path: Path, power: Array, before: Array, after: Array) -> Array:
    """Which particles are still in a sensible place after their moves."""
    # An unstable integrator runs away long before its numbers overflow.
    fall = power * (chunk_log_likelihoods(path, before) - chunk_log_likelihoods(path, after))
    return jnp.all(jnp.isfinite(after), axis=-1) & (fall < DIVERGENCE)


def draw_cloud(model: Model, key: Array, islands: np.ndarray, num_particles: int) -> Cloud:
    """Particles from the prior, with weights of 1; each island has a stream of keys of its own."""
    high, low = map(int, np.asarray(jax.random.key_data(key)))

    def numbers(island: int) -> np.ndarray:
        stream = np.random.Philox(key=[high << 32 | low, DRAW_STREAM], counter=[0, island, 0, 0])
        return np.random.Generator(stream).integers(0, 2**32, (num_particles, 2), np.uint32)

    return _draw_cloud(model, np.stack([numbers(int(island)) for island in islands]))


@jit
def _draw_cloud(model: Model, key_data: Array) -> Cloud:
    """Draws by keys that were made on the host, so that none is compiled."""
    keys = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    position = jax.vmap(jax.vmap(model.draw))(keys)
    shape = position.shape[:2]
    origin = jnp.broadcast_to(jnp.arange(shape[1]), shape)
    return Cloud(position, jnp.zeros(shape), origin)


def step_keys(seed: int, stage: int, step: int, islands: np.ndarray) -> np.ndarray:
    """Two keys for each island, as raw numbers; made on the host, so that none is compiled.

    The stream is named by seed, stage, step and first island.
    """
    counter = [0, int(islands[0]), step, stage]
    generator = np.random.Generator(np.random.Philox(key=[seed, STEP_STREAM], counter=counter))
    return generator.integers(0, 2**32, (len(islands), 2, 2), np.uint32)


class Annealed(NamedTuple):
    """Particles at the end of a path, the mover as tuned, and what each step did."""

    cloud: Cloud
    mover: Any
    steps: list[StepInfo]
    powers: list[float]
    stalled: bool


def anneal(
    seed: int,
    stage: int,
    islands: np.ndarray,
    cloud: Cloud,
    path_at: Callable[[int], Path],
    mover: Mover | Sequence[Mover],
    settings: Settings,
    *,
    schedule: np.ndarray | None = None,
    start: float = 0.0,
    resampling: str = "systematic",
    chain_length: int = 1,
    max_steps: int = 2000,
    take_step: Callable[..., tuple[Cloud, Any, Any, StepInfo]] = anneal_step,
    report: Report | None = None,
    between: Callable[[Cloud, StepInfo], Cloud] | None = None,
) -> Annealed:
    """Take the particles along a path, from power 0 to power 1, or as a schedule says.

    Args:
        seed: of the whole run; the keys of a step follow from seed, stage, step and islands.
        stage: number of this path within the run.
        islands: numbers of the islands.
        cloud: particles of all islands.
        path_at: the path for a step; a new one each time, for it may carry new mini-batches.
        mover: how the particles move; or one mover for each power of the schedule.
        settings: see ``Settings``.
        schedule: powers to go through, up or down, instead of choosing them by the ESS.
        start: power that the particles are at.
        resampling: name of the scheme.
        chain_length: more than 1 resamples one of so many particles and keeps every state of the
            chains that start there (waste-free: Dau & Chopin 2022, J. R. Stat. Soc. B 84:114-148).
        max_steps: after this many the rest is taken at once, and the result says so.
        take_step: ``anneal_step``, or ``quick_step``, or what does the same where the likelihood
            is on the host.
        report: called before the first step and after every one.
        between: what to do to the particles after every step, by what the step did, that leaves
            their density as it is.
    """
    # As arrays from the start: what comes back tuned is one, and must not be traced again.
    mover = jax.tree_util.tree_map(np.asarray, mover)
    powers = [start]
    steps: list[StepInfo] = []
    stalled = False
    if report is not None:
        report(start, 0.0, 0)
    while powers[-1] < 1.0 if schedule is None else len(steps) < len(schedule):
        step = len(steps)
        if schedule is not None:
            following = float(schedule[step])
        else:
            stalled = step >= max_steps - 1
            following = 1.0 if stalled else float("nan")
        cloud, power, tuned, info = take_step(
            step_keys(seed, stage, step, islands),
            cloud,
            powers[-1],
            path_at(step),
            mover[step] if isinstance(mover, Sequence) else mover,
            settings._replace(next_power=following),
            resampling=resampling,
            chain_length=chain_length,
        )
        mover = mover if isinstance(mover, Sequence) else tuned
        if between is not None:
            cloud = between(cloud, info)
        powers.append(float(power))
        steps.append(jax.tree_util.tree_map(np.asarray, info))
        if report is not None:
            so_far = np.logaddexp.reduce(steps[-1].log_evidence) - np.log(len(islands))
            report(powers[-1], float(so_far), len(steps))
    return Annealed(cloud, mover, steps, powers, stalled)
