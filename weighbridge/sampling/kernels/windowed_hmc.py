"""Hamiltonian Monte Carlo that chooses among the states of a trajectory, by windows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.errors import MethodError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.hmc import DIVERGENCE, HMCState, evaluate
from weighbridge.sampling.kernels.parts.accept import select, standard_normal
from weighbridge.sampling.kernels.parts.leapfrog import leapfrog
from weighbridge.sampling.kernels.parts.proposals import key_from


class WindowedHMCInfo(NamedTuple):
    """Facts about a trajectory.

    Attributes:
        acceptance: mean of min(1, exp(H_start - H)) over the trajectory; used to tune the step
            size, because the choice itself may always move.
        accepted: whether a state other than the start was chosen.
        energy: H of the chosen state.
        divergent: whether the energy error became too large on the trajectory.
    """

    acceptance: Array
    accepted: Array
    energy: Array
    divergent: Array


class WindowSoFar(NamedTuple):
    """States of a window so far: log of their total weight, and the one chosen among them."""

    log_weight: Array
    score: Array
    gain: Array
    place: Array
    state: HMCState

    def enter(self, seen: WindowSoFar, inside: Array) -> WindowSoFar:
        """Add one state, if it is inside; the largest score is chosen (Gumbel-max trick)."""
        log_weight = jnp.logaddexp(self.log_weight, seen.log_weight)
        log_weight = jnp.where(inside, log_weight, self.log_weight)
        better = inside & (seen.score > self.score)
        return select(better, seen, self)._replace(log_weight=log_weight)


class Trajectory(NamedTuple):
    """The current state, both windows, and what the info needs."""

    state: HMCState
    momentum: Array
    first: WindowSoFar
    last: WindowSoFar
    acceptance: Array
    divergent: Array


@partial(
    register_dataclass,
    data_fields=["step_size", "num_leapfrog", "window", "scale", "jitter"],
    meta_fields=[],
)
@dataclass(frozen=True)
class WindowedHMC(Kernel):
    r"""Follow a trajectory both ways from the start, then choose a state from one of its ends.

    With L leapfrog steps there are states 0 to L. The start is at a place drawn uniformly from the
    first W of them. These W states are one window, the last W states are the other one:

    .. math::
        P(\text{last}) = \min\Bigl(1,
        \frac{\sum_{i > L - W} e^{-H_i}}{\sum_{i < W} e^{-H_i}}\Bigr), \qquad
        P(i | \text{window}) = \frac{e^{-H_i}}{\sum_{j \in \text{window}} e^{-H_j}}

    A window of one state is plain HMC. By default the window is the whole trajectory, and the
    choice is multinomial among all its states. Neal (1994), J. Comp. Phys. 111:194-203; Betancourt
    (2017), arXiv:1701.02434. (Some texts extend the trajectory to a random side and accept each
    state against the last one; this does not leave the target invariant.)

    Args:
        step_size: length of a leapfrog step.
        num_leapfrog: L, the number of leapfrog steps of a trajectory.
        window: W, from 1 to L + 1; None for L + 1, the whole trajectory.
        scale: the square root S of the inverse mass: one number, one for each coordinate, or a
            (Cholesky) matrix; a square root of the target's covariance is the best choice.
        jitter: each trajectory's step size is multiplied by a number drawn from 1 - jitter to 1 +
            jitter.

    >>> import jax, jax.numpy as jnp
    >>> kernel = WindowedHMC(0.3, 8, window=3)
    >>> density = lambda u: -0.5 * jnp.sum(u**2)
    >>> state = jax.jit(lambda start: kernel.init(start, density))(jnp.zeros(2))
    >>> state, info = jax.jit(lambda key: kernel.step(key, state, density))(jax.random.key(0))
    >>> state.position.shape, bool(info.divergent)
    ((2,), False)
    """

    step_size: float | Array = 0.1
    num_leapfrog: int | Array = 10
    window: int | Array | None = None
    scale: float | Array = 1.0
    jitter: float | Array = 0.0

    target_acceptance: ClassVar[float | None] = 0.8

    def __post_init__(self) -> None:
        if isinstance(self.window, int) and isinstance(self.num_leapfrog, int):
            most = self.num_leapfrog + 1
            if not 1 <= self.window <= most:
                raise MethodError(
                    f"window must be from 1 to num_leapfrog + 1 = {most}, or None for the whole "
                    f"trajectory, not {self.window}."
                )

    def init(self, position: Array, target: LogDensity) -> HMCState:
        """Evaluate the target and its gradient at the position."""
        return evaluate(position, target)

    def step(
        self, key: Array, state: HMCState, target: LogDensity
    ) -> tuple[HMCState, WindowedHMCInfo]:
        """One trajectory and the choice of a state on it."""
        dimension, length = state.position.shape[0], self.num_leapfrog
        uniform = jax.random.uniform(key, (dimension + 6,))
        momentum = standard_normal(uniform[:dimension])
        place, side, jitter, luck = uniform[dimension : dimension + 4]
        key = key_from(uniform[dimension + 4 :])
        step_size = self.step_size * (1 + self.jitter * (2 * jitter - 1))
        size = length + 1 if self.window is None else self.window
        start = jnp.floor(place * size).astype(int)
        energy = 0.5 * jnp.sum(momentum**2) - state.log_density
        none, is_last = jnp.zeros_like(energy), length - size

        def see(at: HMCState, gain: Array, luck: Array, index: Array) -> WindowSoFar:
            gumbel = -jnp.log(-jnp.log(luck + 2.0**-54))
            return WindowSoFar(gain, gain + gumbel, gain, index, at)

        def move(number: Array, path: Trajectory) -> Trajectory:
            # First forward to the end of the trajectory, then back from the start to its beginning.
            forth, turn = number < length - start, number == length - start
            at, momentum_at = select(turn, (state, momentum), (path.state, path.momentum))
            at, momentum_at = leapfrog(
                lambda position: evaluate(position, target),
                at,
                momentum_at,
                jnp.where(forth, step_size, -step_size),
                self.scale,
            )
            index = jnp.where(forth, start + number + 1, length - number - 1)
            gain = energy - (0.5 * jnp.sum(momentum_at**2) - at.log_density)
            gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
            number_luck = jax.random.uniform(jax.random.fold_in(key, number))
            seen = see(at, gain, number_luck, index)
            return Trajectory(
                at,
                momentum_at,
                path.first.enter(seen, index < size),
                path.last.enter(seen, index > is_last),
                path.acceptance + jnp.exp(jnp.minimum(gain, 0.0)),
                path.divergent | (gain < -DIVERGENCE),
            )

        first = see(state, none, luck, start)
        empty = first._replace(log_weight=none - jnp.inf, score=none - jnp.inf)
        last = empty.enter(first, start > is_last)
        path = Trajectory(state, momentum, first, last, none, none > 0)
        path = jax.lax.fori_loop(0, length, move, path)
        ratio = path.last.log_weight - path.first.log_weight
        chosen = select(side < jnp.exp(jnp.minimum(ratio, 0.0)), path.last, path.first)
        return chosen.state, WindowedHMCInfo(
            path.acceptance / length,
            chosen.place != start,
            energy - chosen.gain,
            path.divergent,
        )

    def rescale(self, variance: Array | float) -> WindowedHMC:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, step_size=self.step_size * jnp.sqrt(variance))
