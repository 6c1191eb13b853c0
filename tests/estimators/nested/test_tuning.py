"""The number of moves follows the memory of walks, within bounds."""

import numpy as np

from weighbridge.estimators.nested.moves.walk import Place
from weighbridge.estimators.nested.points import Points
from weighbridge.estimators.nested.tuning import AIM, Tuning, memory


def after(tuning, remembered, batches=60):
    for _ in range(batches):
        tuning = tuning.after(remembered, 0.5, 3, None)
    return tuning


def test_walks_grow_with_memory_and_shrink_to_the_floor():
    first = Tuning.first(3, walks=False)
    assert first.num_moves(False) == 8
    assert after(first, 0.0).num_moves(False) == 8
    longer = after(first, AIM + 0.1, batches=20)
    assert longer.num_moves(False) > 8
    assert after(longer, 0.0).num_moves(False) == 8
    assert after(first, 1.0).num_moves(False) == 220
    assert first.after(0.9, 0.5, 3, 5).num_moves(False) == 5
    assert Tuning.first(3, walks=True).num_moves(False) == 80


def test_memory_is_the_rank_correlation_within_islands():
    generator = np.random.default_rng(0)
    level = np.concatenate([generator.standard_normal(500), 100 + generator.standard_normal(500)])
    zeros, tie = np.zeros(1000), generator.random(1000)
    starts = Points(zeros, zeros, level, tie, zeros, zeros, zeros, zeros, zeros)
    assert memory(starts, Place(zeros, zeros, np.exp(level / 50), tie), 2) == 1.0
    others = np.concatenate([generator.standard_normal(500), generator.standard_normal(500) + 9])
    # The contours of the islands differ; the correlation has a standard error of 1 / sqrt(1000).
    assert abs(memory(starts, Place(zeros, zeros, others, tie), 2)) < 4 / np.sqrt(1000)


def test_walkers_that_jump_make_fewer_moves():
    tuning = Tuning.first(3, walks=False)
    assert tuning.num_moves(True) == 8
    for _ in range(3):
        tuning = tuning.after_jumps(1.0, 0.97, 0.5)
    assert (tuning.num_moves(True), tuning.num_moves(False)) == (2, 8)
    assert tuning.reach == Tuning.first(3, walks=False).reach
    for _ in range(3):
        tuning = tuning.after_jumps(0.1, 0.5, None)
    assert tuning.num_moves(True) == 8
    assert tuning.reach > Tuning.first(3, walks=False).reach
