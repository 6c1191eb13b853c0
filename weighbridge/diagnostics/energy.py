"""Whether the momentum draws of Hamiltonian chains reach all energies."""

from __future__ import annotations

from typing import Any

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.diagnostics.draws import array_stats, check_draws


def energy_fraction(energy: Any, steps: Any = None) -> np.ndarray:
    r"""E-BFMI of each chain: how much one momentum draw changes the energy.

    .. math:: \text{E-BFMI} = \frac{\frac{1}{n-1} \sum_{i=1}^{n-1} (H_{i+1} - H_i)^2}
                                   {\operatorname{Var} H}

    Independent energies give 2. Below 0.3 the chain explores the energies slowly, and is likely to
    miss heavy tails of the posterior.

    Args:
        energy: Hamiltonian of the state that each transition chose, with the momentum there, chains
            x draws.
        steps: for thinned draws: mean, variance and mean square change of the energy over the steps
            before each draw, chains x draws x 3. The energies of thinned draws are almost
            independent and carry no information about single steps. By default every draw is a
            step.

    Returns:
        One number per chain; NaN if the energy does not vary.

    >>> energy_fraction([[0.0, 1.0, 0.0, 1.0], [0.0, 0.1, 0.2, 0.3]]).round(2)
    array([3. , 0.6])
    >>> energy_fraction([[0.0, 1.0]], [[[0.0, 0.25, 0.1], [1.0, 0.25, 0.1]]])  # thinned
    array([0.2])

    Reference: Betancourt (2016), arXiv:1604.00695.
    """
    chains = check_draws(energy)
    if chains.ndim != 2:
        raise MethodError(f"energy must be chains x draws; its shape is {chains.shape}.")
    varies = np.isfinite(chains).all(axis=1) & (np.ptp(chains, axis=1) > 0)
    fractions = np.full(len(chains), np.nan)
    if steps is not None:
        moments = np.asarray(steps, float)
        if moments.shape != (*chains.shape, 3):
            raise MethodError(
                f"steps must be chains x draws x 3, {(*chains.shape, 3)}; its shape is "
                f"{moments.shape}."
            )
        means, variances, changes = np.moveaxis(moments, 2, 0)
        variance = variances.mean(axis=1) + means.var(axis=1)
        varies &= variance > 0
        fractions[varies] = changes.mean(axis=1)[varies] / variance[varies]
        return fractions
    if varies.any():
        fractions[varies] = array_stats().bfmi(chains[varies])
    return fractions
