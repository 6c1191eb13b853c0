"""How far particles have forgotten their start after some moves."""

from __future__ import annotations

import numpy as np

from weighbridge.estimators.annealing.moves.scales import centred

# Coordinates that are looked at together. Arrays of all coordinates would be so large that most of
# the time goes into new memory.
BLOCK = 256


def remembered(alive: np.ndarray, start: np.ndarray, *later: np.ndarray) -> np.ndarray:
    """Absolute correlation of the values at later times with those at the start.

    Returns one row for each time, one column for each coordinate. Without any particle, and where
    nothing varies, nothing can be forgotten: the correlation is 1. An infinite value counts as 0: a
    log density of +inf ends the run with an error after these moves.
    """
    blocks = (slice(first, first + BLOCK) for first in range(0, start.shape[-1], BLOCK))
    found = [
        _of_some(alive, start[..., block], *(values[..., block] for values in later))
        for block in blocks
    ]
    return np.concatenate(found, axis=1)


def _of_some(alive: np.ndarray, start: np.ndarray, *later: np.ndarray) -> np.ndarray:
    """As ``remembered``, for coordinates that are few."""
    weight = 1.0 / max(np.sum(alive), 1)

    def deviations(values: np.ndarray) -> np.ndarray:
        used = values[alive]
        used = np.where(np.isfinite(used), used, 0.0)
        return centred(used, weight * used.sum(axis=0))

    first = deviations(start)
    variance = weight * np.einsum("nd,nd->d", first, first)
    found = []
    for values in map(deviations, later):
        norm = variance * weight * np.einsum("nd,nd->d", values, values)
        covariance = weight * np.einsum("nd,nd->d", first, values)
        known = norm > 0
        size = np.abs(covariance) / np.sqrt(np.where(known, norm, 1.0))
        found.append(np.where(known, size, 1.0))
    return np.stack(found)


def memory(
    start: np.ndarray, middle: np.ndarray, end: np.ndarray, alive: np.ndarray, num_moves: int
) -> tuple[np.ndarray, np.ndarray]:
    r"""Correlation of the particles with their start, and the part that decays with more moves.

    The correlation of a coordinate after m moves is modelled as

    .. math:: c_m = c_\infty + (1 - c_\infty) \rho^m.

    Then c after half of the moves and c after all moves determine rho^m, for any c_infinity. Few
    moves cannot distinguish slow decay from no decay: if a coordinate decays at two rates, the
    faster rate is found. Returns c_m and rho^m of each coordinate; rho^m is at most c_m.
    """
    if num_moves < 2:
        (whole,) = remembered(alive, start, end)
        return whole, whole
    half, whole = remembered(alive, start, middle, end)
    first = max(num_moves // 2, 1)
    second = (num_moves - first) / first
    moved = half < 1 - 1e-9
    ratio = np.where(moved, (half - whole) / np.where(moved, 1 - half, 1.0), second)
    ratio = np.clip(ratio, 0.0, 0.999 * second)
    # Solve ratio = x (1 - x^k) / (1 - x) for x = rho^first, with k = second; for equal halves
    # (k = 1) x is the ratio.
    share = np.minimum(ratio, 0.999)
    for _ in range(5):
        share = np.minimum(ratio * (1 - share) / (1 - share**second), 0.999)
    return whole, np.minimum(share ** (num_moves / first), whole)
