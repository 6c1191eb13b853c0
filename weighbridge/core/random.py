"""Random numbers on the host: every stream of them has a name, and no two have the same.

A counter-based generator (Philox) is named by a seed, by what its numbers are for, and by up to
three more numbers: an island, a step, a chunk. Draws that are named apart are independent, in
whatever order they are made, and a run that is resumed makes those that it would have made.
"""

from __future__ import annotations

import enum

import numpy as np


@enum.unique
class Stream(enum.IntEnum):
    """What random numbers are for; one seed gives each of them numbers of its own."""

    BATCHES = 1
    STEPS = 2
    SETTLING = 3
    BRIDGES = 4
    SIMULATIONS = 5
    CHANGES = 7
    CHAINS = 11
    STARTS = 12
    CHAIN_BATCHES = 13
    CALIBRATION = 14
    PRIOR_DRAWS = 15
    ORDER_TESTS = 16
    ROW_ORDER = 17
    QUENCHING = 18
    PREDICTIONS = 19
    RESERVOIR = 20
    PILOT_DRAWS = 21
    GUIDE_ROWS = 22


def random_numbers(
    seed: int, stream: Stream, first: int = 0, second: int = 0, third: int = 0
) -> np.random.Generator:
    """The random numbers of a seed, for one purpose, and of up to three more names.

    Salmon, Moraes, Dror & Shaw (2011), Parallel random numbers: as easy as 1, 2, 3, SC '11.

    >>> named = [(), (1,), (0, 1), ()]
    >>> draws = [random_numbers(0, Stream.STEPS, *names).random() for names in named]
    >>> len(set(draws)), draws[0] == draws[3]
    (3, True)
    """
    # As arrays: a list of numbers, of which one is beyond 2^63, loses its last digits on the way.
    key = np.array([int(seed), int(stream)], np.uint64)
    counter = np.array([0, int(first), int(second), int(third)], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
