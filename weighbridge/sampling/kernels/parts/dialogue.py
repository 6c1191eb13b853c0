"""Moves that need nothing but log densities, as a dialogue.

A move under way says where it wants the log density next, and is told it, until it wants no more.
So a move is written once: a compiled program answers its questions in a loop, and where the density
is a function on the host that cannot be compiled, Python does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp

from weighbridge.core.types import Array, Kernel


class Point(NamedTuple):
    """A position, the log density there, and whatever else was told with it and is kept."""

    position: Array
    log_density: Array
    note: Any = ()


class Walk(Protocol):
    """A move under way: a pytree, so that a batch of moves is one too."""

    @property
    def wanted(self) -> Array:
        """Whether the answer to each question is wanted; none is once the move is over."""
        ...

    def ask(self) -> Array:
        """The position, or stack of positions, whose log density is wanted next."""
        ...

    def tell(self, told: Point) -> Self:
        """Go on with what was asked for; a move that is over does not change."""
        ...

    def finish(self) -> tuple[Point, Any]:
        """Where the move has ended, and its info."""
        ...


class Beginner(Protocol):
    """What begins moves that a dialogue ends."""

    def num_uniform(self, shape: tuple[int, ...]) -> int:
        """How many uniform numbers a move takes, for a position of this shape."""
        ...

    def begin(self, uniform: Array, point: Any) -> Any:
        """The move that follows from uniform numbers."""
        ...


class Walker(Beginner, Kernel, Protocol):
    """A kernel that needs no gradient, and that a population of particles can tune."""

    @property
    def step_size(self) -> Any:
        """What is tuned."""
        ...

    def in_metric(self, scale: Array) -> Self:
        """The same kernel with this scale, if it has one."""
        ...

    def tuned(self, info: Any, dimension: int) -> Self:
        """The kernel with a better step size, by the mean info of many moves."""
        ...


Lift = Callable[[Callable[..., Any]], Callable[..., Any]]


def converse(walk: Any, density: Callable[[Array], Point], lift: Lift = lambda call: call) -> Any:
    """Tell a move what it wants to know, until it wants no more.

    Args:
        walk: a move, or a batch of them.
        density: from what is asked to what is told.
        lift: maps a function of one move over the batch.
    """
    ask, tell = lift(lambda walk: walk.ask()), lift(lambda walk, told: walk.tell(told))
    return jax.lax.while_loop(
        lambda walk: jnp.any(walk.wanted), lambda walk: tell(walk, density(ask(walk))), walk
    )


def step_alone(
    kernel: Beginner, key: Array, state: Any, density: Callable[[Array], Array]
) -> tuple[Any, Any]:
    """One move of a kernel by itself: the new state, and its info."""
    uniform = jax.random.uniform(key, (kernel.num_uniform(state.position.shape),))
    walk = converse(kernel.begin(uniform, state), lambda asked: Point(asked, density(asked)))
    state, info = walk.finish()
    return state, info


def tuned_step_size(
    step_size: float | Array, acceptance: Array, dimension: int, largest: float
) -> Array:
    """A step size nearer to the best acceptance of a random walk.

    That is 0.44 in one dimension and 0.234 in many: Gelman, Roberts & Gilks (1996), Bayesian
    Statistics 5:599-607.
    """
    best = 0.234 + 0.206 / dimension
    return jnp.clip(step_size * jnp.exp(2 * (acceptance - best)), 1e-4, largest)
