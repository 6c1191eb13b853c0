"""Movers without gradients, and movers by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax

from weighbridge.core.errors import MethodError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.thresholds import MIN_WALK_ACCEPTANCE
from weighbridge.core.types import Array, Kernel
from weighbridge.estimators.annealing.moves.adaptive import Adaptive, Number, Setting, Tally, pooled
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC, Repeat, Stay
from weighbridge.estimators.annealing.moves.mover import Mover
from weighbridge.estimators.annealing.path import Path
from weighbridge.sampling.kernels.ensemble import Stretch
from weighbridge.sampling.kernels.metropolis import Metropolis
from weighbridge.sampling.kernels.parts.dialogue import Lift, Point, Walker, converse
from weighbridge.sampling.kernels.slice import Slice

# Number of moves at each power of a kernel given by the user, as in SGAIS.
REPEATED_MOVES = 20


@partial(
    register_dataclass,
    data_fields=["kernel", "num_moves", "decorrelated", "max_moves"],
    meta_fields=["dense"],
)
@dataclass(frozen=True)
class AdaptiveWalk(Adaptive):
    """Moves without gradients, in the metric of the particles, enough to decorrelate them.

    Metric and number of moves are found as in ``AdaptiveHMC``. The step size of the kernel is
    tuned after each move. The moves only need the log-likelihood of the model, at many positions
    at a time.

    Attributes:
        kernel: ``Metropolis``, ``Slice`` or ``Stretch``, with a step size in units of the
            particles' spread. ``Stretch`` uses the other particles of an island for its proposals;
            with more than a few dimensions it is the slowest of the three.
        num_moves: number of moves at the next power.
        decorrelated: correlation to reach.
        max_moves: largest number of moves; by default 25 + 5 x dimension, because a random walk
            needs about 3.5 moves for each dimension.
        dense: whether the metric is a full matrix or a diagonal.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(50, seed=1)
    >>> method = wb.SMC(moves=AdaptiveWalk(wb.Slice(along="coordinates"), max_moves=10))
    >>> result = wb.evidence(wb.zoo.gaussian.model(), data, method)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 5 * result.std_error
    True
    """

    kernel: Walker
    num_moves: Number = 10
    decorrelated: float = 0.1
    max_moves: Number | None = None
    dense: bool = True

    low_acceptance: ClassVar[float] = MIN_WALK_ACCEPTANCE

    def start(self, position: Array, path: Path, power: Array) -> Point:
        """Evaluate the density."""
        return evaluate(path, power, position)

    def advance(
        self, key: Array, index: Array, tally: Tally, setting: Setting, path: Path, power: Array
    ) -> Tally:
        """One move of all particles; the program computes the log density where it is needed."""
        walk = self.propose(key, index, tally, setting)
        walk = converse(walk, partial(evaluate, path, power), self.lift)
        return self.settle(walk, tally, setting)

    @property
    def lift(self) -> Lift:
        """Maps a function of one move over islands and, except for ensembles, over particles."""
        return jax.vmap if self.kernel.ensemble else lambda call: jax.vmap(jax.vmap(call))

    def propose(self, key: Array, index: Array, tally: Tally, setting: Setting) -> Any:
        """Begin a move of all particles; all random numbers are drawn together."""
        point = tally.state
        kernel = replace(self.kernel, step_size=tally.step_size)  # type: ignore[type-var]
        alone = 1 if kernel.ensemble else 2
        shape = point.position.shape
        count = kernel.num_uniform(shape[alone:])
        uniform = jax.random.uniform(jax.random.fold_in(key, index), (*shape[:alone], count))

        def island(scale: Any, uniform: Array, point: Point) -> Any:
            begin = kernel.in_metric(scale).begin
            return (begin if kernel.ensemble else jax.vmap(begin))(uniform, point)

        return jax.vmap(island)(setting.scale, uniform, point)

    def settle(self, walk: Any, tally: Tally, setting: Setting) -> Tally:
        """End a move that needs no more values, and tune the step size."""
        point, info = self.lift(lambda walk: walk.finish())(walk)
        mean = jax.tree_util.tree_map(lambda leaf: pooled(leaf, setting.alive), info)
        kernel = replace(self.kernel, step_size=tally.step_size)  # type: ignore[type-var]
        tuned = kernel.tuned(mean, point.position.shape[-1])
        acceptance = tally.acceptance + mean.acceptance
        return Tally(point, tuned.step_size, acceptance, tally.divergent, tally.middle)

    def first_step_size(self) -> Number:
        """The tuned step size."""
        step_size: Number = self.kernel.step_size
        return step_size

    def most_moves(self, dimension: int) -> Number:
        """The default grows with the dimension, as a random walk requires."""
        return 25 + 5 * dimension if self.max_moves is None else self.max_moves

    def tuned(self, step_size: Number, num_moves: Number) -> AdaptiveWalk:
        """The mover for the next power."""
        kernel = replace(self.kernel, step_size=step_size)  # type: ignore[type-var]
        return replace(self, kernel=kernel, num_moves=num_moves)


def evaluate(path: Path, power: Array, position: Array) -> Point:
    """The log density of every particle; the note of a point is the chunk's log-likelihood."""

    def at(path: Path, position: Array) -> Point:
        parameters, log_density = path.model.transform(position)
        for term in path.past:
            log_density = log_density + term(path.model, position, parameters)
        log_likelihood = path.chunk(path.model, position, parameters)
        return Point(position, log_density + power * log_likelihood, log_likelihood)

    return jax.vmap(jax.vmap(at, in_axes=(None, 0)), in_axes=(path.axes, 0))(path, position)


