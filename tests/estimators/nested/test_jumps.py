"""Jumps leave the prior above a contour unchanged, also where ellipsoids cut off a part of it."""

import math

import numpy as np
import pytest
from scipy import stats

import weighbridge as wb
from tests.estimators.nested.test_moves import (
    LEVEL,
    angle_and_size,
    ellipse_on_host,
    exact_draws,
    problem,
)
from weighbridge.core.compilation import in_double_precision
from weighbridge.core.status import Status
from weighbridge.estimators.nested.ellipsoids import Ellipsoids
from weighbridge.estimators.nested.guides import find_guides
from weighbridge.estimators.nested.jumps import MOST_TRIES, draw_jumps
from weighbridge.estimators.nested.moves.jump import JUMP
from weighbridge.estimators.nested.moves.walk import Contour, Place

NUM_WALKERS, BATCHES = 250, 24
# 14 p-values: a bound of 1e-4 for each is a false-alarm rate of 1 in 700.
SIGNIFICANT = 1e-4


def jumped(stretch, most_tries, on_host=False):
    """Walkers after one jump from exact draws, and the share that jumped."""
    found, shares = [], []
    with in_double_precision():
        density = problem(on_host)
    for seed in range(BATCHES):
        generator = np.random.default_rng(seed)
        position, level = exact_draws(generator, NUM_WALKERS)
        log_prior = -0.5 * np.sum(position**2, axis=1) - math.log(2 * math.pi)
        place = Place(position, log_prior, level, generator.random(NUM_WALKERS))
        contour = Contour(np.full(NUM_WALKERS, LEVEL), np.full(NUM_WALKERS, 0.5))
        with in_double_precision():
            guides = find_guides(generator, position, np.arange(NUM_WALKERS))
            script, _ = draw_jumps(density, generator, guides, place, stretch, most_tries)
            walked = density.walk(JUMP, place, contour, script, generator)
        assert walked.num_evaluations <= MOST_TRIES * NUM_WALKERS
        moved = np.any(walked.place.position != position, axis=1)
        np.testing.assert_array_equal(moved, walked.num_accepted == 1)
        level = ellipse_on_host({"x": walked.place.position})
        np.testing.assert_allclose(walked.place.log_likelihood, level)
        found.append(walked.place.position)
        shares.append(moved.mean())
    return np.concatenate(found), float(np.mean(shares))


@pytest.mark.parametrize(
    ("stretch", "most_tries", "on_host", "least", "most"),
    [(1.05, 16, False, 0.97, 1.0), (0.6, 16, False, 0.2, 0.7), (1.05, 1, True, 0.4, 0.95)],
)
def test_exact_draws_stay_exact_draws(stretch, most_tries, on_host, least, most):
    position, share = jumped(stretch, most_tries, on_host)
    assert least < share <= most
    expected = angle_and_size(exact_draws(np.random.default_rng(99), 40_000)[0])
    for one, other in zip(angle_and_size(position), expected):
        assert stats.ks_2samp(one, other).pvalue > SIGNIFICANT
    # The centre is not favoured: the share of walkers in the inner half of the prior mass.
    inner = np.mean(angle_and_size(position)[1] < np.median(expected[1]))
    assert abs(inner - 0.5) < 4 * 0.5 / math.sqrt(len(position))


def test_the_density_of_ellipsoids_is_that_of_their_draws():
    generator = np.random.default_rng(0)
    points = np.concatenate(
        [generator.standard_normal((60, 2)), 8 + 0.3 * generator.standard_normal((60, 2))]
    )
    guide = find_guides(generator, points, np.arange(len(points)))[0]
    region = Ellipsoids.around(guide, 1.1)
    assert len(region.mean) >= 2
    draws = region.draw(generator, 40_000)
    assert np.isfinite(region.log_density(draws)).all()
    # Importance weights of a uniform box: their mean is the area of the part that is covered.
    low, high = draws.min(axis=0), draws.max(axis=0)
    uniform = low + (high - low) * generator.random((40_000, 2))
    density = np.exp(region.log_density(uniform)) * np.prod(high - low)
    error = density.std() / math.sqrt(len(density))
    assert abs(density.mean() - 1.0) < 4 * error
    middle = draws[:, 0] < 4.0
    below = uniform[:, 0] < 4.0
    share = np.mean(density * below)
    assert abs(middle.mean() - share) < 4 * math.hypot(error, 0.5 / math.sqrt(len(draws)))


def test_elliptic_contours_need_few_evaluations():
    """Walkers jump, with a quarter of the moves; a number of moves that is given is made."""
    model, data = wb.zoo.gaussian.model(), wb.zoo.gaussian.simulate(50, seed=1)
    free = wb.evidence(model, data, wb.NestedSampling(num_live=200), seed=0, progress=False)
    fixed = wb.NestedSampling(num_live=200, num_moves=4)
    walked = wb.evidence(model, data, fixed, seed=0, progress=False)
    assert free.diagnostics["num_jumped"] > 0.9 * free.diagnostics["num_walkers"]
    assert free.diagnostics["moves_per_walk"] == 1
    assert walked.diagnostics["num_jumped"] == 0
    assert free.diagnostics["num_evaluations"] < 0.8 * walked.diagnostics["num_evaluations"]
    assert Status.TOO_FEW_MOVES not in free.flags
    exact = wb.zoo.gaussian.log_evidence(data)
    assert abs(free.log_evidence - exact) < 4 * free.std_error
