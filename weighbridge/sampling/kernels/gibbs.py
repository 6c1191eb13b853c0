"""Gibbs sampling: update one block of parameters after another, by conditionals or kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.models.model import Model
from weighbridge.models.targets.density import Target
from weighbridge.sampling.kernels.parts.blocks import (
    Conditional,
    Names,
    Restricted,
    coordinates,
    draw_conditional,
    model_of,
    refreshed,
)


class GibbsState(NamedTuple):
    """Position, and the states of the kernels in the blocks; empty for a conditional."""

    position: Array
    states: tuple[Any, ...]


class GibbsInfo(NamedTuple):
    """Facts about the blocks that were updated.

    Attributes:
        acceptance: mean acceptance probability of their kernels; 1 for a conditional.
        divergent: whether a kernel diverged.
        undefined: number of conditionals that returned a value that is NaN or outside the support
            of its prior; such a block was not changed.
        block_acceptance: acceptance probability of each block; NaN if it was not updated.
    """

    acceptance: Array
    divergent: Array
    undefined: Array
    block_acceptance: Array


@jax.tree_util.register_pytree_node_class
@travels()
@dataclass(frozen=True)
class Gibbs(Kernel):
    r"""Update one block of parameters at a time, given the others.

    .. math:: \theta_b' \sim p(\theta_b | \theta_{-b}, y)

    either by your own draw from that conditional, or by a step of another kernel that leaves it
    invariant. Geman & Geman (1984), IEEE PAMI 6:721-741; blocks: Liu, Wong & Kong (1994),
    Biometrika 81:27-40.

    Args:
        blocks: maps a parameter's name, or a tuple of names, to its update. An update is a function
            ``conditional(key, parameters, data)`` (or of a key and parameters only) that returns
            the new value, or for several parameters a mapping from their names (or a tuple). Or it
            is a kernel, which moves the unconstrained coordinates of the block; the warm-up tunes
            its step size. Every parameter must be in a block. Observations with named columns have
            a ``weight`` for each row, 1 unless the data specify it.
        scan: "sweep" to update all blocks in their order at each step, "random" for one of them.
        weights: probabilities of the blocks with scan="random", up to a factor; equal if None.

    >>> import numpyro.distributions as dist
    >>> import weighbridge as wb
    >>> model = wb.Model({"mu": dist.Normal(0, 1), "b": dist.Normal(0, 1)},
    ...                  lambda p, y: -0.5 * (y - p["mu"]) ** 2 - 0.5 * p["b"] ** 2)
    >>> def mu(key, parameters, data):
    ...     variance = 1 / (1 + len(data))
    ...     return variance * data.sum() + jax.random.normal(key) * variance**0.5
    >>> kernel = Gibbs({"mu": mu, "b": wb.Metropolis(2.0)})
    >>> from weighbridge.models.targets.rows import Rows
    >>> target = Target(model, (Rows(np.array([1.0, 2.0]), np.ones(2)),))
    >>> state = jax.jit(lambda start: kernel.init(start, target))(jnp.zeros(2))
    >>> state, info = jax.jit(lambda key: kernel.step(key, state, target))(jax.random.key(0))
    >>> state.position.shape, int(info.undefined)
    ((2,), 0)
    """

    blocks: Mapping[str | Names, Conditional | Kernel]
    scan: str = "sweep"
    weights: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, Mapping) or not self.blocks:
            raise MethodError(
                "blocks must be a mapping from names of parameters to conditionals or kernels, "
                'with at least one: blocks={"mu": conditional, ("w", "b"): wb.HMC()}.'
            )
        for names, update in self.blocks.items():
            _check_block(names, update)
        if self.scan not in ("sweep", "random"):
            raise MethodError(f"scan must be sweep or random, not {self.scan!r}.")
        if self.weights is not None and not isinstance(self.weights, jax.core.Tracer):
            _check_weights(np.asarray(self.weights, float), len(self.blocks), self.scan)

    def kernels(self) -> list[Kernel]:
        """The kernels of the blocks, in their order."""
        return [update for update in self.blocks.values() if isinstance(update, Kernel)]

    @property
    def uses_gradient(self) -> bool:
        """Whether any kernel in a block uses gradients."""
        return any(kernel.uses_gradient for kernel in self.kernels())

    @property
    def num_adapt(self) -> int:
        """Steps until all kernels in blocks have adapted; for a random scan, with high chance."""
        weights = np.ones(len(self.blocks)) if self.weights is None else np.asarray(self.weights)
        longest = 0
        for update, share in zip(self.blocks.values(), weights / weights.sum()):
            num_adapt = int(update.num_adapt) if isinstance(update, Kernel) else 0
            if num_adapt and self.scan == "random":
                # Twice the average number of steps needed, and some more.
                num_adapt = math.ceil((2 * num_adapt + 20) / share)
            longest = max(longest, num_adapt)
        return longest

    def init(self, position: Array, target: LogDensity) -> GibbsState:
        """The states of the kernels in the blocks."""
        model = model_of(target)
        _check_cover(self.blocks, model)
        states: list[Any] = []
        for names, update in self.blocks.items():
            restricted = Restricted(target, position, coordinates(model, _as_tuple(names)))
            if isinstance(update, Kernel):
                states.append(update.init(restricted.part(), restricted))
            else:
                states.append(())
        return GibbsState(position, tuple(states))

    def step(
        self, key: Array, state: GibbsState, target: LogDensity
    ) -> tuple[GibbsState, GibbsInfo]:
        """Update all blocks in their order, or one of them."""
        updates = [partial(self._update, target, index) for index in range(len(self.blocks))]
        if self.scan == "random":
            key_choice, key_block = jax.random.split(key)
            weights = jnp.ones(len(updates)) if self.weights is None else self.weights
            chosen = jax.random.categorical(key_choice, jnp.log(jnp.asarray(weights, float)))
            moved: tuple[GibbsState, GibbsInfo] = jax.lax.switch(chosen, updates, key_block, state)
            return moved
        infos = []
        keys = jax.random.split(key, len(updates))
        for index, update in enumerate(updates):
            state, info = update(keys[index], state)
            infos.append(info)
        acceptance, divergent, undefined, each = (jnp.stack(values) for values in zip(*infos))
        return state, GibbsInfo(
            jnp.mean(acceptance), jnp.any(divergent), jnp.sum(undefined), jnp.diagonal(each)
        )

    def _update(
        self, target: LogDensity, index: int, key: Array, state: GibbsState
    ) -> tuple[GibbsState, GibbsInfo]:
        names, update = list(self.blocks.items())[index]
        names = _as_tuple(names)
        if not isinstance(update, Kernel):
            model_of(target)
            whole = cast(Target, target)
            position, defined = draw_conditional(update, names, key, state.position, whole)
            one = jnp.ones((), position.dtype)
            info = GibbsInfo(one, one < 0, jnp.sum(~defined), self._only(index, one))
            return state._replace(position=position), info
        restricted = Restricted(target, state.position, coordinates(model_of(target), names))
        inner = refreshed(update, state.states[index], restricted)
        inner, inner_info = update.step(key, inner, restricted)
        states = (*state.states[:index], inner, *state.states[index + 1 :])
        position = restricted.whole(inner.position)
        acceptance = jnp.asarray(getattr(inner_info, "acceptance", 1.0), position.dtype)
        info = GibbsInfo(
            acceptance,
            jnp.asarray(getattr(inner_info, "divergent", False)),
            jnp.zeros((), int),
            self._only(index, jnp.nan_to_num(acceptance)),
        )
        return GibbsState(position, states), info

    def _only(self, index: int, acceptance: Array) -> Array:
        """The acceptance of one block; NaN for the others, which are not updated."""
        return jnp.full(len(self.blocks), jnp.nan, acceptance.dtype).at[index].set(acceptance)

    # The warm-up tunes the kernels in the blocks, each to its own target acceptance.

    def _tunable_at(self) -> list[int]:
        return [
            index
            for index, update in enumerate(self.blocks.values())
            if isinstance(update, Kernel) and update.target_acceptance is not None
        ]

    def tunable(self) -> tuple[Kernel, ...]:
        """Kernels of the blocks whose step size a warm-up tunes."""
        updates = list(self.blocks.values())
        return tuple(cast(Kernel, updates[index]) for index in self._tunable_at())

    def with_tunable(self, kernels: tuple[Kernel, ...]) -> Gibbs:
        """The same blocks with these in place of the tunable kernels."""
        updates = list(self.blocks.values())
        for index, kernel in zip(self._tunable_at(), kernels):
            updates[index] = kernel
        return replace(self, blocks=dict(zip(self.blocks, updates)))

    def tunable_acceptance(self, info: GibbsInfo) -> tuple[tuple[Array, Array], ...]:
        """Acceptance of each tunable block, and whether it was updated."""
        found = info.block_acceptance
        return tuple((found[index], ~jnp.isnan(found[index])) for index in self._tunable_at())

    def rescale(self, variance: Array | float) -> Gibbs:
        """Kernels for a target with variances larger by this factor; conditionals are unchanged."""
        blocks = {
            names: update.rescale(variance) if isinstance(update, Kernel) else update
            for names, update in self.blocks.items()
        }
        return replace(self, blocks=blocks)

    # Kernels are pytrees and functions are static, so the mapping is split into both.

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Split into kernels and weights, and names and functions."""
        updates = self.blocks.values()
        kernels = tuple(update if isinstance(update, Kernel) else None for update in updates)
        functions = tuple(None if isinstance(update, Kernel) else update for update in updates)
        return (kernels, self.weights), (tuple(self.blocks), functions, self.scan)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Any, ...]) -> Gibbs:
        """Rebuild it without checks: while tracing, its parts may be anything."""
        names, functions, scan = static
        kernels, weights = children
        pairs = zip(functions, kernels)
        updates = [kernel if function is None else function for function, kernel in pairs]
        gibbs = object.__new__(cls)
        object.__setattr__(gibbs, "blocks", dict(zip(names, updates)))
        object.__setattr__(gibbs, "scan", scan)
        object.__setattr__(gibbs, "weights", weights)
        return gibbs


