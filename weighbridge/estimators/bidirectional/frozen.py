"""Movers with fixed tuning, and movers that record their tuning for later.

Moves that are tuned by the particles which they move cause a bias. Unbiased estimates, and bounds
that need them, use the tuning of a pilot run instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from weighbridge.core.errors import MethodError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.moves.adaptive import Adaptive, Setting, Tally, particle_scale
from weighbridge.estimators.annealing.moves.kernels import Repeat
from weighbridge.estimators.annealing.moves.mover import Mover
from weighbridge.estimators.annealing.path import Path


@partial(register_dataclass, data_fields=["mover", "scale", "backward"], meta_fields=[])
@dataclass(frozen=True)
class Frozen:
    """A mover with the tuning that was found at one power, now fixed.

    It leaves its target exactly invariant, and islands that use it are independent.

    Attributes:
        mover: a mover with the step size and the number of moves.
        scale: the metric, the same for all islands.
        backward: whether the moves come in reverse order; each single move is its own reversal.
    """

    mover: Any
    scale: Array
    backward: Array | bool = False

    adjusted: ClassVar[bool] = True

    def move(self, keys: Array, cloud: Cloud, path: Path, power: Array) -> tuple[Array, Any, Any]:
        """Move all particles; the info is the mean acceptance."""
        mover: Adaptive = self.mover
        num_islands = cloud.position.shape[0]
        scale = jnp.broadcast_to(self.scale, (num_islands, *jnp.shape(self.scale)))
        setting = Setting(scale, jnp.isfinite(cloud.log_weight))
        first = mover.begin(mover.start(cloud.position, path, power))

        def body(index: Array, tally: Tally) -> Tally:
            turn = jnp.where(self.backward, mover.num_moves - 1 - index, index)
            tally = mover.advance(keys[0], turn, tally, setting, path, power)
            return tally._replace(step_size=first.step_size)

        last = jax.lax.fori_loop(0, mover.num_moves, body, first)
        return last.state.position, last.acceptance / mover.num_moves, self


@partial(register_dataclass, data_fields=["mover"], meta_fields=[])
@dataclass(frozen=True)
class Recorded:
    """A mover that also records, at every power, a frozen mover with its tuning."""

    mover: Any

    @property
    def adjusted(self) -> bool:
        """Whether moves have an accept/reject test."""
        return bool(getattr(self.mover, "adjusted", False))

    def move(self, keys: Array, cloud: Cloud, path: Path, power: Array) -> tuple[Array, Any, Any]:
        """Move; the info is the frozen mover of this power."""
        moved, _, tuned = self.mover.move(keys, cloud, path, power)
        frozen = self.mover
        if isinstance(self.mover, Adaptive):
            # The number of moves of this power, and the step size after tuning.
            as_here = self.mover.tuned(tuned.first_step_size(), jnp.asarray(self.mover.num_moves))
            frozen = Frozen(as_here, particle_scale(cloud, dense=self.mover.dense))
        return moved, frozen, replace(self, mover=tuned)


def require_freezable(moves: Mover) -> None:
    """Refuse moves that cannot be frozen, or do not leave their target exactly invariant."""
    kernel: Any = getattr(moves, "kernel", None)
    # Particles of an ensemble are not independent chains: the mean of their weights is biased.
    together = isinstance(kernel, Kernel) and kernel.ensemble
    exact = isinstance(moves, Adaptive) or (isinstance(moves, Repeat) and not kernel.uses_batches)
    if together or not exact:
        raise MethodError(
            "Bounds need moves of single particles that leave their target exactly invariant and "
            'whose tuning can be frozen: moves="hmc", "random_walk" or "slice", or a kernel with '
            "an accept/reject test (HMC, Metropolis)."
        )


def reversed_moves(mover: Mover) -> Mover:
    """The time reversal of a frozen mover; a repeated reversible kernel is its own reversal."""
    return replace(mover, backward=True) if isinstance(mover, Frozen) else mover
