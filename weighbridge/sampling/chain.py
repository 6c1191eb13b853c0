"""Markov chains: blocks of steps of one compiled program, with Stan's warm-up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import jax
import numpy as np

from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.types import Kernel
from weighbridge.models.targets.density import Target
from weighbridge.sampling.chain_steps import (
    DRAWING,
    Chain,
    Phase,
    advance,
    begin,
    find_step_size,
    has_metric,
    is_tunable,
)
from weighbridge.sampling.warmup.dual_averaging import DualAveraging
from weighbridge.sampling.warmup.metric import Spread
from weighbridge.sampling.warmup.settings import Warmup
from weighbridge.sampling.warmup.windows import plan_windows

# Limits of a block: its number of steps, the numbers in its draws, and its time in
# seconds, because an interrupt waits for the end of a block.
SMALLEST_BLOCK, LARGEST_BLOCK, BLOCK_NUMBERS = 64, 1024, 2**17
BLOCK_SECONDS = 0.2
# Number of initial positions tried in the cube [-2, 2]^D, as in Stan, before an error is raised.
START_TRIES = 100
START_WIDTH = 2.0


class ChainRun:
    """One chain on the host: its warm-up, its draws, and its state.

    Attributes:
        chain: its state between two steps, as NumPy or JAX arrays.
        num_done: number of steps so far, including warm-up and thinned steps.
        positions: blocks of draws.
        infos: blocks of their infos.
        energies: blocks of the moments of the energies of the steps before each draw.
    """

    def __init__(self, number: int, seed: int, target: Target, kernel: Kernel) -> None:
        self.number = number
        self.target = target
        self.num_done = 0
        self.num_divergent = 0
        self.positions: list[np.ndarray] = []
        self.infos: list[Any] = []
        self.energies: list[np.ndarray] = []
        self.chain = Chain(kernel, None, (), Spread.start(1, dense=False))
        self._seed = seed
        self._seconds_a_step = BLOCK_SECONDS / 8

    @property
    def num_draws(self) -> int:
        """Number of draws so far."""
        return sum(len(block) for block in self.positions)

    def start(self, initial: np.ndarray | None, num_walkers: int | None, warmup: Warmup) -> None:
        """Find a starting position."""
        kernel = self.chain.kernel
        dimension = self.target.model.dimension
        kernel = _with_step_sizes(kernel, [part.step_size for part in kernel.tunable()])
        if has_metric(kernel) and warmup.metric != "unit":
            kernel = replace(kernel, scale=_as_metric(kernel.scale, dimension, warmup))
        shape = (dimension,) if num_walkers is None else (num_walkers, dimension)
        kernel = jax.tree_util.tree_map(np.asarray, kernel)
        state = self._find_start(kernel, initial, shape)
        spread = Spread.start(dimension, dense=warmup.metric == "dense")
        self.chain = Chain(kernel, state, _averaging(kernel), spread, np.full((), np.nan))

    def _find_start(self, kernel: Any, initial: np.ndarray | None, shape: tuple[int, ...]) -> Any:
        generator = self._generator(Stream.STARTS)
        for _ in range(START_TRIES if initial is None else 1):
            drawn = generator.uniform(-START_WIDTH, START_WIDTH, shape)
            position = drawn if initial is None else initial
            state = begin(kernel, position, self.target)
            if all(bool(np.all(np.isfinite(leaf))) for leaf in jax.tree_util.tree_leaves(state)):
                return state
        where = f"any of {START_TRIES} positions within [-2, 2] of the unconstrained space"
        if initial is not None:
            where = f"the initial position of chain {self.number}"
        raise ModelError(
            f"The log density or its gradient is not finite at {where}. Check the model with "
            "wb.check_model, or give initial= positions where it is."
        )

    def warm_up(self, num_warmup: int, warmup: Warmup, go_on: Callable[[], bool]) -> bool:
        """Tune the kernel; False if the run was asked to stop."""
        if not num_warmup:
            return True
        kernel = self.chain.kernel
        if not kernel.tunable():
            return self._advance(num_warmup, DRAWING, go_on)
        wanted = warmup.target_acceptance or 0.0
        self._begin_tuning()
        windows = plan_windows(num_warmup)
        for number, window in enumerate(windows):
            learns = window.learns_metric and has_metric(kernel) and warmup.metric != "unit"
            if not is_tunable(kernel) and 0 < number < len(windows) - 1:
                # Kernels in blocks may start far from their target: restart the average from the
                # tuned values.
                self._take_average()
                self._begin_tuning()
            if not self._advance(window.length, Phase(True, learns, wanted), go_on):
                return False
            if learns:
                self._renew_metric()
        self._take_average()
        return True

    def _take_average(self) -> None:
        """Use the averaged step sizes."""
        chain = self.chain
        # A block of a random scan may not have been updated.
        sizes = [
            np.exp(np.asarray(averaging.log_average)) if averaging.num_updates else part.step_size
            for part, averaging in zip(chain.kernel.tunable(), chain.averaging)
        ]
        self.chain = chain._replace(kernel=_with_step_sizes(chain.kernel, sizes))

    def draw(self, num_draws: int, thin: int, go_on: Callable[[], bool]) -> bool:
        """Make draws and keep them; False if the run was asked to stop."""
        return self._advance(num_draws, DRAWING, go_on, thin=thin, kept=True)

    def _begin_tuning(self) -> None:
        """Find the first step size of a window, and start dual averaging from it."""
        kernel, stretch = self.chain.kernel, 1.0
        # Kernels in blocks start at the step sizes that they were given.
        if is_tunable(kernel) and kernel.uses_gradient:
            key_data = self._generator(Stream.STARTS, self.num_done + 1)
            numbers = key_data.integers(0, 2**32, 2, np.uint32)
            step_size = np.asarray(find_step_size(numbers, self.chain, self.target))
            kernel, stretch = _with_step_sizes(kernel, [step_size]), 10.0
        self.chain = self.chain._replace(kernel=kernel, averaging=_averaging(kernel, stretch))

    def _renew_metric(self) -> None:
        kernel, spread = self.chain.kernel, self.chain.spread
        fresh = Spread(*(np.zeros_like(leaf) for leaf in spread))
        self.chain = self.chain._replace(kernel=replace(kernel, scale=spread.scale()), spread=fresh)
        self._begin_tuning()

    def _advance(
        self,
        count: int,
        phase: Phase,
        go_on: Callable[[], bool],
        *,
        thin: int = 1,
        kept: bool = False,
    ) -> bool:
        left = count
        while left:
            if not go_on():
                return False
            affordable = int(BLOCK_SECONDS / (self._seconds_a_step * thin))
            block = min(left, self._block_steps(), max(affordable, 1))
            began = time.perf_counter()
            self.chain, positions, infos, energies = advance(
                self._key_data(),
                self.chain,
                self.target,
                self.num_done,
                block,
                thin,
                phase,
                size=self._block_steps(),
            )
            infos = _first(infos, block)
            self._seconds_a_step = (time.perf_counter() - began) / (block * thin)
            left, self.num_done = left - block, self.num_done + block * thin
            self._check(infos)
            if kept:
                self.positions.append(np.asarray(positions)[:block])
                self.infos.append(infos)
                self.energies.append(np.asarray(energies)[:block])
                self.num_divergent += int(np.sum(getattr(infos, "divergent", 0)))
        return True

    def _block_steps(self) -> int:
        """Largest number of steps of a block; depends only on the position, to avoid new traces."""
        numbers = int(np.size(self.chain.state.position))
        return min(max(BLOCK_NUMBERS // numbers, SMALLEST_BLOCK), LARGEST_BLOCK)

    def _check(self, infos: Any) -> None:
        if np.any(getattr(infos, "undefined", False)):
            raise ModelError(
                f"A conditional returned values that are not finite in chain {self.number}, before "
                f"step {self.num_done}. Check what it returns at the edges of the prior."
            )

    def _key_data(self) -> np.ndarray:
        generator = self._generator(Stream.CHAINS)
        return generator.integers(0, 2**32, 2, np.uint32)

    def _generator(self, stream: Stream, step: int = 0) -> np.random.Generator:
        """A generator for the seed, stream, chain and step."""
        return random_numbers(self._seed, stream, self.number, step)

    # --- saved and resumed bit for bit ---------------------------------------------------

    def state(self) -> list[np.ndarray]:
        """The numbers of the chain between two steps."""
        return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(self.chain)]

    def restore(self, leaves: list[np.ndarray], num_done: int) -> None:
        """Restore the numbers of ``state``; ``start`` has set up the structure."""
        old, structure = jax.tree_util.tree_flatten(self.chain)
        if [_layout(leaf) for leaf in old] != [_layout(leaf) for leaf in leaves]:
            raise MethodError(
                "The saved chains belong to another kernel or model: their numbers have other "
                "shapes or types. Give the kernel that drew them."
            )
        if any(_runs_off(leaf) and not _runs_off(first) for first, leaf in zip(old, leaves)):
            raise MethodError(
                "The saved chains cannot be continued: their state is NaN or infinite. Draw again."
            )
        self.chain = cast(Chain, jax.tree_util.tree_unflatten(structure, leaves))
        self.num_done = num_done


def _first(infos: Any, count: int) -> Any:
    """The infos of the first ``count`` steps, on the host."""
    return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf)[:count], infos)


def _with_step_sizes(kernel: Kernel, sizes: list[Any]) -> Any:
    """A kernel with these step sizes for its tunable kernels."""
    parts: list[Any] = list(kernel.tunable())
    tuned = (replace(part, step_size=np.asarray(size, float)) for part, size in zip(parts, sizes))
    return kernel.with_tunable(tuple(tuned))


def _averaging(kernel: Any, stretch: float = 10.0) -> tuple[DualAveraging, ...]:
    """Dual averaging from the step sizes of a kernel."""
    sizes = (float(np.mean(part.step_size)) for part in kernel.tunable())
    return tuple(DualAveraging.start(size, stretch) for size in sizes)


def _runs_off(leaf: Any) -> bool:
    """Whether some number is NaN or +inf; -inf is the log of a zero density."""
    array = np.asarray(leaf)
    return bool(np.isnan(array).any() or np.isposinf(array).any())


def _layout(leaf: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of an array or a number."""
    array = np.asarray(leaf)
    return array.shape, array.dtype


def _as_metric(scale: Any, dimension: int, warmup: Warmup) -> np.ndarray:
    """A kernel's scale in the shape that the warm-up learns."""
    scale = np.asarray(scale, float)
    if warmup.metric == "dense":
        return np.asarray(scale if scale.ndim == 2 else np.diag(np.broadcast_to(scale, dimension)))
    if scale.ndim == 2:
        return np.asarray(np.sqrt(np.sum(scale**2, axis=1)))
    return np.asarray(np.broadcast_to(scale, dimension).copy())
