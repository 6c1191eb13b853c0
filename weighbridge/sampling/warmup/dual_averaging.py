"""Step sizes by dual averaging, and the initial step size by doubling or halving."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.types import Array, LogDensity
from weighbridge.sampling.kernels.hmc import HMC, HMCState

# Stan's constants: gamma (strength of the adaptation), t_0 (damps the first steps), kappa (decay).
GAMMA = 0.05
FIRST = 10.0
KAPPA = 0.75
# The acceptance at which doubling or halving stops.
CROSSING = 0.8
# Bounds on the initial step size.
LARGEST, SMALLEST = 1e7, 1e-14


class DualAveraging(NamedTuple):
    r"""A step size that is adapted to a target acceptance.

    .. math:: \log \epsilon_{t+1} = \mu - \frac{\sqrt t}{\gamma} \bar H_t, \qquad
              \bar H_t = (1 - \eta_t) \bar H_{t-1} + \eta_t (\delta - a_t), \quad
              \eta_t = \frac{1}{t + t_0}

    together with an average of log epsilon whose weights decrease as t^-kappa. Hoffman & Gelman
    (2014), section 3.2; the constants are Stan's, including kappa = 0.75.

    Attributes:
        log_step: log of the step size in use.
        log_average: log of the step size to keep at the end.
        deficit: H-bar, the average of target acceptance minus acceptance.
        log_centre: mu, towards which the log step size is pulled.
        num_updates: number of updates so far.

    >>> tuning = DualAveraging.start(0.5)
    >>> float(tuning.update(1.0, 0.8).log_step) > float(tuning.update(0.0, 0.8).log_step)
    True
    """

    log_step: Array | np.ndarray | float
    log_average: Array | np.ndarray | float
    deficit: Array | np.ndarray | float
    log_centre: Array | np.ndarray | float
    num_updates: Array | np.ndarray | float

    @staticmethod
    def start(step_size: float, stretch: float = 10.0) -> DualAveraging:
        """Start at a step size, pulled to one ``stretch`` times as long: long steps are cheap."""
        log_step = np.log(np.asarray(step_size, float))
        zero = np.zeros(())
        return DualAveraging(log_step, zero, zero, log_step + np.log(stretch), zero)

    def update(self, acceptance: Array | float, wanted: Array | float) -> DualAveraging:
        """Update with the acceptance of the step size in use."""
        count = self.num_updates + 1.0
        share = 1.0 / (count + FIRST)
        deficit = (1.0 - share) * self.deficit + share * (wanted - acceptance)
        log_step = self.log_centre - jnp.sqrt(count) / GAMMA * deficit
        forget = count**-KAPPA
        log_average = forget * log_step + (1.0 - forget) * self.log_average
        return DualAveraging(log_step, log_average, deficit, self.log_centre, count)


def first_step_size(
    uniform: Array,
    state: HMCState,
    target: LogDensity,
    step_size: Array | float,
    scale: Array | float,
) -> Array:
    """Double or halve a step size until the acceptance of one leapfrog step crosses 0.8.

    Hoffman & Gelman (2014), algorithm 4, with Stan's 0.8; ``uniform`` has one number for each
    coordinate and one more.
    """

    def is_good(step_size: Array) -> Array:
        _, info = HMC(step_size, 1, scale).step_with(uniform, state, target)
        return info.acceptance > CROSSING

    def go_on(carry: tuple[Array, Array, Array]) -> Array:
        step_size, _, done = carry
        return ~done & (step_size < LARGEST) & (step_size > SMALLEST)

    def change(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        # The first round only finds the direction. Evaluating the gradient at one place in the code
        # compiles twice as fast as at two.
        step_size, direction, _ = carry
        good = is_good(step_size)
        undecided = direction == 0
        direction = jnp.where(undecided, jnp.where(good, 1, -1), direction)
        crossed = ~undecided & (good != (direction > 0))
        following = jnp.where(crossed, step_size, step_size * 2.0 ** direction.astype(float))
        return following, direction, crossed

    begin = (jnp.asarray(step_size, float), jnp.zeros((), int), jnp.zeros((), bool))
    found: Array = jax.lax.while_loop(go_on, change, begin)[0]
    return found
