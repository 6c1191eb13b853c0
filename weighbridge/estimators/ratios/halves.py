"""Posterior draws in two halves: one to fit a proposal to, one to compare with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from weighbridge.core.resampling import systematic_indices
from weighbridge.diagnostics import rhat
from weighbridge.estimators.posterior_draws import PosteriorDraws
from weighbridge.estimators.reweighting.log_ratio import num_blocks


def halve(
    draws: PosteriorDraws, origin: Any, numbers: np.random.Generator
) -> tuple[np.ndarray, PosteriorDraws, int]:
    """Equally weighted draws to fit to, the other draws, and the number of blocks among these.

    Every chain is cut in its middle. Weighted draws in islands are cut between islands; other
    weighted draws may be in any order, so they are shuffled.

    Args:
        draws: the draws, chains x draws.
        origin: what they were read from.
        numbers: for shuffling and resampling.

    >>> same = PosteriorDraws(np.zeros((2, 50, 1)), np.full((2, 50), -np.log(100)), True)
    >>> fitted, rest, blocks = halve(same, None, np.random.default_rng(0))
    >>> fitted.shape, rest.positions.shape, blocks
    ((50, 1), (2, 25, 1), 1)
    """
    blocks, count = num_blocks(origin), draws.log_weights.shape[1]
    middle = count // 2
    if blocks > 1:
        middle = blocks // 2 * (count // blocks)
        blocks -= blocks // 2
    elif not draws.ordered:
        order = numbers.permutation(count)
        draws = draws._replace(
            positions=draws.positions[:, order], log_weights=draws.log_weights[:, order]
        )
    first, second = (_part(draws, part) for part in (slice(0, middle), slice(middle, count)))
    positions, log_weights = first.flat()
    if first.is_weighted:
        chosen = systematic_indices(numbers.random(), log_weights, len(positions))
        positions = positions[np.asarray(chosen)]
    return positions, second, blocks


def _part(draws: PosteriorDraws, part: slice) -> PosteriorDraws:
    log_weights = draws.log_weights[:, part]
    log_weights = log_weights - np.logaddexp.reduce(log_weights, axis=None)
    return draws._replace(positions=draws.positions[:, part], log_weights=log_weights)


def largest_rhat(draws: PosteriorDraws) -> float:
    """The largest R-hat of the coordinates; NaN without chains to compare."""
    chains, _, dimension = draws.positions.shape
    if not draws.ordered or chains < 2 or not dimension:
        return float("nan")
    return float(np.max(rhat(draws.positions)))
