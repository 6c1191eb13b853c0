"""One annealing step of all islands: weights on the host, moves in a compiled program."""

from __future__ import annotations

from typing import Any

import numpy as np

from weighbridge.estimators.annealing.cloud import Cloud, stretched
from weighbridge.estimators.annealing.moves.mover import Moved, settle
from weighbridge.estimators.annealing.path import Path, evaluate_chunk
from weighbridge.estimators.annealing.reweighting import Settings, StepInfo, weigh


def anneal_step(
    numbers: np.random.Generator,
    cloud: Cloud,
    power: float,
    path: Path,
    mover: Any,
    settings: Settings,
    *,
    chain_length: int = 1,
    patient: bool = False,
) -> tuple[Cloud, float, Any, StepInfo]:
    """One annealing step of all islands.

    Args:
        numbers: the random numbers of this step.
        cloud: the particles.
        power: their current power.
        path: the path of densities.
        mover: moves the particles.
        settings: see ``Settings``.
        chain_length: if more than 1, the number of resampled particles is smaller by this factor,
            and every state of the chains that start from them is kept (waste-free: Dau & Chopin
            2022, J. R. Stat. Soc. B 84:114-148).
        patient: whether particles move only if some were resampled (``patient_step``).

    Returns:
        The particles, their new power, the tuned mover, and the info of the step.
    """
    key_data = move_keys(numbers, len(cloud.position))
    raw = evaluate_chunk(path, cloud.position)
    weighed = weigh(numbers, cloud, raw, power, settings, chain_length)
    start, following = weighed.cloud, weighed.power
    if patient and not weighed.info.resampled.any():
        moved = Moved(start.position, (), mover)
    elif chain_length == 1:
        moved = mover.move(key_data, start, path, following)
    else:
        moved = mover.chain(key_data, start, path, following, weighed.population, chain_length)
        start = stretched(start, chain_length)
    cloud, num_diverged = settle(start, moved.position, moved.stable)
    info = weighed.info._replace(num_diverged=num_diverged, moves=moved.info)
    return cloud, following, moved.mover, info


def patient_step(
    numbers: np.random.Generator,
    cloud: Cloud,
    power: float,
    path: Path,
    mover: Any,
    settings: Settings,
) -> tuple[Cloud, float, Any, StepInfo]:
    """One annealing step, in which particles move only if some were resampled.

    It has no ``chain_length``: particles that do not move have no chain of states.
    """
    return anneal_step(numbers, cloud, power, path, mover, settings, patient=True)


def move_keys(numbers: np.random.Generator, num_islands: int) -> np.ndarray:
    """One raw key of JAX for each island, for the moves of a step."""
    return numbers.integers(0, 2**32, (num_islands, 2), np.uint32)