def _as_tuple(names: str | Names) -> Names:
    return (names,) if isinstance(names, str) else names


def _check_block(names: object, update: object) -> None:
    listed = (names,) if isinstance(names, str) else names
    if not (isinstance(listed, tuple) and listed and all(isinstance(n, str) for n in listed)):
        raise MethodError(f"A block is a name or a tuple of names, not {names!r}.")
    if isinstance(update, Kernel):
        if update.uses_batches or update.ensemble:
            raise MethodError(
                f"{type(update).__name__} cannot update the block {names!r}: it works on "
                "mini-batches or on an ensemble. Use a kernel of one chain on all the data, such "
                "as wb.HMC() or wb.Slice()."
            )
    elif not callable(update):
        raise MethodError(
            f"The block {names!r} needs a function conditional(key, parameters, data) or a kernel "
            f"such as wb.HMC(), not {update!r}."
        )


def _check_weights(weights: np.ndarray, num_blocks: int, scan: str) -> None:
    if scan != "random":
        raise MethodError('weights choose a block at random: use scan="random", or leave them out.')
    if weights.shape != (num_blocks,) or not np.all((weights > 0) & np.isfinite(weights)):
        raise MethodError(
            f"weights must be {num_blocks} positive numbers, one for each block, not {weights}."
        )


def _check_cover(blocks: Mapping[str | Names, Any], model: Model) -> None:
    named = {name for names in blocks for name in _as_tuple(names)}
    unknown, missing = sorted(named - set(model.names)), sorted(set(model.names) - named)
    if unknown:
        raise MethodError(f"Blocks name {unknown}; the model has {list(model.names)}.")
    if missing:
        raise MethodError(
            f"Parameters {missing} are in no block and would never move. Add a block for them, "
            f"such as {missing[0]!r}: wb.Slice()."
        )
