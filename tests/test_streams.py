"""Random numbers have names, and no two the same."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import weighbridge
from weighbridge.reservoir import Reservoir
from weighbridge.streams import Stream, random_numbers

PACKAGE = Path(weighbridge.__file__).parent


def test_every_name_has_numbers_of_its_own():
    names = [(0,), (1,), (0, 1), (0, 0, 1), (1, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1)]
    named = itertools.product((0, 1, 2**63 - 1), Stream, names)
    drawn = [
        tuple(random_numbers(seed, what, *more).integers(0, 2**32, 4)) for seed, what, more in named
    ]
    assert len(set(drawn)) == len(drawn) == 3 * len(Stream) * len(names)


def test_a_name_that_is_left_out_is_zero():
    bare, full = random_numbers(3, Stream.STEPS), random_numbers(3, Stream.STEPS, 0, 0, 0)
    np.testing.assert_array_equal(bare.random(8), full.random(8))


def test_long_draws_do_not_run_into_the_next_name():
    """The names are the high words of the counter, which draws never reach."""
    first = random_numbers(0, Stream.STEPS).integers(0, 2**63, 100_000)
    second = random_numbers(0, Stream.STEPS, 1).integers(0, 2**63, 100_000)
    assert not set(first) & set(second)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_no_other_file_makes_streams(path):
    """One made by hand may have the name of another: prediction and bridge once shared theirs."""
    if path.name != "streams.py":
        assert not re.search(r"Philox\(", path.read_text())


def test_rounds_of_islands_keep_other_rows():
    kept = []
    for first_island in (0, 0, 16):
        reservoir = Reservoir(20, seed=1, first_island=first_island)
        reservoir.append(np.arange(1000.0), np.ones(1000))
        kept.append(set(reservoir.gather(np.arange(20))[0]))
    assert kept[0] == kept[1] != kept[2]
