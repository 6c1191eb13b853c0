"""Random numbers have names, and no two the same."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.core.random import Stream, random_numbers
from weighbridge.estimators.sgais.preparation import FIRST_TURN, PAST

PACKAGE = Path(wb.__file__).parent
# Neighbours beyond 2^53, and beyond 2^63, are one number where they become floats on the way.
SEEDS = (0, 1, 2**62 + 1, 2**62 + 2, 2**63 - 1, 2**63 + 7, 2**63 + 8, 2**64 - 1)
# What a user calls with a seed of its own, and which draws nothing else.
BY_THEMSELVES = {
    "weighbridge/weighing/averaging.py",
    "weighbridge/estimators/maximization/simulated_annealing.py",
    "weighbridge/weighing/model_probabilities.py",
    "weighbridge/checking/model_check/gradients.py",
    "weighbridge/estimators/integration/integration.py",
    "weighbridge/checking/pointwise.py",
    "weighbridge/results/posterior.py",
    "weighbridge/checking/predictive.py",
    "weighbridge/results/evidence_result.py",
    "weighbridge/weighing/changes/segments.py",
}


def test_every_name_has_numbers_of_its_own():
    names = [(0,), (1,), (0, 1), (0, 0, 1), (1, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1)]
    named = itertools.product(SEEDS, Stream, names)
    drawn = [
        tuple(random_numbers(seed, what, *more).integers(0, 2**32, 4)) for seed, what, more in named
    ]
    assert len(set(drawn)) == len(drawn) == len(SEEDS) * len(Stream) * len(names)


def test_a_name_that_is_left_out_is_zero():
    bare, full = random_numbers(3, Stream.STEPS), random_numbers(3, Stream.STEPS, 0, 0, 0)
    np.testing.assert_array_equal(bare.random(8), full.random(8))


def test_long_draws_do_not_run_into_the_next_name():
    """The names are the high words of the counter, which draws never reach."""
    first = random_numbers(0, Stream.STEPS).integers(0, 2**63, 100_000)
    second = random_numbers(0, Stream.STEPS, 1).integers(0, 2**63, 100_000)
    assert not set(first) & set(second)


def test_no_other_file_makes_streams():
    """One made by hand may have the name of another: prediction and bridge once shared theirs."""
    by_name = re.compile(r"Philox\(")
    by_seed = re.compile(r"Philox\(|default_rng\((?!0)|SeedSequence")
    found = []
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE.parent))
        if name == "weighbridge/core/random.py" or path.parent.name == "zoo":
            continue
        code = re.sub(r"(>>>|\.\.\.) .*", "", path.read_text())
        if (by_name if name in BY_THEMSELVES else by_seed).search(code):
            found.append(name)
    assert not found


def test_the_type_of_a_seed_does_not_matter():
    seed = 2**62 + 1
    drawn = {
        random_numbers(s, Stream.STEPS).random() for s in (seed, np.uint64(seed), np.int64(seed))
    }
    assert len(drawn) == 1


def test_more_names_than_there_is_room_for_are_refused():
    with pytest.raises(TypeError):
        random_numbers(0, Stream.STEPS, 1, 2, 3, 4)


def test_rounds_of_islands_keep_other_rows():
    kept = []
    for first_island in (0, 0, 16):
        method = wb.SGAIS(num_islands=4, num_particles=8, reservoir=1_000)
        run = method.start(wb.zoo.gaussian.model(), seed=1, first_island=first_island)
        run.ledger.rows.append(np.arange(5_000.0), np.ones(5_000))
        kept.append(set(run.ledger.rows.gather(np.arange(1_000))[0]))
    assert kept[0] == kept[1] != kept[2]


def test_rounds_of_few_islands_have_batches_of_their_own():
    """Also the batches that only measure the noise, of which there are more than islands."""
    drawn = []
    for first_island in (0, 4, 8):
        run = wb.SGAIS(num_islands=4).start(
            wb.zoo.gaussian.model(), seed=0, first_island=first_island
        )
        generators = run.preparation().generators(PAST, FIRST_TURN)
        drawn += [tuple(generator.integers(0, 10**6, 8)) for generator in generators]
    assert len(set(drawn)) == len(drawn) == 3 * 8
