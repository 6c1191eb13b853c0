"""The annealing step of a model whose likelihood runs in plain Python, on the host.

It is ``anneal_step``, split where the likelihood is needed. The pieces between are compiled. The
likelihood is called for all particles at a time.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.cloud import Cloud, stretched
from weighbridge.estimators.annealing.moves.adaptive import AdaptiveInfo, Setting, Tally, joined
from weighbridge.estimators.annealing.moves.mover import settle
from weighbridge.estimators.annealing.moves.walks import AdaptiveWalk
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings, StepInfo, Weighed, weigh
from weighbridge.models.model import Model
from weighbridge.models.targets.host import HostLikelihood, as_numpy
from weighbridge.sampling.kernels.parts.dialogue import Point


def host_step(
    key_data: np.ndarray,
    cloud: Cloud,
    power: float,
    path: Path,
    mover: Any,
    settings: Settings,
    resampling: str,
    chain_length: int = 1,
) -> tuple[Cloud, Array, Any, StepInfo]:
    """``anneal_step`` for a path without past whose chunk is a ``HostLikelihood``."""
    likelihood = cast(HostLikelihood, path.chunk)
    known = likelihood.of_cloud(path.model, cloud.position)
    weighed = _weigh(
        key_data, cloud, known, power, settings, resampling=resampling, chain_length=chain_length
    )
    start = np.take_along_axis(np.asarray(known), np.asarray(weighed.chosen), axis=1)
    moved: Array = weighed.cloud.position
    values: Any = start
    moves: Any = ()
    if isinstance(mover, AdaptiveWalk):
        moved, values, moves, mover = _walk(
            key_data, weighed, start, path.model, likelihood, mover, chain_length
        )
    cloud, values, num_diverged = _settle(
        weighed.cloud, moved, start, values, chain_length=chain_length
    )
    likelihood.remember(cloud.position, values)
    info = weighed.info._replace(num_diverged=num_diverged, moves=moves)
    return cloud, weighed.power, mover, info


def _walk(
    key_data: np.ndarray,
    weighed: Weighed,
    start: np.ndarray,
    model: Model,
    likelihood: HostLikelihood,
    mover: AdaptiveWalk,
    chain_length: int,
) -> tuple[Array, Array, AdaptiveInfo, AdaptiveWalk]:
    """The moves at one power: new positions, their log-likelihoods, info, and the tuned mover."""
    tally, setting = _begin(mover, model, weighed, start, in_chains=chain_length > 1)
    first, states = tally, [tally.state]
    num_moves = int(mover.num_moves) if chain_length == 1 else chain_length - 1
    for index in range(num_moves):
        walk, asked = _propose(mover, model, key_data, index, tally, setting)
        while np.any(asked.wanted):
            needed = np.asarray(asked.wanted) & np.isfinite(asked.log_prior)
            values = likelihood.at(as_numpy(model, asked.parameters), needed)
            walk, asked = _tell(mover, model, walk, asked, values, weighed.power)
        tally = _end(mover, walk, tally, setting).noted(index, num_moves)
        states = [*states, tally.state] if chain_length > 1 else [tally.state]
    counted = np.asarray(num_moves, np.asarray(mover.num_moves).dtype)
    return _conclude(mover, states, first, tally, counted, setting)


# --- compiled pieces: none of them contains the likelihood ------------------------------------


class Question(NamedTuple):
    """Positions at which a move needs the log-likelihood, and which of them it needs.

    Attributes:
        position: islands x particles x coordinates.
        parameters: of the model at these positions.
        log_prior: at these positions.
        wanted: which of them are needed.
    """

    position: Array
    parameters: dict[str, Array]
    log_prior: Array
    wanted: Array


@partial(jit, static_argnames=("resampling", "chain_length"))
def _weigh(
    key_data: Array,
    cloud: Cloud,
    known: Array,
    power: Array,
    settings: Settings,
    resampling: str,
    chain_length: int,
) -> Weighed:
    keys = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    return weigh(keys[:, 0], cloud, known, power, settings, resampling, chain_length)


@partial(jit, static_argnames="in_chains")
def _begin(
    mover: AdaptiveWalk, model: Model, weighed: Weighed, values: Array, in_chains: bool
) -> tuple[Tally, Setting]:
    cloud = weighed.cloud
    _, log_prior = jax.vmap(jax.vmap(model.transform))(cloud.position)
    point = Point(cloud.position, log_prior + weighed.power * values, values)
    return mover.begin(point), mover.setting(cloud, weighed.population if in_chains else cloud)


@jit
def _propose(
    mover: AdaptiveWalk,
    model: Model,
    key_data: Array,
    index: Array,
    tally: Tally,
    setting: Setting,
) -> tuple[Any, Question]:
    # The key of the first island moves all islands, as in the compiled step.
    key = jax.random.wrap_key_data(key_data[0, 1], impl="threefry2x32")
    walk = mover.propose(key, index, tally, setting)
    return walk, _question(mover, model, walk)


@jit
def _tell(
    mover: AdaptiveWalk, model: Model, walk: Any, asked: Question, values: Array, power: Array
) -> tuple[Any, Question]:
    told = Point(asked.position, asked.log_prior + power * values, values)
    walk = mover.lift(lambda walk, told: walk.tell(told))(walk, told)
    return walk, _question(mover, model, walk)


def _question(mover: AdaptiveWalk, model: Model, walk: Any) -> Question:
    position = mover.lift(lambda walk: walk.ask())(walk)
    return Question(position, *jax.vmap(jax.vmap(model.transform))(position), walk.wanted)


@jit
def _end(mover: AdaptiveWalk, walk: Any, tally: Tally, setting: Setting) -> Tally:
    return mover.settle(walk, tally, setting)


@jit
def _conclude(
    mover: AdaptiveWalk,
    states: list[Point],
    first: Tally,
    last: Tally,
    num_moves: Array,
    setting: Setting,
) -> tuple[Array, Array, AdaptiveInfo, AdaptiveWalk]:
    info, tuned = mover.conclude(first, last, num_moves, setting)
    position = joined(jnp.stack([state.position for state in states]))
    return position, joined(jnp.stack([state.note for state in states])), info, tuned


@partial(jit, static_argnames="chain_length")
def _settle(
    start: Cloud, moved: Array, start_values: Array, values: Array, chain_length: int
) -> tuple[Cloud, Array, Array]:
    start_values = jnp.repeat(start_values, chain_length, axis=1)
    cloud, kept, num_diverged = settle(stretched(start, chain_length), moved, None)
    return cloud, jnp.where(kept, values, start_values), num_diverged
