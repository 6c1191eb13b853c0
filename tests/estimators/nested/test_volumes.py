"""Volumes, shells and sums, against what is known exactly."""

import math

import numpy as np
import pytest

from weighbridge.estimators.nested.insertion import insertion_test, sequential_ranks
from weighbridge.estimators.nested.points import PRIOR_CONTOUR, Points, joined, num_live
from weighbridge.estimators.nested.volumes import (
    information,
    linear_error,
    log_shrinkage,
    log_sums,
    simulated_error,
)


def perfect_run(num_live, num_dead, seed, at_once=1):
    """Nested sampling with exact draws of the likelihood L(X) = X^(-1/2), whose Z is 2."""
    generator = np.random.default_rng(seed)
    live = [(x, *PRIOR_CONTOUR, -1, 0) for x in generator.random(num_live)]
    dead = []
    while len(dead) < num_dead:
        live.sort(reverse=True)
        dead += live[:at_once]
        survivors, top = live[at_once:], live[at_once - 1][0]
        new = top * generator.random(at_once)
        ranks, among = sequential_ranks(
            (-np.array([[x for x, *_ in survivors]]), np.zeros((1, len(survivors)))),
            (-new[None], np.zeros((1, at_once))),
        )
        births = zip(new, ranks[0], among[0])
        live = survivors + [(x, -0.5 * math.log(top), 0.5, i, n) for x, i, n in births]
    x, birth, birth_tie, insertion, among = map(np.array, zip(*dead, *sorted(live, reverse=True)))
    none = np.zeros(len(x))
    return Points(
        none, none, -0.5 * np.log(x), none + 0.5, birth, birth_tie, insertion, among, none
    )


def log_evidence(points, rule="exponential"):
    points = points.sorted()
    return log_sums(points.log_likelihood, log_shrinkage(num_live(points), rule)).trapezium


def test_live_points_of_a_batch_are_counted_one_by_one():
    nlive = num_live(perfect_run(10, 12, 0, at_once=4).sorted())
    assert nlive[:12].tolist() == [10, 9, 8, 7] * 3
    assert nlive[12:].tolist() == list(range(10, 0, -1))


def test_merged_runs_have_the_sum_of_their_live_points():
    both = joined([perfect_run(10, 50, 0), perfect_run(30, 150, 1)]).sorted()
    nlive = num_live(both)
    assert nlive[0] == 40
    assert nlive[-1] == 1
    assert nlive[:30].tolist() == [40] * 30


@pytest.mark.parametrize("at_once", [1, 10, 19])
def test_exact_draws_give_the_exact_evidence_and_its_error(at_once):
    """z over 60 runs: |mean| < 0.5 and sd in [0.7, 1.35] are 3.9 and 3.3 of their errors."""
    z = []
    for seed in range(60):
        points = perfect_run(20, 200, seed, at_once).sorted()
        nlive = num_live(points)
        sums = log_sums(points.log_likelihood, log_shrinkage(nlive))
        error = simulated_error(points.log_likelihood, nlive, seed, 0)
        assert error == pytest.approx(linear_error(sums, points.log_likelihood, nlive), rel=0.5)
        z.append((sums.trapezium - math.log(2)) / error)
    assert abs(np.mean(z)) < 0.5
    assert 0.7 < np.std(z) < 1.35


def test_the_sums_are_in_order_and_their_mean_is_the_trapezium():
    points = perfect_run(20, 200, 3).sorted()
    sums = log_sums(points.log_likelihood, log_shrinkage(num_live(points)))
    assert sums.lower < sums.trapezium < sums.upper
    assert np.logaddexp.reduce(sums.log_weights) == pytest.approx(0.0, abs=1e-12)
    # The first shell has L_1 in the trapezium and 0 in the lower sum.
    first = math.exp(points.log_likelihood[0]) * -math.expm1(-1 / 20)
    mean = 0.5 * (math.exp(sums.lower) + math.exp(sums.upper) + first)
    assert math.exp(sums.trapezium) == pytest.approx(mean, rel=1e-12)


def test_the_two_shrinkages_differ_as_they_should():
    """By (E[-log X] - 1) / 2M, which is about H / 2M for a narrow posterior; here E[-log X] = 2."""
    points = perfect_run(50, 600, 1).sorted()
    level, nlive = points.log_likelihood, num_live(points)
    one, other = (log_sums(level, log_shrinkage(nlive, r)) for r in ("exponential", "mean"))
    assert other.trapezium - one.trapezium == pytest.approx(1 / 100, rel=0.3)
    # H = E[log L] - log Z = 1 - log 2.
    spent = information(one.log_weights, level, one.trapezium)
    assert spent == pytest.approx(1 - math.log(2), abs=0.15)


def test_a_constant_likelihood_is_exact_for_any_volumes():
    level, nlive = np.full(40, -7.5), np.arange(40, 0, -1)
    assert log_sums(level, log_shrinkage(nlive)).trapezium == pytest.approx(-7.5)
    assert simulated_error(level, nlive, 0, 0) == pytest.approx(0.0, abs=1e-12)


def test_points_at_minus_infinity_count_in_the_volume():
    level = np.concatenate([np.full(30, -np.inf), np.zeros(10)])
    nlive = np.arange(40, 0, -1)
    found = log_sums(level, log_shrinkage(nlive)).trapezium
    # Half of the shell between the last -inf and the first 0 belongs to either.
    half = math.log1p(0.5 * math.expm1(-1 / 10))
    assert found == pytest.approx(half - np.sum(1 / nlive[:30]))


def test_ranks_one_by_one_are_uniform_where_shared_survivors_are_not():
    """P-values of 200 perfect runs are uniform: at 5 %, 10 +- 3.1 rejections are expected."""
    rejected = 0
    for seed in range(200):
        points = perfect_run(20, 200, seed, at_once=10)
        test = insertion_test(points.insertion, points.among, np.random.default_rng(seed))
        rejected += test.p_value < 0.05
    assert 1 <= rejected <= 21


def test_ranks_of_copies_are_found():
    insertion, among = np.full(400, 3), np.full(400, 20)
    test = insertion_test(insertion, among, np.random.default_rng(0))
    assert test.p_value < 1e-6
    assert test.rolling_p_value < 1e-6