# --- movers by name ----------------------------------------------------------------------


def _random_walk(dimension: int) -> AdaptiveWalk:
    return AdaptiveWalk(Metropolis(2.38 / dimension**0.5), 8 + 2 * dimension)


def _slice(dimension: int) -> AdaptiveWalk:
    return AdaptiveWalk(Slice(), 4 + 2 * dimension)


def _stretch(dimension: int) -> AdaptiveWalk:
    return AdaptiveWalk(Stretch(), 8 + 2 * dimension)


MOVES: dict[str, Callable[[int], Adaptive]] = {
    "hmc": lambda dimension: AdaptiveHMC(),
    "random_walk": _random_walk,
    "slice": _slice,
    "stretch": _stretch,
}
DEFAULT_MOVES = AdaptiveHMC()

Moves = str | Kernel | Mover


def check_moves(moves: object) -> None:
    """Refuse anything but a mover, a kernel or the name of a mover."""
    if isinstance(moves, str) and moves not in MOVES:
        raise MethodError(f"There are no moves {moves!r}; there are {list(MOVES)}.")
    if moves is not None and not isinstance(moves, str | Kernel | Mover):
        raise MethodError(
            f"moves must be one of {list(MOVES)}, a mover such as wb.AdaptiveHMC(), or a kernel "
            f"such as wb.SGHMC(), not {moves!r}."
        )
    if isinstance(moves, Kernel) and moves.ensemble:
        raise MethodError(
            'Stretch needs the other particles for its proposals: use moves="stretch", or '
            "wb.AdaptiveWalk(wb.Stretch(...))."
        )


def choose_mover(
    moves: Moves | None,
    dimension: int,
    num_rows: int,
    *,
    on_host: bool,
    default: AdaptiveHMC = DEFAULT_MOVES,
) -> Mover:
    """The mover for a model: by name, a repeated kernel, a mover itself, or the default.

    The default for a likelihood in plain Python, which has no gradient, is a random walk. Movers by
    name have the same ``decorrelated`` as the default. A kernel has step sizes for one row, and is
    rescaled to the number of rows.
    """
    if moves is None:
        moves = "random_walk" if on_host else default
    if isinstance(moves, str):
        named: Any = MOVES[moves](dimension)
        mover: Mover = replace(named, decorrelated=default.decorrelated)
    elif isinstance(moves, Kernel):
        mover = Repeat(moves, REPEATED_MOVES, rows_past=1.0, rows_chunk=float(num_rows))
    else:
        mover = moves
    if on_host and not isinstance(mover, AdaptiveWalk | Stay):
        raise MethodError(
            "The total_log_likelihood of this model runs on the host, outside JAX, and has no "
            'gradient there: use moves="random_walk", "slice" or "stretch", or write it with '
            "jax.numpy."
        )
    return mover


def needs_gradient(mover: Mover) -> bool:
    """Whether a mover differentiates the log-likelihood."""
    if isinstance(mover, Repeat):
        return not hasattr(mover.kernel, "begin")
    return not isinstance(mover, AdaptiveWalk | Stay)


def require_walkers(mover: Mover, num_particles: int, dimension: int) -> None:
    """Refuse an ensemble with too few particles: its moves would stay in a subspace."""
    ensemble = isinstance(mover, AdaptiveWalk) and mover.kernel.ensemble
    if ensemble and num_particles < 2 * dimension + 2:
        raise MethodError(
            f"Stretch moves in {dimension} dimensions need {2 * dimension + 2} particles in each "
            f"island or more, and {num_particles} move at a time: raise num_particles, or use "
            'moves="random_walk" or "slice".'
        )
