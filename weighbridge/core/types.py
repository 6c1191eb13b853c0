"""What every room agrees on: arrays, pytrees, log densities and kernels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax

Array = jax.Array


PyTree = Any

# Told how far a method is: the power reached (1 is the end), log Z so far, the number of steps.
Report = Callable[[float, float, int], None]


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
    """One Markov move. A kernel is a pytree whose numeric fields are leaves.

    Kernels are subclasses, which have the defaults that stand here and no others.
    """

    uses_batches: ClassVar[bool] = False
    """Whether every step asks the target for a fresh mini-batch."""

    ensemble: ClassVar[bool] = False
    """Whether a position is a whole ensemble, walkers x coordinates."""

    target_acceptance: ClassVar[float | None] = None
    """The acceptance that a warm-up tunes the field ``step_size`` to; None if it does not."""

    @property
    def uses_gradient(self) -> bool:
        """Whether a step differentiates the target."""
        return True

    @property
    def num_adapt(self) -> Any:
        """Steps in which the kernel learns by itself: draws come after them."""
        return 0

    def tunable(self) -> tuple[Kernel, ...]:
        """The kernels whose step size a warm-up tunes: itself, or those that it is made of."""
        return () if self.target_acceptance is None else (self,)

    def with_tunable(self, kernels: tuple[Kernel, ...]) -> Kernel:
        """The same kernel with these in place of those of ``tunable``."""
        return kernels[0] if kernels else self

    def tunable_acceptance(self, info: Any) -> tuple[tuple[Any, Any], ...]:
        """Acceptance of each kernel of ``tunable`` in a step, and whether it moved at all."""
        return tuple((info.acceptance, True) for _ in self.tunable())

    @abstractmethod
    def init(self, position: Array, target: LogDensity) -> Any:
        """The state at a position: what the next step needs."""
        ...

    @abstractmethod
    def step(self, key: Array, state: Any, target: LogDensity) -> tuple[Any, Any]:
        """One move: the new state, and the info that a diagnostic reads."""
        ...

    @abstractmethod
    def rescale(self, variance: Array | float) -> Kernel:
        """The same kernel for a target whose variances are this many times as large."""
        ...
