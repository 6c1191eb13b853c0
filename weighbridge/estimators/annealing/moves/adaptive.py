"""The common part of movers that tune themselves: metric, number of moves, loop over moves.

Only the loop over moves is compiled (``_moves`` and ``_chains``). The metric before it and the
tuning after it are computed on the host.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import EitherProgram
from weighbridge.core.thresholds import MIN_MOVE_ACCEPTANCE
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.moves.forgetting import memory
from weighbridge.estimators.annealing.moves.mover import Moved
from weighbridge.estimators.annealing.moves.scales import others_scale
from weighbridge.estimators.annealing.path import Path
from weighbridge.sampling.kernels.parts.dialogue import Point
from weighbridge.sampling.kernels.parts.scale import LowRank

# A number as a leaf of a pytree: of the user, of a program, or of the host.
Number = Array | np.ndarray | float | int


class AdaptiveInfo(NamedTuple):
    """Info of the moves at one power.

    Attributes:
        acceptance: mean acceptance probability.
        step_size: in units of the particles' spread.
        num_moves: number of moves.
        correlation: correlation of end and start of the moves; see ``remembered``. NaN if the
            number of moves is fixed.
        lingering: the part of it that decays with further moves; see ``memory``.
        divergent: share of divergent trajectories.
        unbounded: for each island, particles whose log density has become +inf.
    """

    acceptance: float
    step_size: float
    num_moves: int
    correlation: float
    lingering: float
    divergent: float
    unbounded: np.ndarray


class Setting(NamedTuple):
    """Quantities that are the same for all moves at one power.

    Attributes:
        scale: the metric of each island, from particles of other islands.
        alive: which particles have weight.
    """

    scale: Array | np.ndarray | LowRank
    alive: Array | np.ndarray


class Tally(NamedTuple):
    """The moves so far: the state of all particles, the step size, and sums over the moves.

    Attributes:
        state: of all particles.
        step_size: for the next move.
        acceptance: summed over the moves.
        divergent: share of divergent trajectories, summed over the moves.
        middle: positions and log densities after half of the moves.
    """

    state: Any
    step_size: Array
    acceptance: Array
    divergent: Array
    middle: tuple[Array, Array]

    def noted(self, index: Array | int, num_moves: Number) -> Tally:
        """Save the state as ``middle`` if this was the last move of the first half."""
        now = jnp.asarray(index) + 1 == jnp.asarray(num_moves) // 2
        here = self.state.position, self.state.log_density
        middle = jax.tree_util.tree_map(partial(jnp.where, now), here, self.middle)
        return self._replace(middle=middle)


def confined(path: Path, before: Tally, after: Tally) -> Tally:
    """Reject the moves that leave the walls of the path."""
    if path.walls is None:
        return after
    permitted = path.permits(before.state.position, after.state.position)

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(permitted.reshape(permitted.shape + (1,) * (new.ndim - 2)), new, old)

    return after._replace(state=jax.tree_util.tree_map(choose, after.state, before.state))


class Adaptive(ABC):
    """Base class of movers that tune themselves.

    The metric of an island is the covariance of particles of other islands, shrunk towards its
    diagonal. A metric from the island's own particles would not leave its target invariant.
    The number of moves is the number that, at the previous power, would lower the correlation
    with the start to ``decorrelated``, or to its limit if that is higher: particles in separate
    modes stay correlated with their start, however many moves they make. The number is fixed before
    the moves: stopping when the particles look right would select particles and cause a bias.
    """

    num_moves: Number
    decorrelated: float
    dense: bool

    # A lower acceptance is flagged.
    low_acceptance: ClassVar[float] = MIN_MOVE_ACCEPTANCE

    @abstractmethod
    def start(self, position: Array, path: Path, power: Array) -> Any:
        """The state of all particles, with their positions and log densities."""

    @abstractmethod
    def advance(
        self, key: Array, index: Array, tally: Tally, setting: Setting, path: Path, power: Array
    ) -> Tally:
        """One move of all particles, and the step size tuned by it."""

    @abstractmethod
    def first_step_size(self) -> Number:
        """The step size of the first move."""

    @abstractmethod
    def most_moves(self, dimension: int) -> Number:
        """The largest number of moves."""

    @abstractmethod
    def tuned(self, step_size: Number, num_moves: Number) -> Self:
        """The mover for the next power."""

    def roaming(self, dimension: int) -> Self:
        """The largest number of moves, to detect a drift of the particles."""
        return self.tuned(self.first_step_size(), self.most_moves(dimension))

    def falling(self) -> Self:
        """A few moves, for quenching: particles only need to climb to the nearest mode."""
        return self.tuned(self.first_step_size(), 3)

    def move(self, key_data: np.ndarray, cloud: Cloud, path: Path, power: float) -> Moved:
        """Move all particles, and tune for the next power."""
        setting = self.setting(cloud, cloud)
        # The key of the first island draws the moves of all islands.
        first, last = MOVES.for_numbers(path.num_numbers)(
            self, key_data[0], cloud.position, setting, path, power
        )
        info, tuned = self.conclude(cloud, first, last, int(self.num_moves))
        return Moved(np.asarray(last.state.position), info, tuned)

    def chain(
        self,
        key_data: np.ndarray,
        cloud: Cloud,
        path: Path,
        power: float,
        population: Cloud,
        length: int,
    ) -> Moved:
        """Chains of a fixed length from all particles; every state becomes a particle.

        The metric comes from ``population``, which is larger than the cloud that moves.
        """
        setting = self.setting(cloud, population)
        first, last, states = CHAINS.for_numbers(path.num_numbers)(
            self, key_data[0], cloud.position, setting, path, power, length=length
        )
        info, tuned = self.conclude(cloud, first, last, length - 1)
        return Moved(joined(np.concatenate([cloud.position[None], states])), info, tuned)

    def has_matrix(self, dimension: int, num_particles: int) -> bool:
        """Whether the metric is a full matrix, for this many particles of all islands."""
        return self.dense

    def setting(self, cloud: Cloud, population: Cloud) -> Setting:
        """The metric, and which particles have weight."""
        return Setting(others_scale(population, dense=self.dense), np.isfinite(cloud.log_weight))

    def begin(self, state: Any) -> Tally:
        """The tally before the first move."""
        one = jnp.ones(())
        middle = state.position, state.log_density
        return Tally(state, one * self.first_step_size(), 0 * one, 0 * one, middle)

    def conclude(
        self, cloud: Cloud, log_density: Array | np.ndarray, last: Tally, num_moves: int
    ) -> tuple[AdaptiveInfo, Self]:
        """The info of the moves, and the mover for the next power.

        Args:
            cloud: the particles before the moves.
            log_density: their log densities.
            last: the tally after the moves.
            num_moves: number of moves.
        """
        alive = np.isfinite(cloud.log_weight)
        most = int(self.most_moves(cloud.position.shape[-1]))
        correlation, lingering, needed = math.nan, math.nan, most
        if self.decorrelated > 0:
            # The log density is one more coordinate.
            before, middle = _beside(cloud.position, log_density), _beside(*last.middle)
            after = _beside(last.state.position, last.state.log_density)
            found = memory(before, middle, after, alive, num_moves)
            correlation, lingering = (float(max(np.mean(m[:-1]), m[-1])) for m in found)
            decay = math.log(min(max(lingering, 0.01), 0.99))
            needed = math.ceil(num_moves * math.log(self.decorrelated) / decay)
            # At least two moves if correlation is left: one move cannot show how it decays.
            least = 2 if correlation > self.decorrelated else 1
            needed = min(max(needed, min(least, most)), most)
        step_size = np.asarray(last.step_size)
        info = AdaptiveInfo(
            acceptance=float(last.acceptance) / num_moves,
            step_size=float(step_size),
            num_moves=num_moves,
            correlation=correlation,
            lingering=lingering,
            divergent=float(last.divergent) / num_moves,
            unbounded=np.sum(alive & (np.asarray(last.state.log_density) == np.inf), axis=1),
        )
        return info, self.tuned(step_size, np.asarray(needed))


def _moves(
    mover: Adaptive, key_data: Array, position: Array, setting: Setting, path: Path, power: Array
) -> tuple[Array, Tally]:
    """The moves of all particles: their log densities before, and the tally after."""
    key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    first = mover.begin(mover.start(position, path, power))

    def body(index: Array, tally: Tally) -> Tally:
        moved = mover.advance(key, index, tally, setting, path, power)
        return confined(path, tally, moved).noted(index, mover.num_moves)

    last = jax.lax.fori_loop(0, mover.num_moves, body, first)
    return first.state.log_density, _without_gradients(last)


def _chains(
    mover: Adaptive,
    key_data: Array,
    position: Array,
    setting: Setting,
    path: Path,
    power: Array,
    length: int,
) -> tuple[Array, Tally, Array]:
    """As ``_moves``, with every state of the chains."""
    key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    first = mover.begin(mover.start(position, path, power))

    def body(tally: Tally, index: Array) -> tuple[Tally, Array]:
        moved = mover.advance(key, index, tally, setting, path, power)
        tally = confined(path, tally, moved).noted(index, length - 1)
        return tally, tally.state.position

    last, states = jax.lax.scan(body, first, jnp.arange(length - 1))
    return first.state.log_density, _without_gradients(last), states


def _without_gradients(tally: Tally) -> Tally:
    """The tally with positions and log densities only, to be returned from a program."""
    return tally._replace(state=Point(tally.state.position, tally.state.log_density))


MOVES = EitherProgram(_moves)
CHAINS = EitherProgram(_chains, static_argnames="length")


def _beside(position: Array | np.ndarray, log_density: Array | np.ndarray) -> np.ndarray:
    """Positions, and log densities as one more coordinate."""
    return np.concatenate([position, np.asarray(log_density)[..., None]], axis=-1)


def joined(states: np.ndarray) -> np.ndarray:
    """Reshape states of chains, states x islands x chains x ..., to islands x particles x ..."""
    ordered = np.moveaxis(states, 0, 2)
    return ordered.reshape(ordered.shape[0], -1, *ordered.shape[3:])


def pooled(values: Array, alive: Array | np.ndarray) -> Array:
    """Average over all particles with weight, of all islands."""
    return jnp.sum(jnp.where(alive, jnp.nan_to_num(values), 0.0)) / jnp.sum(alive)
