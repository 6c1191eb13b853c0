"""Random-walk Metropolis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.base import Array, LogDensity
from weighbridge.kernels.accept import metropolis_accept


class MetropolisState(NamedTuple):
    """Position, and the log density there."""

    position: Array
    log_density: Array


class MetropolisInfo(NamedTuple):
    """Acceptance probability of the proposal, and whether it was taken."""

    acceptance: Array
    accepted: Array


@partial(jax.tree_util.register_dataclass, data_fields=["step_size"], meta_fields=[])
@dataclass(frozen=True)
class Metropolis:
    r"""Propose theta' ~ N(theta, s^2), accept with probability min(1, f(theta') / f(theta)).

    Metropolis et al. (1953), J. Chem. Phys. 21:1087-1092.

    Args:
        step_size: standard deviation s of the proposal, one number or one per coordinate.
    """

    step_size: float | Array = 0.5

    uses_batches: ClassVar[bool] = False

    def init(self, position: Array, target: LogDensity) -> MetropolisState:
        """Evaluate the target at the position."""
        return MetropolisState(position, target(position))

    def step(
        self, key: Array, state: MetropolisState, target: LogDensity
    ) -> tuple[MetropolisState, MetropolisInfo]:
        """One proposal and its accept test."""
        key_proposal, key_accept = jax.random.split(key)
        noise = jax.random.normal(key_proposal, state.position.shape)
        position = state.position + self.step_size * noise
        proposed = MetropolisState(position, target(position))
        log_ratio = proposed.log_density - state.log_density
        state, probability, accepted = metropolis_accept(
            jax.random.uniform(key_accept), log_ratio, proposed, state
        )
        return state, MetropolisInfo(probability, accepted)

    def rescale(self, variance: Array | float) -> Metropolis:
        """The kernel for a target whose variances are this many times as large."""
        return replace(self, step_size=self.step_size * jnp.sqrt(variance))
