"""Moments of the energies of all steps between two draws."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from weighbridge.core.types import Array


class StepEnergies(NamedTuple):
    """Sums over the steps before a draw, by Welford's updates.

    Thinned draws have energies that are almost independent. E-BFMI measures how much one step
    changes the energy, so it has to be summed while the steps are made.

    Attributes:
        num_steps: number of steps so far.
        mean: mean of their energies.
        scatter: sum of squared deviations of the energies from their mean.
        num_changes: number of steps with an energy before them; the first step of a chain has none.
        changes: sum of squared changes from step to step.

    >>> energies = StepEnergies.start()
    >>> for before, after in ((jnp.nan, 1.0), (1.0, 3.0)):
    ...     energies = energies.update(jnp.asarray(before), jnp.asarray(after))
    >>> energies.moments().tolist()
    [2.0, 1.0, 4.0]
    """

    num_steps: Array
    mean: Array
    scatter: Array
    num_changes: Array
    changes: Array

    @staticmethod
    def start() -> StepEnergies:
        """Before the first step."""
        return StepEnergies(*[jnp.zeros(())] * 5)

    def update(self, before: Array, after: Array) -> StepEnergies:
        """Add a step from one energy to another; ``before`` is NaN at the first step of a chain."""
        count = self.num_steps + 1.0
        mean = self.mean + (after - self.mean) / count
        scatter = self.scatter + (after - self.mean) * (after - mean)
        is_first = jnp.isnan(before)
        change = jnp.where(is_first, 0.0, (after - before) ** 2)
        return StepEnergies(
            count, mean, scatter, self.num_changes + ~is_first, self.changes + change
        )

    def moments(self) -> Array:
        """Mean and variance of the energy, and its mean square change; see ``energy_fraction``."""
        steps, changes = jnp.maximum(self.num_steps, 1.0), jnp.maximum(self.num_changes, 1.0)
        return jnp.stack([self.mean, self.scatter / steps, self.changes / changes])
