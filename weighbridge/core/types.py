"""What every room agrees on: arrays, pytrees, log densities and kernels."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import jax

Array = jax.Array


PyTree = Any


@runtime_checkable
class LogDensity(Protocol):
    """A log density that can be called, and a pytree: what changes while sampling is a leaf."""

    def __call__(self, position: Array) -> Array:
        """Log density at an unconstrained position, up to a constant."""
        ...

    def subsample(self, step: Array) -> LogDensity:
        """The same density on the mini-batch of this step; an exact target returns itself."""
        ...

    def gradient_variance(self, position: Array) -> Array:
        """Variance, per coordinate, of the gradient over mini-batches; zero if exact."""
        ...


@runtime_checkable
class Kernel(Protocol):
    """One Markov move. A kernel is a pytree whose numeric fields are leaves."""

    uses_batches: ClassVar[bool]
    """Whether every step asks the target for a fresh mini-batch."""

    def init(self, position: Array, target: LogDensity) -> Any:
        """The state at a position: what the next step needs."""
        ...

    def step(self, key: Array, state: Any, target: LogDensity) -> tuple[Any, Any]:
        """One move: the new state, and the info that a diagnostic reads."""
        ...

    def rescale(self, variance: Array | float) -> Kernel:
        """The same kernel for a target whose variances are this many times as large."""
        ...
