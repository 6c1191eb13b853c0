"""Samples of weighted items: their chances, the weights that they stand for, bad input."""

import math

import numpy as np
import pytest
from scipy import stats

from weighbridge.core.errors import DataError
from weighbridge.core.weighted_reservoir import WeightedReservoir, sample_weighted

NUM_DRAWS = 4000
# About a hundred binomial counts: a false alarm of any of them has a probability below 1e-4.
SIGMAS = 5.0
WEIGHTS = {
    "even": np.ones(9),
    "growing": 1.5 ** np.arange(12),
    "falling": 1.5 ** -np.arange(12.0),
    "heavy first": np.array([50.0, 1.0, 2.0, 1.0, 3.0, 1.0, 2.0, 1.0]),
    "heavy last": np.array([1.0, 2.0, 1.0, 3.0, 1.0, 2.0, 1.0, 50.0]),
    "two heavy ones": np.array([1.0, 40.0, 2.0, 1.0, 30.0, 1.0, 1.0, 2.0]),
    "with zeros": np.array([0.0, 2.0, 0.0, 0.7, 1.0, 0.0, 3.0, 0.4]),
    "tiny beside large": np.array([1e-300, 1.0, 1e-300, 1.0, 0.5, 0.3, 1e-300, 0.1]),
}


def chances(weights, size):
    """min(1, w / tau) with the tau for which they add up to the size, by bisection."""
    low, high = 0.0, float(weights.sum())
    for _ in range(2000):
        tau = 0.5 * (low + high)
        low, high = (tau, high) if np.minimum(1, weights / tau).sum() > size else (low, tau)
    return np.minimum(1, weights / high)


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("size", [1, 3])
def test_chances_are_those_of_the_weights(name, size):
    weights = WEIGHTS[name]
    expected = chances(weights, size)
    counts, estimates = np.zeros(len(weights)), np.zeros(len(weights))
    for seed in range(NUM_DRAWS):
        items, stand_for = sample_weighted(np.random.default_rng(seed), weights, size)
        assert len(set(items.tolist())) == size
        counts[items] += 1
        estimates[items] += stand_for
    error = np.sqrt(NUM_DRAWS * expected * (1 - expected))
    assert np.all(np.abs(counts - NUM_DRAWS * expected) <= SIGMAS * error + 1e-6)
    # What the items stand for adds up to the weights, in the mean.
    threshold = np.divide(weights, expected, out=np.zeros_like(weights), where=expected > 0)
    error = threshold * error / NUM_DRAWS
    assert np.all(np.abs(estimates / NUM_DRAWS - weights) <= SIGMAS * error + 1e-9)


def test_pairs_of_items_never_have_more_than_independent_chances():
    """Chao's plan: a pair of items is not sampled together more often than by independence."""
    weights, size = np.array([1.0, 2.0, 3.0, 4.0, 2.0, 1.0]), 3
    together = np.zeros((6, 6))
    for seed in range(NUM_DRAWS):
        items, _ = sample_weighted(np.random.default_rng(seed), weights, size)
        together[np.ix_(items, items)] += 1 / NUM_DRAWS
    single = chances(weights, size)
    apart = ~np.eye(6, dtype=bool)
    margin = SIGMAS * np.sqrt(np.outer(single, single) / NUM_DRAWS)
    assert np.all((together <= np.outer(single, single) + margin)[apart])


def test_the_chances_hold_at_every_time_of_a_stream():
    weights = WEIGHTS["heavy first"]
    counts = np.zeros((len(weights) + 1, len(weights)))
    for seed in range(NUM_DRAWS):
        reservoir, uniform = WeightedReservoir(2), np.random.default_rng(seed).random(len(weights))
        for item, weight in enumerate(weights):
            reservoir.add(item, weight, uniform[item])
            counts[item + 1, reservoir.items()] += 1
            assert reservoir.weights().sum() == pytest.approx(weights[: item + 1].sum(), rel=1e-12)
    for time in range(3, len(weights) + 1):
        expected = chances(weights[:time], 2)
        p_values = [
            stats.binomtest(int(count), NUM_DRAWS, min(chance, 1.0)).pvalue
            for count, chance in zip(counts[time], expected)
        ]
        assert min(p_values) > 1e-5


def test_few_items_are_all_kept_with_their_weights():
    items, weights = sample_weighted(np.random.default_rng(0), np.array([0.0, 2.0, 1.0]), 4)
    assert items.tolist() == [1, 2]
    assert weights.tolist() == [2.0, 1.0]
    items, weights = sample_weighted(np.random.default_rng(0), np.zeros(3), 4)
    assert len(items) == len(weights) == 0


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_bad_weights_are_refused(weight):
    with pytest.raises(DataError, match="finite"):
        WeightedReservoir(2).add(0, weight, 0.5)


def test_a_reservoir_without_room_is_refused():
    with pytest.raises(DataError, match="at least 1"):
        WeightedReservoir(0)
