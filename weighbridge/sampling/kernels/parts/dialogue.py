"""Moves that need only log densities, with an ask-and-tell interface.

A move in progress returns the position at which it needs the log density (``ask``) and receives the
value (``tell``), until it needs no more. So a move is written once: a compiled program evaluates
the density in a loop, and if the density is a function on the host that cannot be compiled, Python
does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp

from weighbridge.core.types import Array, Kernel


class Point(NamedTuple):
    """A position, the log density there, and other values that are kept with them."""

    position: Array
    log_density: Array
    note: Any = ()


class Walk(Protocol):
    """A move in progress: a pytree, so that a batch of moves is a pytree too."""

    @property
    def wanted(self) -> Array:
        """Whether each move needs another log density; false when the move has ended."""
        ...

    def ask(self) -> Array:
        """The position, or stack of positions, at which the log density is needed next."""
        ...

    def tell(self, told: Point) -> Self:
        """Continue with the log density; a move that has ended does not change."""
        ...

    def finish(self) -> tuple[Point, Any]:
        """The end of the move, and its info."""
        ...


class Beginner(Protocol):
    """A kernel with moves of this interface."""

    def num_uniform(self, shape: tuple[int, ...]) -> int:
        """Number of uniform numbers of a move, for a position of this shape."""
        ...

    def begin(self, uniform: Array, point: Any) -> Any:
        """The move for given uniform numbers."""
        ...


class Walker(Beginner, Kernel, Protocol):
    """A kernel without gradients that a population of particles can tune."""

    @property
    def step_size(self) -> Any:
        """The parameter that is tuned."""
        ...

    def in_metric(self, scale: Array) -> Self:
        """The same kernel with this scale, if it has a scale."""
        ...

    def tuned(self, info: Any, dimension: int) -> Self:
        """The kernel with a better step size, given the mean info of many moves."""
        ...


Lift = Callable[[Callable[..., Any]], Callable[..., Any]]


def converse(walk: Any, density: Callable[[Array], Point], lift: Lift = lambda call: call) -> Any:
    """Evaluate the log density for a move, or a batch, until it needs no more.

    Args:
        walk: a move, or a batch of them.
        density: maps the requested position to the answer.
        lift: maps a function of one move to a function of the batch.
    """
    ask, tell = lift(lambda walk: walk.ask()), lift(lambda walk, told: walk.tell(told))
    return jax.lax.while_loop(
        lambda walk: jnp.any(walk.wanted), lambda walk: tell(walk, density(ask(walk))), walk
    )


def step_alone(
    kernel: Beginner, key: Array, state: Any, density: Callable[[Array], Array]
) -> tuple[Any, Any]:
    """One move of a kernel without a batch: the new state, and its info."""
    uniform = jax.random.uniform(key, (kernel.num_uniform(state.position.shape),))
    walk = converse(kernel.begin(uniform, state), lambda asked: Point(asked, density(asked)))
    state, info = walk.finish()
    return state, info


def tuned_step_size(
    step_size: float | Array, acceptance: Array, dimension: int, largest: float
) -> Array:
    """A step size closer to the best acceptance of a random walk.

    The best acceptance is 0.44 in one dimension and 0.234 in many: Gelman, Roberts & Gilks (1996),
    Bayesian Statistics 5:599-607.
    """
    best = 0.234 + 0.206 / dimension
    return jnp.clip(step_size * jnp.exp(2 * (acceptance - best)), 1e-4, largest)
