"""The annealing step of a model whose likelihood runs in plain Python, on the host.

It is ``anneal_step``, with moves that are split where the likelihood is needed. The pieces between
are compiled. The likelihood is called for all particles at a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.cloud import Cloud, stretched
from weighbridge.estimators.annealing.moves.adaptive import Setting, Tally, joined
from weighbridge.estimators.annealing.moves.mover import Moved, settle
from weighbridge.estimators.annealing.moves.walks import AdaptiveWalk
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings, StepInfo, Weighed, weigh
from weighbridge.estimators.annealing.step import move_keys
from weighbridge.models.model import Model
from weighbridge.models.targets.host import HostLikelihood, as_numpy
from weighbridge.sampling.kernels.parts.dialogue import Point


def host_step(
    numbers: np.random.Generator,
    cloud: Cloud,
    power: float,
    path: Path,
    mover: Any,
    settings: Settings,
    *,
    chain_length: int = 1,
) -> tuple[Cloud, float, Any, StepInfo]:
    """``anneal_step`` for a path without past whose chunk is a ``HostLikelihood``."""
    likelihood = cast(HostLikelihood, path.chunk)
    key_data = move_keys(numbers, len(cloud.position))[0]
    known = np.asarray(likelihood.of_cloud(path.model, cloud.position))
    weighed = weigh(numbers, cloud, known, power, settings, chain_length)
    start, values = weighed.cloud, np.take_along_axis(known, weighed.chosen, axis=1)
    moved, moves = Moved(start.position, (), mover), values
    if isinstance(mover, AdaptiveWalk):
        moved, moves = _walk(key_data, weighed, values, path.model, mover, likelihood, chain_length)
    start, values = stretched(start, chain_length), np.repeat(values, chain_length, axis=1)
    cloud, num_diverged = settle(start, moved.position, None)
    likelihood.remember(cloud.position, np.where(np.isfinite(start.log_weight), moves, values))
    info = weighed.info._replace(num_diverged=num_diverged, moves=moved.info)
    return cloud, weighed.power, moved.mover, info


def _walk(
    key_data: np.ndarray,
    weighed: Weighed,
    start: np.ndarray,
    model: Model,
    mover: AdaptiveWalk,
    likelihood: HostLikelihood,
    chain_length: int,
) -> tuple[Moved, np.ndarray]:
    """The moves at one power, and the log-likelihoods of the new positions."""
    cloud = weighed.cloud
    setting = mover.setting(cloud, weighed.population if chain_length > 1 else cloud)
    position: Any = cloud.position
    log_density: Any = np.asarray(_log_prior(model, position)) + weighed.power * start
    tally = mover.begin(Point(position, log_density, start))
    states = [tally.state]
    num_moves = int(mover.num_moves) if chain_length == 1 else chain_length - 1
    for index in range(num_moves):
        walk, asked = _propose(mover, model, key_data, index, tally, setting)
        while np.any(asked.wanted):
            needed = np.asarray(asked.wanted) & np.isfinite(asked.log_prior)
            values = likelihood.at(as_numpy(model, asked.parameters), needed)
            walk, asked = _tell(mover, model, walk, asked, values, weighed.power)
        tally = _end(mover, walk, tally, setting, index, num_moves)
        states = [*states, tally.state] if chain_length > 1 else [tally.state]
    info, tuned = mover.conclude(cloud, log_density, tally, num_moves)
    position = joined(np.stack([state.position for state in states]))
    return Moved(position, info, tuned), joined(np.stack([state.note for state in states]))


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


@jit
def _log_prior(model: Model, position: Array) -> Array:
    log_prior: Array = jax.vmap(jax.vmap(model.transform))(position)[1]
    return log_prior


@jit
def _propose(
    mover: AdaptiveWalk,
    model: Model,
    key_data: Array,
    index: Array,
    tally: Tally,
    setting: Setting,
) -> tuple[Any, Question]:
    # The key of the first island moves all islands, as in the compiled moves.
    key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
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
def _end(
    mover: AdaptiveWalk, walk: Any, tally: Tally, setting: Setting, index: Array, num_moves: Array
) -> Tally:
    return mover.settle(walk, tally, setting).noted(index, num_moves)
