"""Whether the momentum of Hamiltonian chains reaches all energies."""

from __future__ import annotations

from typing import Any

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.diagnostics.draws import array_stats, check_draws


def energy_fraction(energy: Any) -> np.ndarray:
    r"""E-BFMI of each chain: how far one draw of the momentum moves the energy.

    .. math:: \text{E-BFMI} = \frac{\frac{1}{n-1} \sum_{i=1}^{n-1} (H_{i+1} - H_i)^2}
                                   {\operatorname{Var} H}

    Independent energies give 2. Below 0.3 the chain wanders slowly through the energies, and
    heavy tails of the posterior are likely to be missed.

    Args:
        energy: Hamiltonian at the start of each transition, chains x draws.

    Returns:
        One number a chain; NaN where the energy does not vary.

    >>> energy_fraction([[0.0, 1.0, 0.0, 1.0], [0.0, 0.1, 0.2, 0.3]]).round(2)
    array([3. , 0.6])

    Reference: Betancourt (2016), arXiv:1604.00695.
    """
    chains = check_draws(energy)
    if chains.ndim != 2:
        raise MethodError(f"energy must be chains x draws; its shape is {chains.shape}.")
    varies = np.isfinite(chains).all(axis=1) & (np.ptp(chains, axis=1) > 0)
    fractions = np.full(len(chains), np.nan)
    if varies.any():
        fractions[varies] = array_stats().bfmi(chains[varies])
    return fractions
