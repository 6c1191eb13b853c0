"""The common part of movers that tune themselves: metric, number of moves, loop over moves."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from weighbridge.core.thresholds import MIN_MOVE_ACCEPTANCE
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.path import Path

# With this many particles for each dimension, their covariance is used without shrinkage.
ENOUGH_PARTICLES = 4


class AdaptiveInfo(NamedTuple):
    """Info of the moves at one power.

    Attributes:
        acceptance: mean acceptance probability.
        step_size: in units of the particles' spread.
        num_moves: number of moves.
        correlation: correlation of end and start of the moves; see ``remembered``.
        lingering: the part of it that decays with further moves; see ``memory``.
        divergent: share of divergent trajectories.
        unbounded: for each island, particles whose log density has become +inf.
    """

    acceptance: Array
    step_size: Array
    num_moves: Array
    correlation: Array
    lingering: Array
    divergent: Array
    unbounded: Array


class Setting(NamedTuple):
    """Quantities that are the same for all moves at one power.

    Attributes:
        scale: the metric of each island, from particles of other islands.
        alive: which particles have weight.
    """

    scale: Array
    alive: Array


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

    def noted(self, index: Array | int, num_moves: Array | int) -> Tally:
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


class Adaptive:
    """Base class of movers that tune themselves.

    The metric of an island is the covariance of particles of other islands, shrunk towards its
    diagonal. A metric from the island's own particles would not leave its target invariant.
    The number of moves is the number that, at the previous power, would lower the correlation
    with the start to ``decorrelated``, or to its limit if that is higher: particles in separate
    modes stay correlated with their start, however many moves they make. The number is fixed before
    the moves: stopping when the particles look right would select particles and cause a bias.
    """

    num_moves: Array | int
    decorrelated: Array | float
    dense: bool

    adjusted: ClassVar[bool] = True
    # A lower acceptance is flagged.
    low_acceptance: ClassVar[float] = MIN_MOVE_ACCEPTANCE

    def start(self, position: Array, path: Path, power: Array) -> Any:
        """The state of all particles, with their positions and log densities."""
        raise NotImplementedError

    def advance(
        self, key: Array, index: Array, tally: Tally, setting: Setting, path: Path, power: Array
    ) -> Tally:
        """One move of all particles, and the step size tuned by it."""
        raise NotImplementedError

    def first_step_size(self) -> Array | float:
        """The step size of the first move."""
        raise NotImplementedError

    def most_moves(self, dimension: int) -> Array | int:
        """The largest number of moves."""
        raise NotImplementedError

    def tuned(self, step_size: Array | float, num_moves: Array | int) -> Self:
        """The mover for the next power."""
        raise NotImplementedError

    def roaming(self, dimension: int) -> Self:
        """The largest number of moves, to detect a drift of the particles."""
        return self.tuned(self.first_step_size(), self.most_moves(dimension))

    def falling(self) -> Self:
        """A few moves, for quenching: particles only need to climb to the nearest mode."""
        return self.tuned(self.first_step_size(), 3)

    def move(self, keys: Array, cloud: Cloud, path: Path, power: Array) -> tuple[Array, Any, Any]:
        """Move all particles, and tune for the next power."""
        setting = self.setting(cloud, cloud)
        tally = first = self.begin(self.start(cloud.position, path, power))

        def body(index: Array, tally: Tally) -> Tally:
            # The key of the first island draws the moves of all islands.
            moved = self.advance(keys[0], index, tally, setting, path, power)
            return confined(path, tally, moved).noted(index, num_moves)

        num_moves = jnp.asarray(self.num_moves)
        tally = jax.lax.fori_loop(0, num_moves, body, tally)
        info, tuned = self.conclude(first, tally, num_moves, setting)
        return tally.state.position, info, tuned

    def chain(
        self,
        keys: Array,
        cloud: Cloud,
        path: Path,
        power: Array,
        population: Cloud,
        length: int,
    ) -> tuple[Array, Any, Any]:
        """Chains of a fixed length from all particles; every state becomes a particle.

        The metric comes from ``population``, which is larger than the cloud that moves.
        """
        setting = self.setting(cloud, population)
        first = self.begin(self.start(cloud.position, path, power))

        def body(tally: Tally, index: Array) -> tuple[Tally, Array]:
            moved = self.advance(keys[0], index, tally, setting, path, power)
            tally = confined(path, tally, moved).noted(index, length - 1)
            return tally, tally.state.position

        tally, states = jax.lax.scan(body, first, jnp.arange(length - 1))
        states = jnp.concatenate([cloud.position[None], states])
        num_moves = jnp.asarray(length - 1, jnp.asarray(self.num_moves).dtype)
        info, tuned = self.conclude(first, tally, num_moves, setting)
        return joined(states), info, tuned

    def setting(self, cloud: Cloud, population: Cloud) -> Setting:
        """The metric, and which particles have weight."""
        return Setting(others_scale(population, dense=self.dense), jnp.isfinite(cloud.log_weight))

    def begin(self, state: Any) -> Tally:
        """The tally before the first move."""
        one = jnp.ones(())
        middle = state.position, state.log_density
        return Tally(state, one * self.first_step_size(), 0 * one, 0 * one, middle)

    def conclude(
        self, first: Tally, last: Tally, num_moves: Array, setting: Setting
    ) -> tuple[AdaptiveInfo, Self]:
        """The info of the moves, and the mover for the next power."""
        start, end, alive = first.state, last.state, setting.alive
        # Log densities are one more coordinate, so that ``memory`` is compiled once.
        before = _beside(start.position, start.log_density)
        after = _beside(end.position, end.log_density)
        found = memory(before, _beside(*last.middle), after, alive, num_moves)
        correlation, lingering = (jnp.maximum(jnp.mean(m[:-1]), m[-1]) for m in found)
        needed = num_moves * jnp.log(self.decorrelated) / jnp.log(jnp.clip(lingering, 0.01, 0.99))
        most = self.most_moves(start.position.shape[-1])
        # At least two moves if correlation is left: one move cannot show how it decays.
        least = jnp.where(correlation > self.decorrelated, 2, 1)
        needed = jnp.clip(jnp.ceil(needed), jnp.minimum(least, most), most).astype(num_moves.dtype)
        acceptance, divergent = last.acceptance / num_moves, last.divergent / num_moves
        unbounded = jnp.sum(alive & (end.log_density == jnp.inf), axis=1)
        info = AdaptiveInfo(
            acceptance, last.step_size, num_moves, correlation, lingering, divergent, unbounded
        )
        return info, self.tuned(last.step_size, needed)


def joined(states: Array) -> Array:
    """Reshape states of chains, states x islands x chains x ..., to islands x particles x ..."""
    ordered = jnp.moveaxis(states, 0, 2)
    return ordered.reshape(ordered.shape[0], -1, *ordered.shape[3:])


def others_scale(cloud: Cloud, *, dense: bool) -> Array:
    """For each island a square root of the covariance of particles of other islands.

    Even islands use the odd ones, odd islands the even ones; a single island uses itself.
    """
    num_islands = cloud.position.shape[0]
    if num_islands == 1:
        return particle_scale(cloud, dense=dense)[None]
    halves = [jax.tree_util.tree_map(lambda leaf: leaf[k::2], cloud) for k in (1, 0)]  # noqa: B023
    scale_of = partial(particle_scale, dense=dense)
    if num_islands % 2:
        roots = jnp.stack([scale_of(half) for half in halves])
    else:  # both at once compile in half the time
        both: Cloud = jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *halves)
        roots = jax.vmap(scale_of)(both)
    return roots[jnp.arange(num_islands) % 2]


def particle_scale(cloud: Cloud, *, dense: bool) -> Array:
    """A square root of the covariance of all particles.

    With N effective particles and D dimensions, the covariance is shrunk towards its diagonal if
    N < 4 D; the diagonal has the weight D / (N + D). With more particles it is not shrunk, because
    shrinkage would lose the narrow directions of a strongly correlated posterior.
    """
    dimension = cloud.position.shape[-1]
    position = cloud.position.reshape(-1, dimension)
    # All islands have the same total weight; particles within an island have their weights.
    usable = jnp.isfinite(cloud.log_weight)
    share = jax.nn.softmax(jnp.where(usable, cloud.log_weight, -jnp.inf), axis=1)
    share = jnp.where(usable, share, 0.0).reshape(-1)
    share = share / jnp.sum(share)
    centred = _centred(position, share @ position)
    variance = share @ centred**2
    variance = jnp.where(variance > 0, variance, 1.0)
    if not dense:
        return jnp.sqrt(variance)
    covariance = (centred * share[:, None]).T @ centred
    # Copies from resampling count once.
    distinct = 1 + jnp.sum(jnp.diff(jnp.sort(position[:, 0])) > 0)
    effective = jnp.minimum(1.0 / jnp.sum(share**2), distinct)
    few = effective < ENOUGH_PARTICLES * dimension
    trust = jnp.where(few, effective / (effective + dimension), 1.0)
    shrunk = trust * covariance + (1 - trust) * jnp.diag(variance)
    root: Array = jnp.linalg.cholesky(shrunk + 1e-10 * jnp.diag(variance))
    return root


def remembered(alive: Array, start: Array, *later: Array) -> Array:
    """Absolute correlation of the values at later times with those at the start.

    Returns one row for each time, one column for each coordinate.
    """
    # Two vector-matrix products for all sums: separate sums take far longer to compile.
    num_times, dimension = len(later), start.shape[-1]
    weight = (alive / jnp.sum(alive)).reshape(-1)
    values = jnp.concatenate([start, *later], axis=-1)
    values = jnp.where(alive[..., None], values, 0.0).reshape(weight.shape[0], -1)
    centred = _centred(values, weight @ values)
    products = jnp.tile(centred[:, :dimension], num_times) * centred[:, dimension:]
    moments = (weight @ jnp.concatenate([centred**2, products], axis=1)).reshape(-1, dimension)
    variances, covariances = moments[: num_times + 1], moments[num_times + 1 :]
    norms = variances[0] * variances[1:]
    return jnp.where(norms > 0, jnp.abs(covariances) / jnp.sqrt(norms), 1.0)


def memory(
    start: Array, middle: Array, end: Array, alive: Array, num_moves: Array
) -> tuple[Array, Array]:
    r"""Correlation of the particles with their start, and the part that decays with more moves.

    The correlation of a coordinate after m moves is modelled as

    .. math:: c_m = c_\infty + (1 - c_\infty) \rho^m.

    Then c after half of the moves and c after all moves determine rho^m, for any c_infinity. Few
    moves cannot distinguish slow decay from no decay: if a coordinate decays at two rates, the
    faster rate is found. Returns c_m and rho^m of each coordinate; rho^m is at most c_m.
    """
    half, whole = remembered(alive, start, middle, end)
    first = jnp.maximum(num_moves // 2, 1)
    second = (num_moves - first) / first
    moved = half < 1 - 1e-9
    ratio = jnp.where(moved, (half - whole) / jnp.where(moved, 1 - half, 1.0), second)
    ratio = jnp.clip(ratio, 0.0, 0.999 * second)
    # Solve ratio = x (1 - x^k) / (1 - x) for x = rho^first, with k = second; for equal halves
    # (k = 1) x is the ratio.
    share = jnp.minimum(ratio, 0.999)
    for _ in range(5):
        share = jnp.minimum(ratio * (1 - share) / (1 - share**second), 0.999)
    fading = jnp.where(num_moves > 1, share ** (num_moves / first), whole)
    return whole, jnp.minimum(fading, whole)


def _beside(position: Array, log_density: Array) -> Array:
    """Positions, and log densities as one more coordinate."""
    return jnp.concatenate([position, log_density[..., None]], axis=-1)


def _centred(values: Array, mean: Array) -> Array:
    """Deviations from the mean; those at the level of rounding are set to zero."""
    deviation = values - mean
    return jnp.where(jnp.abs(deviation) > 1e-12 * jnp.abs(mean), deviation, 0.0)


def pooled(values: Array, alive: Array) -> Array:
    """Average over all particles with weight, of all islands."""
    return jnp.sum(jnp.where(alive, jnp.nan_to_num(values), 0.0)) / jnp.sum(alive)
