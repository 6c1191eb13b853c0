"""Many quick climbs at once to the tops of a log density, without a program of their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weighbridge.core import interrupts

# Steps and changes of gradient that each climb remembers, and evaluations at most.
MEMORY, MOST_EVALUATIONS = 5, 40
# A climb ends if it expects less than this from its next step (nats). The climbs end together when
# this share of them has ended.
NO_GAIN, ENOUGH = 1e-6, 0.9
# Share of the expected gain that a step must bring.
ARMIJO = 1e-4

# Log density and gradient at climbs x coordinates.
Measure = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


# Climbs may go where numbers overflow; they come back by shorter steps.
@np.errstate(all="ignore")
def climb_together(
    measure: Measure, starts: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of climbs by L-BFGS, and the log density there; -inf for climbs without an end.

    The steps are those of ``estimators/laplace/climbing.py``. There they are part of a program,
    which must be compiled for every new model. Here they are made on the host, and the density
    comes from a program that the run has already; so a climb costs little but its evaluations.
    Nocedal (1980), Mathematics of Computation 35:773-782.

    Args:
        measure: gives the log density and its gradient at climbs x coordinates.
        starts: climbs x coordinates.
        scale: units of the coordinates, such as the spread of the prior.

    >>> def measure(u):
    ...     return -np.sum((u - 3.0) ** 4, axis=1), -4.0 * (u - 3.0) ** 3
    >>> ends, heights = climb_together(measure, np.array([[0.0, 9.0]]), np.ones(2))
    >>> bool(np.abs(ends - 3.0).max() < 0.1), bool(heights[0] > -1e-4)
    (True, True)
    """

    def at(where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        height, slope = measure(where * scale)
        slope = slope * scale
        defined = np.isfinite(height) & np.isfinite(slope).all(axis=1)
        return np.where(defined, height, -np.inf), np.where(defined[:, None], slope, 0.0)

    position = starts / scale
    height, score = at(position)
    count, dimension = position.shape
    steps, changes = np.zeros((2, MEMORY, count, dimension))
    direction = score.copy()
    length = 1.0 / np.maximum(np.linalg.norm(score, axis=1), 1e-30)
    done = ~np.isfinite(height)
    for _ in range(MOST_EVALUATIONS):
        if done.mean() >= ENOUGH:
            break
        interrupts.check()
        trial = np.where(done[:, None], position, position + length[:, None] * direction)
        new_height, new_score = at(trial)
        promise = length * np.sum(direction * score, axis=1)
        gained = ~done & (new_height >= height + ARMIJO * promise)
        # Shorter steps: at the top of the parabola through both heights, or a tenth.
        fall = height + promise - new_height
        factor = np.where(fall > 0, 0.5 * promise / fall, 0.5)
        factor = np.clip(np.where(np.isfinite(factor), factor, 0.1), 0.1, 0.5)
        length = np.where(gained | done, length, length * factor)
        done |= ~gained & (promise < NO_GAIN)
        if not gained.any():
            continue
        step, change = trial - position, score - new_score
        size = np.linalg.norm(step, axis=1)
        # Only steps along which the density is concave are remembered.
        bends = np.sum(step * change, axis=1) > 1e-10 * size * np.linalg.norm(change, axis=1)
        kept = (gained & bends)[:, None]
        for memory, latest in ((steps, step), (changes, change)):
            memory[1:] = np.where(kept, memory[:-1], memory[1:])
            memory[0] = np.where(kept, latest, memory[0])
        moved = gained[:, None]
        position, score = np.where(moved, trial, position), np.where(moved, new_score, score)
        height = np.where(gained, new_height, height)
        ahead, reach = _next(steps, changes, score, 2.0 * size)
        direction = np.where(moved, ahead, direction)
        length = np.where(gained, reach, length)
        expected = 0.5 * np.sum(direction * score, axis=1) * np.minimum(length, 1.0)
        done |= gained & (expected < NO_GAIN)
    return position * scale, np.where(done, height, -np.inf)


def _next(
    steps: np.ndarray, changes: np.ndarray, score: np.ndarray, reach: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Direction and length of the next steps: L-BFGS, or the gradient if nothing is remembered."""
    products = np.sum(steps * changes, axis=2)
    known = products > 0
    weight = np.where(known, 1.0 / np.where(known, products, 1.0), 0.0)
    direction, shares = score, []
    for k in range(MEMORY):
        share = weight[k] * np.sum(steps[k] * direction, axis=1)
        direction = direction - share[:, None] * changes[k]
        shares.append(share)
    square = np.maximum(np.sum(changes[0] ** 2, axis=1), 1e-300)
    direction = direction * np.where(known[0], products[0] / square, 1.0)[:, None]
    for k in reversed(range(MEMORY)):
        back = weight[k] * np.sum(changes[k] * direction, axis=1)
        direction = direction + (shares[k] - back)[:, None] * steps[k]
    usable = known[0] & (np.sum(direction * score, axis=1) > 0)
    usable &= np.isfinite(direction).all(axis=1)
    steepest = np.minimum(reach, 1e3) / np.maximum(np.linalg.norm(score, axis=1), 1e-30)
    return np.where(usable[:, None], direction, score), np.where(usable, 1.0, steepest)
