"""The accept test of adjusted moves."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp

from weighbridge.base import Array

State = TypeVar("State")


def metropolis_accept(
    uniform: Array, log_ratio: Array, proposed: State, current: State
) -> tuple[State, Array, Array]:
    """Take the proposed state with probability min(1, exp(log_ratio)), by a uniform number.

    A log ratio that is not a number rejects. Returns the state, the acceptance probability and
    whether it was accepted.
    """
    log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
    probability = jnp.exp(jnp.minimum(log_ratio, 0.0))
    accepted = uniform < probability
    state = jax.tree_util.tree_map(
        lambda new, old: jnp.where(accepted, new, old), proposed, current
    )
    return state, probability, accepted
