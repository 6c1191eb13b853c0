"""The accept test of adjusted moves, and normal numbers from uniform ones."""

from __future__ import annotations

from typing import TypeVar, cast

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from weighbridge.core.types import Array

Tree = TypeVar("Tree")


def standard_normal(uniform: Array) -> Array:
    """Normal numbers from uniform ones.

    >>> standard_normal(jnp.array([0.5])).round(6).tolist()
    [0.0]
    """
    # Uniforms are multiples of 2^-53 below one; adding half a step avoids 0 and 1.
    return ndtri(uniform + 2.0**-54)


def select(condition: Array, yes: Tree, no: Tree) -> Tree:
    """One of two pytrees, by a single condition."""
    chosen = jax.tree_util.tree_map(lambda a, b: jnp.where(condition, a, b), yes, no)
    return cast(Tree, chosen)


def metropolis_accept(
    uniform: Array, log_ratio: Array, proposed: Tree, current: Tree
) -> tuple[Tree, Array, Array]:
    """Take the proposed state with probability min(1, exp(log_ratio)), by a uniform number.

    A log ratio that is NaN rejects. Returns the state, the acceptance probability and whether it
    was accepted.
    """
    log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
    probability = jnp.exp(jnp.minimum(log_ratio, 0.0))
    accepted = uniform < probability
    return select(accepted, proposed, current), probability, accepted
