"""Trajectories that double until a criterion stops them: the step shared by NUTS and XHMC.

Without recursion: complete subtrees are kept on a stack, one of each size, like the digits of a
binary counter. A new point is merged with the subtrees that it completes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.types import Array, LogDensity
from weighbridge.sampling.kernels.hmc import DIVERGENCE, HMCState
from weighbridge.sampling.kernels.parts.accept import select, standard_normal
from weighbridge.sampling.kernels.parts.scale import pull, push
from weighbridge.sampling.kernels.parts.u_turn import Criterion, Node

# A doubling needs a direction, a choice within the new half and a choice between the halves.
NUMBERS_A_DOUBLING = 3


class TreeInfo(NamedTuple):
    """Facts about one trajectory.

    Attributes:
        acceptance: mean over its points of min(1, e^{H_start - H}).
        divergent: whether the energy error became too large.
        energy: energy of the chosen point, with its momentum.
        tree_depth: number of doublings.
        num_leapfrog: number of gradients.
    """

    acceptance: Array
    divergent: Array
    energy: Array
    tree_depth: Array
    num_leapfrog: Array


class Dynamics(NamedTuple):
    """The leapfrog dynamics of the points."""

    target: Any
    step_size: Any
    scale: Any

    def leapfrog(self, node: Node) -> Node:
        """The next point."""
        half = 0.5 * self.step_size
        momentum = node.momentum + half * pull(self.scale, node.gradient)
        displacement = node.displacement
        if displacement.size:
            displacement = displacement + self.step_size * momentum
        position = node.position + self.step_size * push(self.scale, momentum)
        log_density, gradient = jax.value_and_grad(self.target)(position)
        momentum = momentum + half * pull(self.scale, gradient)
        log_weight = log_density - 0.5 * jnp.sum(momentum**2)
        # A density that is NaN counts as zero.
        log_weight = jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight)
        return Node(position, displacement, momentum, log_density, gradient, log_weight)


class Chosen(NamedTuple):
    """A point drawn from a trajectory, with what the next step needs.

    Few arrays are faster than many: ``vectors`` are the position and the gradient, ``numbers`` the
    log weight and the log density.
    """

    vectors: Array
    numbers: Array


class Half(NamedTuple):
    """A new half of a trajectory while it is built: its points so far, and their sums."""

    node: Node
    stack: Any
    record: Any
    chosen: Chosen
    log_weight: Array
    uniform: Array
    acceptance: Array
    num_points: Array
    stop: Array
    divergent: Array


class Tree(NamedTuple):
    """A whole trajectory: its two ends, and the sums over its points."""

    first: Node
    last: Node
    stack: Any
    record: Any
    chosen: Chosen
    log_weight: Array
    acceptance: Array
    num_leapfrog: Array
    depth: Array
    stop: Array
    divergent: Array


def num_uniform(dimension: int, max_depth: int) -> int:
    """Number of uniform numbers of a step."""
    return dimension + NUMBERS_A_DOUBLING * max_depth


def grow(
    uniform: Array,
    state: HMCState,
    target: LogDensity,
    *,
    step_size: Any,
    scale: Any,
    criterion: Criterion,
    max_depth: int,
) -> tuple[HMCState, TreeInfo]:
    """Double a trajectory until the criterion stops it, and choose a point of it."""
    dimension = state.position.shape[0]
    momentum = standard_normal(uniform[:dimension])
    numbers = uniform[dimension:].reshape(max_depth, NUMBERS_A_DOUBLING)
    energy = 0.5 * jnp.sum(momentum**2) - state.log_density
    node = Node(
        state.position,
        jnp.zeros(dimension if criterion.by_places else 0),
        momentum,
        state.log_density,
        state.gradient,
        -energy,
    )
    dynamics = Dynamics(target, step_size, scale)
    zero, none = jnp.zeros(()), jnp.zeros((), int)
    record = criterion.leaf(node)
    tree = Tree(
        first=node,
        last=node,
        # Every entry is written before it is read, so one stack is enough for all doublings.
        stack=jax.tree_util.tree_map(
            lambda leaf: jnp.zeros((max_depth, *leaf.shape), leaf.dtype), record
        ),
        record=record,
        chosen=_as_chosen(node),
        log_weight=node.log_weight,
        acceptance=zero,
        num_leapfrog=none,
        depth=none,
        stop=jnp.zeros((), bool),
        divergent=jnp.zeros((), bool),
    )
    tree = jax.lax.while_loop(
        lambda tree: (tree.depth < max_depth) & ~tree.stop,
        lambda tree: _double(tree, numbers[tree.depth], dynamics, criterion, -energy),
        tree,
    )
    (position, gradient), (log_weight, log_density) = tree.chosen
    info = TreeInfo(
        acceptance=tree.acceptance / jnp.maximum(tree.num_leapfrog, 1),
        divergent=tree.divergent,
        energy=-log_weight,
        tree_depth=tree.depth,
        num_leapfrog=tree.num_leapfrog,
    )
    return HMCState(position, log_density, gradient), info


def _double(
    tree: Tree,
    numbers: Array,
    dynamics: Dynamics,
    criterion: Criterion,
    log_weight_start: Array,
) -> Tree:
    """Add as many points again, before the first or after the last."""
    backwards = numbers[0] < 0.5
    # Backwards in time equals forwards with reversed momenta.
    edge = select(backwards, _turn(tree.first), tree.last)
    before = select(backwards, criterion.reverse(tree.record), tree.record)
    size = jnp.left_shift(1, tree.depth)
    half = _build(edge, tree.stack, size, numbers[1], dynamics, criterion, log_weight_start)
    record, turned = criterion.merge(before, half.record)
    record = select(backwards, criterion.reverse(record), record)
    # The new half is preferred to the old one: Betancourt (2017), appendix A.3.2.
    whole = ~half.stop & ~half.divergent
    taken = whole & (jnp.log(numbers[2]) < half.log_weight - tree.log_weight)
    return Tree(
        first=select(backwards, _turn(half.node), tree.first),
        last=select(backwards, tree.last, half.node),
        stack=half.stack,
        record=record,
        chosen=select(taken, half.chosen, tree.chosen),
        log_weight=jnp.logaddexp(tree.log_weight, half.log_weight),
        acceptance=tree.acceptance + half.acceptance,
        num_leapfrog=tree.num_leapfrog + half.num_points,
        depth=tree.depth + 1,
        stop=turned | ~whole,
        divergent=half.divergent,
    )


def _build(
    edge: Node,
    stack: Any,
    size: Array,
    uniform: Array,
    dynamics: Dynamics,
    criterion: Criterion,
    log_weight_start: Array,
) -> Half:
    """Add ``size`` points after an edge, unless one of their subtrees stops."""
    zero = jnp.zeros(())
    start = Half(
        node=edge,
        stack=stack,
        record=criterion.leaf(edge),
        chosen=_as_chosen(edge),
        log_weight=jnp.asarray(-jnp.inf),
        uniform=uniform,
        acceptance=zero,
        num_points=jnp.zeros((), int),
        stop=jnp.zeros((), bool),
        divergent=jnp.zeros((), bool),
    )

    def extend(half: Half) -> Half:
        node = dynamics.leapfrog(half.node)
        gain = node.log_weight - log_weight_start
        log_weight = jnp.logaddexp(half.log_weight, node.log_weight)
        # One uniform number makes all choices: after a choice, its rescaled remainder is uniform
        # again.
        share = jnp.exp(node.log_weight - log_weight)
        share = jnp.where(jnp.isnan(share), 0.0, share)
        taken = half.uniform < share
        uniform = jnp.where(
            taken, half.uniform / share, (half.uniform - share) / jnp.maximum(1.0 - share, 1e-300)
        )
        leaf = criterion.leaf(node)
        stack, record, stop = _complete(half.stack, leaf, half.num_points, criterion)
        return Half(
            node=node,
            stack=stack,
            record=record,
            chosen=select(taken, _as_chosen(node), half.chosen),
            log_weight=log_weight,
            uniform=uniform,
            acceptance=half.acceptance + jnp.exp(jnp.minimum(gain, 0.0)),
            num_points=half.num_points + 1,
            stop=stop,
            divergent=gain < -DIVERGENCE,
        )

    return jax.lax.while_loop(
        lambda half: (half.num_points < size) & ~half.stop & ~half.divergent, extend, start
    )


def _complete(stack: Any, leaf: Any, index: Array, criterion: Criterion) -> tuple[Any, Any, Array]:
    """Merge a point with the subtrees that it completes; the result is kept on the stack."""

    def is_complete(carry: tuple[Any, Array, Array]) -> Array:
        _, level, _ = carry
        return (jnp.right_shift(index, level) & 1) == 1

    def merge(carry: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        record, level, stop = carry
        waiting = jax.tree_util.tree_map(lambda leaf: leaf[level], stack)
        record, turned = criterion.merge(waiting, record)
        return record, level + 1, stop | turned

    begin = (leaf, jnp.zeros((), int), jnp.zeros((), bool))
    record, level, stop = jax.lax.while_loop(is_complete, merge, begin)
    stack = jax.tree_util.tree_map(lambda all_, one: all_.at[level].set(one), stack, record)
    return stack, record, stop


def _as_chosen(node: Node) -> Chosen:
    return Chosen(
        jnp.stack([node.position, node.gradient]), jnp.stack([node.log_weight, node.log_density])
    )


def _turn(node: Node) -> Node:
    return node._replace(momentum=-node.momentum)
