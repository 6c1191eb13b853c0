"""The points that shape the moves of a walker do not depend on where it starts."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import stats

import weighbridge as wb
from weighbridge.core.compilation import in_double_precision
from weighbridge.estimators.clusters import find_clusters
from weighbridge.estimators.nested.guides import FOLDS, Guide, find_guides
from weighbridge.estimators.nested.moves.by_name import find_move
from weighbridge.estimators.nested.moves.walk import Contour, Place
from weighbridge.estimators.nested.scripts import draw_script
from weighbridge.estimators.nested.walkers import Density
from weighbridge.models.targets.all_rows import likelihood_term

# 24 points in 10 dimensions, as in the thin run with the default settings.
DIMENSION, NUM_POINTS, NUM_SETS = 10, 24, 200
# The contour: a ball in which half of the prior N(0, 1)^10 is.
INSIDE = 0.5
BALL = stats.chi2(DIMENSION).ppf(INSIDE)


def half_square(p):
    return -0.5 * jnp.sum(p["x"] ** 2)


def exact_draws(generator):
    """Draws of the prior in the ball, sets x points x coordinates."""
    shape = (NUM_SETS, NUM_POINTS, DIMENSION)
    away = generator.standard_normal(shape)
    square = stats.chi2(DIMENSION).ppf(INSIDE * generator.random((*shape[:2], 1)))
    return away * np.sqrt(square / np.sum(away**2, axis=2, keepdims=True))


def from_all(generator, position, own):
    """What is wrong: the point at which a walker starts shapes its moves."""
    return [Guide(np.arange(len(own)), position, find_clusters(position))]


def mean_rank_after_walks(guides_of, num_moves):
    """Mean share of the prior below walkers from exact draws, less a half, in standard errors."""
    generator = np.random.default_rng(0)
    sets, guides = exact_draws(generator), []
    for number, points in enumerate(sets):
        for guide in guides_of(generator, points, np.arange(NUM_POINTS)):
            guides.append(guide._replace(walkers=guide.walkers + number * NUM_POINTS))
    position = sets.reshape(-1, DIMENSION)
    squares = np.sum(position**2, axis=1)
    log_prior = -0.5 * squares - 0.5 * DIMENSION * math.log(2 * math.pi)
    place = Place(position, log_prior, -0.5 * squares, np.full(len(squares), 0.5))
    contour = Contour(np.full(len(squares), -0.5 * BALL), np.full(len(squares), 0.5))
    prior = {"x": dist.Normal(0.0, 1.0).expand([DIMENSION]).to_event(1)}
    model = wb.Model(prior, total_log_likelihood=half_square)
    script = draw_script("slice", generator, guides, 1.0, num_moves, 16)
    with in_double_precision():
        density = Density(model, likelihood_term(model, None, None)[0], None)
        found = density.walk(find_move("slice", None).walk, place, contour, script, generator)
    ended = np.sum(found.place.position**2, axis=1).reshape(NUM_SETS, NUM_POINTS)
    means = np.mean(stats.chi2(DIMENSION).cdf(ended) / INSIDE, axis=1)
    return (means.mean() - 0.5) / (means.std(ddof=1) / math.sqrt(NUM_SETS))


def test_exact_draws_stay_exact_draws_where_few_points_shape_the_moves():
    """A false-alarm rate of 1 in 15,000. With their own points the same walkers are too high."""
    num_moves = DIMENSION + 1
    assert abs(mean_rank_after_walks(find_guides, num_moves)) < 4.0
    assert mean_rank_after_walks(from_all, num_moves) < -4.0


def test_no_walker_starts_at_a_point_that_shapes_its_moves():
    generator = np.random.default_rng(1)
    position = generator.standard_normal((30, 2))
    # Copies of one point are in one fold.
    own = generator.integers(0, 30, 80)
    guides = find_guides(generator, position, own)
    assert len(guides) == FOLDS
    assert sorted(np.concatenate([guide.walkers for guide in guides])) == list(range(80))
    for guide in guides:
        starts = position[own[guide.walkers]]
        assert not np.any(np.all(starts[:, None] == guide.points, axis=2))


def test_a_few_points_shape_all_moves():
    generator = np.random.default_rng(2)
    for count, folds in ((1, 1), (3, 1), (4, 4)):
        position = generator.standard_normal((count, 2))
        guides = find_guides(generator, position, np.arange(count))
        assert len(guides) == folds
        assert {len(guide.points) for guide in guides} == {count if folds == 1 else 3}
