"""Movers with fixed tuning, and movers that record their tuning for later.

Moves that are tuned by the particles which they move cause a bias. Unbiased estimates, and bounds
that need them, use the tuning of a pilot run instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import EitherProgram
from weighbridge.core.errors import MethodError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.moves.adaptive import Adaptive, Setting, Tally
from weighbridge.estimators.annealing.moves.kernels import Repeat
from weighbridge.estimators.annealing.moves.mover import Moved, Mover
from weighbridge.estimators.annealing.moves.scales import particle_scale
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
    scale: np.ndarray
    backward: Array | bool = False

    def move(self, key_data: np.ndarray, cloud: Cloud, path: Path, power: float) -> Moved:
        """Move all particles; the info is the mean acceptance."""
        scale = np.broadcast_to(self.scale, (len(cloud.position), *np.shape(self.scale)))
        setting = Setting(scale, np.isfinite(cloud.log_weight))
        moved, acceptance = FROZEN.for_numbers(path.num_numbers)(
            self, key_data[0], cloud.position, setting, path, power
        )
        return Moved(np.asarray(moved), np.asarray(acceptance), self)


def _frozen(
    frozen: Frozen, key_data: Array, position: Array, setting: Setting, path: Path, power: Array
) -> tuple[Array, Array]:
    """All moves of all particles, in either order: positions and mean acceptance."""
    key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    mover: Adaptive = frozen.mover
    first = mover.begin(mover.start(position, path, power))

    def body(index: Array, tally: Tally) -> Tally:
        turn = jnp.where(frozen.backward, mover.num_moves - 1 - index, index)
        tally = mover.advance(key, turn, tally, setting, path, power)
        return tally._replace(step_size=first.step_size)

    last = jax.lax.fori_loop(0, mover.num_moves, body, first)
    return last.state.position, last.acceptance / mover.num_moves


FROZEN = EitherProgram(_frozen)


@partial(register_dataclass, data_fields=["mover"], meta_fields=[])
@dataclass(frozen=True)
class Recorded:
    """A mover that also records, at every power, a frozen mover with its tuning."""

    mover: Any

    def move(self, key_data: np.ndarray, cloud: Cloud, path: Path, power: float) -> Moved:
        """Move; the info is the frozen mover of this power."""
        moved: Moved = self.mover.move(key_data, cloud, path, power)
        frozen = self.mover
        if isinstance(self.mover, Adaptive):
            # The number of moves of this power, and the step size after tuning.
            step_size, num_moves = moved.mover.first_step_size(), np.asarray(self.mover.num_moves)
            scale = particle_scale(cloud, dense=self.mover.dense)
            frozen = Frozen(self.mover.tuned(step_size, num_moves), scale)
        return moved._replace(info=frozen, mover=replace(self, mover=moved.mover))


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
