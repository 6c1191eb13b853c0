"""Movers: a repeated kernel, no move at all, and HMC that tunes itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc

from weighbridge.core.compilation import EitherProgram
from weighbridge.core.islands import has_few_particles
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.moves.adaptive import Adaptive, Number, Setting, Tally, pooled
from weighbridge.estimators.annealing.moves.metric import others_low_rank
from weighbridge.estimators.annealing.moves.mover import Moved, stable_moves
from weighbridge.estimators.annealing.path import Path
from weighbridge.models.targets.density import Target
from weighbridge.sampling.kernels.hmc import HMC, evaluate
from weighbridge.sampling.kernels.parts.scale import Scale

# Up to this many coordinates, the particles of islands that share their rows are compiled as one
# axis. With two axes the gradients over rows compile badly, and SMC takes three times as long
# (benchmarks/results/blocks.md). With more coordinates, one metric for each particle would need too
# much memory.
FLAT_UP_TO = 12
# Moves of a second look: enough to detect a drift, and to reach a mode by quenching.
ROAMING_MOVES = 8
FALLING_MOVES = 5
FALLING_LEAPFROG = 3


def over_islands(function: Any, *args: Any, path: Path, power: Array, own: Any = None) -> Any:
    """Call ``function(target, own, ...)`` for every particle of every island.

    Arguments have islands and particles as their first axes. The target belongs to the island, and
    so does the entry of ``own``, whose first axis is the island.
    """
    by_rows = path.model.log_likelihood is not None
    apart = bool(jax.tree_util.tree_leaves(path.axes))
    if by_rows and not apart and path.model.dimension <= FLAT_UP_TO:
        return _over_all(partial(function, path.target(power)), own, args)

    def island(path: Path, own: Any, *args: Any) -> Any:
        target = path.target(power)
        return jax.vmap(lambda *particle: function(target, own, *particle))(*args)

    axes = (path.axes, None if own is None else 0, *(0 for _ in args))
    return jax.vmap(island, in_axes=axes)(path, own, *args)


def _over_all(function: Any, own: Any, args: tuple[Any, ...]) -> Any:
    """Call ``function(own, ...)`` for all particles, with islands and particles as one axis."""
    shape = jax.tree_util.tree_leaves(args)[0].shape[:2]
    args = jax.tree_util.tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), args)
    each = jax.tree_util.tree_map(lambda leaf: jnp.repeat(leaf, shape[1], axis=0), own)
    found = jax.vmap(function, in_axes=(None if own is None else 0, *(0 for _ in args)))(
        each, *args
    )
    return jax.tree_util.tree_map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), found)


def particle_keys(keys: Array, num_particles: int) -> Array:
    """One key for each particle, islands x particles."""
    return jax.vmap(lambda key: jax.random.split(key, num_particles))(keys)


def average(info: Any, counted: Array) -> Any:
    """Average of every leaf over the particles in ``counted``."""
    total = jnp.maximum(jnp.sum(counted, axis=1), 1)
    return jax.tree_util.tree_map(
        lambda leaf: jnp.sum(jnp.where(counted, jnp.nan_to_num(leaf), 0.0), axis=1) / total, info
    )


@partial(
    register_dataclass,
    data_fields=["kernel", "num_moves", "rows_past", "rows_chunk"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Repeat:
    """A kernel that is applied a fixed number of times, with step sizes for the number of rows.

    Attributes:
        kernel: with step sizes for one row.
        num_moves: how often it is applied.
        rows_past: number of past rows. At power lambda the kernel is rescaled to variances
            1 / (rows_past + lambda rows_chunk).
        rows_chunk: number of rows of the chunk.
    """

    kernel: Kernel
    num_moves: Array | int
    rows_past: Array | float = 1.0
    rows_chunk: Array | float = 0.0

    def move(self, key_data: np.ndarray, cloud: Cloud, path: Path, power: float) -> Moved:
        """Move every particle; the info is averaged over the second half of the moves."""
        alive = np.isfinite(cloud.log_weight)
        moved, info, stable = REPEATED.for_numbers(path.num_numbers)(
            self, key_data, cloud.position, alive, path, power
        )
        info = jax.tree_util.tree_map(np.asarray, info)
        return Moved(np.asarray(moved), info, self, np.asarray(stable))


def _repeated(
    repeat: Repeat, key_data: Array, position: Array, alive: Array, path: Path, power: Array
) -> tuple[Array, Any, Array]:
    """All moves of all particles: positions, averaged info, and which did not diverge."""
    keys = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    kernel = repeat.kernel.rescale(1.0 / (repeat.rows_past + power * repeat.rows_chunk))
    num_moves = repeat.num_moves
    first = num_moves // 2

    def move_one(target: Target, _: None, key: Array, position: Array) -> tuple[Array, Any]:
        state = kernel.init(position, target)
        shape = jax.eval_shape(kernel.step, key, state, target)[1]
        zero = jax.tree_util.tree_map(lambda leaf: jnp.zeros(leaf.shape), shape)

        def body(index: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            state, total = carry
            state, info = kernel.step(jax.random.fold_in(key, index), state, target)
            share = jnp.where(index >= first, 1.0 / (num_moves - first), 0.0)
            add = lambda sum_, leaf: sum_ + share * leaf  # noqa: E731
            return state, jax.tree_util.tree_map(add, total, info)

        state, info = jax.lax.fori_loop(0, num_moves, body, (state, zero))
        return state.position, info

    each = particle_keys(keys, position.shape[1])
    moved, info = over_islands(move_one, each, position, path=path, power=power)
    # Diverged moves will be undone: leave them out of the average.
    stable = stable_moves(path, power, position, moved)
    permitted = path.permits(position, moved)
    moved = jnp.where(permitted[..., None], moved, position)
    return moved, average(info, stable & alive), stable


REPEATED = EitherProgram(_repeated)


@partial(register_dataclass, data_fields=[], meta_fields=[])
@dataclass(frozen=True)
class Stay:
    """A mover that leaves the particles where they are."""

    def move(self, key_data: np.ndarray, cloud: Cloud, path: Path, power: float) -> Moved:
        """The positions, unchanged."""
        return Moved(cloud.position, (), self)


@partial(
    register_dataclass,
    data_fields=[
        "step_size",
        "num_moves",
        "trajectory",
        "target_acceptance",
        "max_moves",
        "decorrelated",
        "max_leapfrog",
        "spread",
    ],
    meta_fields=["dense"],
)
@dataclass(frozen=True)
class AdaptiveHMC(Adaptive):
    r"""HMC with a metric from the particles, and with enough moves to decorrelate them.

    The metric of an island is the covariance of particles of other islands, shrunk towards its
    diagonal. A metric from the island's own particles would not leave its target invariant.
    In the coordinates of the metric a trajectory is about a quarter turn, of varying length. If the
    target has a guide (see ``Target.guide``), the trajectory follows the guide. The step size is
    tuned to the acceptance after each move. The number of moves is the number that, at the previous
    power, would have lowered the correlation with the start to ``decorrelated``, or to its limit if
    that is higher. It is fixed before the moves: stopping when the particles look right would
    select particles and cause a bias.
    Buchholz, Chopin & Jacob (2021), Bayesian Analysis 16:745-771.

    Attributes:
        step_size: leapfrog step in units of the particles' spread.
        num_moves: number of moves at the next power.
        trajectory: length of a trajectory, in units of the particles' spread.
        target_acceptance: acceptance to which the step size is tuned.
        max_moves: largest number of moves.
        decorrelated: correlation to reach, of the part that decays; a smaller value means more
            moves. 0: always ``max_moves``, and the correlation is not measured.
        max_leapfrog: largest number of steps of a trajectory. If the step must be very small, as
            between separate modes, longer trajectories cost more than they gain.
        spread: the step size of each particle is multiplied by a random factor between e^-spread
            and 1 in each move; a value above 0 helps where the density is narrower than elsewhere.
        dense: whether the metric has correlations. If so, it is a full matrix, or a diagonal and a
            few directions if there are many parameters and fewer than 4 particles for each. If not,
            it is a diagonal.
    """

    step_size: Number = 0.5
    num_moves: Number = 4
    trajectory: Number = 1.6
    target_acceptance: Number = 0.8
    max_moves: Number = 10
    decorrelated: float = 0.1
    max_leapfrog: Number = 16
    spread: Number = 0.0
    dense: bool = True

    def has_matrix(self, dimension: int, num_particles: int) -> bool:
        """Whether the metric is a full matrix, and not a diagonal with a few directions."""
        return self.dense and not has_few_particles(dimension, num_particles)

    def setting(self, cloud: Cloud, population: Cloud) -> Setting:
        """The metric, of low rank if the particles do not support a full matrix."""
        num_islands, num_particles, dimension = population.position.shape
        if not self.dense or self.has_matrix(dimension, num_islands * num_particles):
            return super().setting(cloud, population)
        scale = others_low_rank(population)
        # Without any direction a diagonal does the same in less time.
        simplest = scale if np.any(scale.stretch != 1.0) else scale.diagonal
        return Setting(simplest, np.isfinite(cloud.log_weight))

    def start(self, position: Array, path: Path, power: Array) -> Any:
        """Evaluate the density and its gradient."""

        def begin(target: Target, _: None, position: Array) -> Any:
            return evaluate(position, target, target.guide())

        return over_islands(begin, position, path=path, power=power)

    def advance(
        self, key: Array, index: Array, tally: Tally, setting: Setting, path: Path, power: Array
    ) -> Tally:
        """One trajectory of all particles."""
        state, step_size = tally.state, tally.step_size
        shape = state.position.shape
        uniform = jax.random.uniform(jax.random.fold_in(key, index), (*shape[:2], shape[2] + 2))
        # Equidistributed lengths from 0.6 to 1.2 of the trajectory (a Weyl sequence).
        stretch = 0.6 + 0.6 * jnp.mod(0.6180339887498949 * (index + 1), 1.0)
        trajectory = jnp.minimum(self.trajectory / step_size, self.max_leapfrog / 1.2)
        count = jnp.clip(jnp.ceil(stretch * trajectory), 1, self.max_leapfrog).astype(int)

        def step(target: Target, scale: Scale, uniform: Array, state: Any) -> Any:
            own_step = step_size * jnp.exp(-self.spread * uniform[-1])
            kernel = HMC(own_step, count, scale)
            return kernel.step_with(uniform[:-1], state, target, target.guide())

        scale, alive = setting
        state, info = over_islands(step, uniform, state, path=path, power=power, own=scale)
        acceptance = pooled(info.acceptance, alive)
        # If the guide differs from the target, some moves are rejected at any step size: with an
        # energy difference of variance 2 s^2 the acceptance is erfc(s / 2).
        wanted = self.target_acceptance * erfc(0.5 * jnp.sqrt(path.target(power).guide_noise()))
        step_size = step_size * jnp.exp(acceptance - wanted)
        return Tally(
            state,
            jnp.clip(step_size, 1e-4, 2.0),
            tally.acceptance + acceptance,
            tally.divergent + pooled(info.divergent, alive),
            tally.middle,
        )

    def first_step_size(self) -> Number:
        """The tuned step size."""
        return self.step_size

    def most_moves(self, dimension: int) -> Number:
        """The largest number of moves, in any dimension."""
        return self.max_moves

    def tuned(self, step_size: Number, num_moves: Number) -> AdaptiveHMC:
        """The mover for the next power."""
        return replace(self, step_size=step_size, num_moves=num_moves)

    def roaming(self, dimension: int) -> AdaptiveHMC:
        """Moves with steps of many sizes, which reach regions that the usual moves may miss."""
        num_moves = np.minimum(np.asarray(self.max_moves), ROAMING_MOVES)
        return replace(self, num_moves=num_moves, spread=3.0)

    def falling(self) -> AdaptiveHMC:
        """A few short moves, for quenching: particles need not decorrelate."""
        moves, leapfrog = FALLING_MOVES, FALLING_LEAPFROG
        # Always as many moves: how far they decorrelate is not measured.
        return replace(
            self, num_moves=moves, max_moves=moves, max_leapfrog=leapfrog, decorrelated=0.0
        )
