"""Random numbers on the host: every stream has a name of its own.

A counter-based generator (Philox) is identified by a seed, by the purpose of its numbers, and by up
to three more numbers, for example an island, a step or a chunk. Streams with different names are
independent, in any order of drawing. A resumed run draws the same numbers as an uninterrupted one.
"""

from __future__ import annotations

import enum
from typing import Any

import jax
import numpy as np

from weighbridge.core.types import Array


@enum.unique
class Stream(enum.IntEnum):
    """The purpose of random numbers; one seed gives a separate stream for each purpose."""

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
    NESTED_WALKS = 23
    NESTED_VOLUMES = 24
    NESTED_RANKS = 25
    NESTED_CHUNKS = 31
    POSTERIOR_RUNS = 41
    BRIDGE_DRAWS = 42
    RATIOS = 46
    PRODUCT_SPACE = 47
    MODE_STARTS = 51
    LAPLACE_CHECK = 52
    PROPOSALS = 61
    POPULATIONS = 62
    MODE_DRAWS = 71


def random_numbers(
    seed: int, stream: Stream, first: int = 0, second: int = 0, third: int = 0
) -> np.random.Generator:
    """A generator for a seed and a purpose, with up to three more identifying numbers.

    Salmon, Moraes, Dror & Shaw (2011), Parallel random numbers: as easy as 1, 2, 3, SC '11.

    >>> named = [(), (1,), (0, 1), ()]
    >>> draws = [random_numbers(0, Stream.STEPS, *names).random() for names in named]
    >>> len(set(draws)), draws[0] == draws[3]
    (3, True)
    """
    # As arrays: in a list with a number above 2^63, NumPy would convert to floats and lose digits.
    key = np.array([int(seed), int(stream)], np.uint64)
    counter = np.array([0, int(first), int(second), int(third)], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def random_key(seed: int) -> Array:
    """The key of ``jax.random.key(seed)``, made on the host: nothing is compiled.

    >>> with jax.enable_x64(True):
    ...     bool(random_key(2**40 + 7) == jax.random.key(2**40 + 7, impl="threefry2x32"))
    True
    """
    high, low = divmod(int(seed) % 2**64, 2**32)
    key_data: Any = np.array([high, low], np.uint32)
    key: Array = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    return key
