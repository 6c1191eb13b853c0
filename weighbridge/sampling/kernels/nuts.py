"""The no-U-turn sampler, and its variant with the virial criterion."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from weighbridge.core.errors import MethodError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.hmc import HMCState, evaluate
from weighbridge.sampling.kernels.nuts_trees import TreeInfo, grow, num_uniform
from weighbridge.sampling.kernels.parts.u_turn import (
    ClassicUTurn,
    Criterion,
    GeneralisedUTurn,
    Virial,
)


class _Dynamic(Kernel):
    """Base of kernels with trajectories of variable length."""

    step_size: float | Array
    scale: float | Array
    max_depth: int

    target_acceptance: ClassVar[float | None] = 0.8

    @abstractmethod
    def _criterion(self) -> Criterion:
        """When a trajectory ends."""

    def _check(self) -> None:
        if isinstance(self.max_depth, bool) or not isinstance(self.max_depth, int):
            raise MethodError(f"max_depth must be a whole number, not {self.max_depth!r}.")
        if not 1 <= self.max_depth <= 20:
            raise MethodError(
                f"max_depth must lie between 1 and 20, not {self.max_depth}: a trajectory has up "
                "to 2^max_depth points."
            )

    def init(self, position: Array, target: LogDensity) -> HMCState:
        """Evaluate the target and its gradient at the position."""
        return evaluate(position, target)

    def step(self, key: Array, state: HMCState, target: LogDensity) -> tuple[HMCState, TreeInfo]:
        """Simulate one trajectory and choose a point on it."""
        count = num_uniform(state.position.shape[0], self.max_depth)
        return grow(
            jax.random.uniform(key, (count,)),
            state,
            target,
            step_size=self.step_size,
            scale=self.scale,
            criterion=self._criterion(),
            max_depth=self.max_depth,
        )


@partial(
    register_dataclass,
    data_fields=["step_size", "scale"],
    meta_fields=["max_depth", "criterion"],
)
@dataclass(frozen=True)
class NUTS(_Dynamic):
    r"""Follow Hamiltonian dynamics until the trajectory turns back, and choose a point of it.

    The trajectory doubles, forwards or backwards in time at random, until its ends or those of one
    of its halves turn back. A point of it is drawn with probability proportional to e^{-H}, with a
    preference for later halves. Hoffman & Gelman (2014), J. Mach. Learn. Res. 15:1593-1623;
    Betancourt (2017), arXiv:1701.02434.

    Args:
        step_size: length of a leapfrog step; tuned by the warm-up of ``wb.sample``.
        scale: the square root S of the inverse mass, M^-1 = S S^T: one number, one for each
            coordinate, or a (Cholesky) matrix; also learned by the warm-up.
        max_depth: largest number of doublings.
        criterion: "generalised" (by the summed momentum, with the checks across subtrees of current
            Stan) or "classic" (by the distance between the ends).

    >>> import jax, jax.numpy as jnp
    >>> density = lambda u: -0.5 * jnp.sum(u**2)
    >>> kernel = NUTS(0.5)
    >>> state, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(2), density), density)
    >>> state.position.shape, int(info.num_leapfrog) < 32
    ((2,), True)
    """

    step_size: float | Array = 0.1
    scale: float | Array = 1.0
    max_depth: int = 10
    criterion: Literal["generalised", "classic"] = "generalised"

    def __post_init__(self) -> None:
        self._check()
        if self.criterion not in ("generalised", "classic"):
            raise MethodError(
                f'criterion must be "generalised" or "classic", not {self.criterion!r}. For the '
                "virial use wb.XHMC."
            )

    def _criterion(self) -> Criterion:
        return ClassicUTurn() if self.criterion == "classic" else GeneralisedUTurn()

    def rescale(self, variance: Array | float) -> NUTS:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, step_size=self.step_size * jnp.sqrt(variance))


@partial(
    register_dataclass,
    data_fields=["step_size", "scale", "threshold"],
    meta_fields=["max_depth"],
)
@dataclass(frozen=True)
class XHMC(_Dynamic):
    r"""Exhaustive HMC: follow Hamiltonian dynamics until the mean of the virial is small.

    Like ``NUTS``, with another stopping rule: see ``Virial``. Betancourt (2016), arXiv:1601.00225.

    Args:
        step_size: length of a leapfrog step; tuned by the warm-up of ``wb.sample``.
        scale: the square root S of the inverse mass, as in ``NUTS``.
        threshold: delta; a smaller value makes longer trajectories.
        max_depth: largest number of doublings.

    >>> import jax, jax.numpy as jnp
    >>> density = lambda u: -0.5 * jnp.sum(u**2)
    >>> kernel = XHMC(0.5)
    >>> state, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(2), density), density)
    >>> bool(info.tree_depth >= 1)
    True
    """

    step_size: float | Array = 0.1
    scale: float | Array = 1.0
    threshold: float | Array = 0.1
    max_depth: int = 10

    def __post_init__(self) -> None:
        self._check()

    def _criterion(self) -> Criterion:
        return Virial(self.threshold)

    def rescale(self, variance: Array | float) -> XHMC:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, step_size=self.step_size * jnp.sqrt(variance))
