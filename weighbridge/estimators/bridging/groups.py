"""Posterior draws in five groups, whose proposals are fitted to other groups."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weighbridge.core.resampling import systematic_indices
from weighbridge.estimators.posterior_draws import PosteriorDraws

# With five groups in a circle, each is bridged to a proposal fitted to the next two of them.
GROUPS = 5
# Groups are parts of every chain, if chains have this many draws or are few; else whole chains.
ENOUGH_IN_A_CHAIN = 50
# Blocks of all groups together for the jackknife, if draws are enough.
BLOCKS, LEAST_IN_A_BLOCK = 20, 10


class Groups(NamedTuple):
    """Posterior draws in five groups that are (nearly) independent of each other.

    Two groups never fit each other. The random error from the draws of A and B is about a product
    d_A d_B, so that it would occur twice, and would not be seen as one. In a circle of five, where
    each is fitted to the next two, every pair occurs once.

    Attributes:
        positions: groups x series x draws x coordinates.
        log_weights: groups x series x draws; the weights of all draws sum to 1.
        is_serial: whether successive draws of a series are correlated.
        by_chain: whether the series of all groups in the same place are parts of one chain.
    """

    positions: np.ndarray
    log_weights: np.ndarray
    is_serial: bool
    by_chain: bool

    @property
    def share(self) -> np.ndarray:
        """Normalised weights."""
        weights = np.exp(self.log_weights - np.max(self.log_weights))
        return np.asarray(weights / weights.sum())

    @property
    def pieces(self) -> int:
        """Into how many blocks a series is cut for the jackknife."""
        series, length = self.log_weights.shape[1:]
        wanted = -(-BLOCKS // (GROUPS * int(series)))
        return max(1, min(wanted, int(length) // LEAST_IN_A_BLOCK))

    @property
    def in_a_block(self) -> int:
        """Draws of a block."""
        return int(self.log_weights.shape[2]) // self.pieces

    def blocks(self, values: np.ndarray) -> np.ndarray:
        """Values of all draws, groups x series x draws, as blocks x draws."""
        return np.asarray(values).reshape(-1, self.in_a_block)

    def fitting(self, group: int, numbers: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The draws of the next group and of the one after it, equally weighted.

        Draws with different weights are resampled.
        """
        return self._equal((group + 1) % GROUPS, numbers), self._equal(
            (group + 2) % GROUPS, numbers
        )

    def _equal(self, group: int, numbers: np.random.Generator) -> np.ndarray:
        flat = np.asarray(self.positions[group]).reshape(-1, self.positions.shape[-1])
        log_weights = self.log_weights[group].reshape(-1)
        if not np.ptp(log_weights) > 0:
            return flat
        return np.asarray(flat[systematic_indices(numbers.random(), log_weights)])


def in_groups(draws: PosteriorDraws, num_islands: int, numbers: np.random.Generator) -> Groups:
    """Posterior draws in five groups.

    Chains are cut into five parts in the order of time; many short chains are grouped whole. Draws
    of islands, one island after the other, are grouped by islands. Other weighted draws are put
    into a random order. Up to a few draws at the beginning, or islands at the end, are left out, so
    that groups have equal sizes.

    Args:
        draws: the posterior draws.
        num_islands: number of islands, all of the same size; 0 if there are none.
        numbers: for the random order.

    >>> chains = PosteriorDraws(np.zeros((4, 102, 3)), np.zeros((4, 102)), True)
    >>> in_groups(chains, 0, np.random.default_rng(0)).positions.shape
    (5, 4, 20, 3)
    """
    positions, log_weights = draws.positions, draws.log_weights
    by_chain = False
    if not draws.ordered and num_islands >= GROUPS and positions.shape[1] % num_islands == 0:
        shape = (num_islands, positions.shape[1] // num_islands)
        positions, log_weights = positions.reshape(*shape, -1), log_weights.reshape(shape)
    elif not draws.ordered:
        used = np.flatnonzero(np.isfinite(log_weights[0]))
        order = numbers.permutation(used)[: GROUPS * (len(used) // GROUPS)]
        positions = positions[0, order].reshape(GROUPS, -1, positions.shape[-1])
        log_weights = log_weights[0, order].reshape(GROUPS, -1)
    num_chains, length = log_weights.shape
    if draws.ordered and (length >= ENOUGH_IN_A_CHAIN or num_chains < GROUPS):
        by_chain = True
        parts = [
            leaf[:, length % GROUPS :].reshape(num_chains, GROUPS, -1, *leaf.shape[2:])
            for leaf in (positions, log_weights)
        ]
        positions, log_weights = (np.moveaxis(part, 1, 0) for part in parts)
    else:
        kept = GROUPS * (num_chains // GROUPS)
        positions, log_weights = (
            np.moveaxis(leaf[:kept].reshape(-1, GROUPS, *leaf.shape[1:]), 1, 0)
            for leaf in (positions, log_weights)
        )
    found = Groups(positions, log_weights, draws.ordered, by_chain)
    length = found.pieces * found.in_a_block  # the blocks of a series are of one length
    return found._replace(
        positions=positions[:, :, -length:], log_weights=log_weights[:, :, -length:]
    )
