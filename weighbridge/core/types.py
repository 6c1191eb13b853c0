"""Types that all rooms use: arrays, pytrees, log densities and kernels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax

Array = jax.Array


PyTree = Any

# A progress callback: usually of the power reached (1 is the end), log Z so far, and the number of
# steps; a method may have other numbers, see ``BatchMethod.report_to``.
Report = Callable[..., None]


@runtime_checkable
class LogDensity(Protocol):
    """A callable log density that is a pytree; what changes while sampling is a leaf."""

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

    Kernels are subclasses and inherit the defaults defined here.
    """

    uses_batches: ClassVar[bool] = False
    """Whether every step asks the target for a fresh mini-batch."""

    ensemble: ClassVar[bool] = False
    """Whether a position is a whole ensemble, walkers x coordinates."""

    target_acceptance: ClassVar[float | None] = None
    """The acceptance to which a warm-up tunes the field ``step_size``; None for no tuning."""

    @property
    def uses_gradient(self) -> bool:
        """Whether a step differentiates the target."""
        return True

    @property
    def num_adapt(self) -> Any:
        """Number of steps in which the kernel adapts itself; draws are taken after them."""
        return 0

    def tunable(self) -> tuple[Kernel, ...]:
        """The kernels whose step size a warm-up tunes: the kernel itself, or its parts."""
        return () if self.target_acceptance is None else (self,)

    def with_tunable(self, kernels: tuple[Kernel, ...]) -> Kernel:
        """The same kernel with these in place of the kernels of ``tunable``."""
        return kernels[0] if kernels else self

    def tunable_acceptance(self, info: Any) -> tuple[tuple[Any, Any], ...]:
        """For each kernel of ``tunable``: its acceptance in this step, and whether it was used."""
        return tuple((info.acceptance, True) for _ in self.tunable())

    @abstractmethod
    def init(self, position: Array, target: LogDensity) -> Any:
        """The state at a position; it holds what the next step needs."""
        ...

    @abstractmethod
    def step(self, key: Array, state: Any, target: LogDensity) -> tuple[Any, Any]:
        """One move: the new state, and the info for diagnostics."""
        ...

    @abstractmethod
    def rescale(self, variance: Array | float) -> Kernel:
        """The same kernel, adjusted to a target whose variances are larger by this factor."""
        ...
