"""Every move leaves the prior above a contour unchanged: exact draws stay exact draws."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import weighbridge as wb
from weighbridge.core.compilation import in_double_precision
from weighbridge.estimators.clusters import find_clusters
from weighbridge.estimators.nested.guides import Guide
from weighbridge.estimators.nested.moves.by_name import WALKS, find_move
from weighbridge.estimators.nested.moves.walk import Contour, Place
from weighbridge.estimators.nested.prior_draws import draw_above
from weighbridge.estimators.nested.scripts import draw_script
from weighbridge.estimators.nested.walkers import Density
from weighbridge.models.targets.all_rows import likelihood_term
from weighbridge.models.targets.host import host_likelihood

NUM_WALKERS, NUM_MOVES = 2000, 30
# The contour: an ellipse that is not centred where the prior is, so that both of them matter.
CENTRE, WIDTHS = np.array([0.8, -0.3]), np.array([1.0, 0.3])
LEVEL = -0.5
WITH_GRADIENT = ("galilean", "sghmc")
# 26 p-values of this file: a bound of 1e-4 for each is a false-alarm rate of 1 in 400.
SIGNIFICANT = 1e-4


def ellipse(p):
    return -0.5 * jnp.sum(((p["x"] - CENTRE) / WIDTHS) ** 2)


def ellipse_on_host(p):
    return -0.5 * np.sum(((np.asarray(p["x"]) - CENTRE) / WIDTHS) ** 2, axis=-1)


def problem(on_host):
    """A prior N(0, 1)^2 and the ellipse."""
    prior = {"x": dist.Normal(0.0, 1.0).expand([2]).to_event(1)}
    likelihood = ellipse_on_host if on_host else ellipse
    model = wb.Model(prior, total_log_likelihood=likelihood, on_host=on_host)
    term, _ = likelihood_term(model, None, None)
    host = host_likelihood(model, None, np.zeros((1, 3, 2)))
    return Density(model, term, host)


def exact_draws(generator, count):
    """Draws of the prior above the contour, by rejection without any code of the library."""
    draws = generator.standard_normal((40 * count, 2))
    level = ellipse_on_host({"x": draws})
    return draws[level > LEVEL][:count], level[level > LEVEL][:count]


def angle_and_size(position):
    """Two numbers that describe where within the ellipse a point is."""
    away = (position - CENTRE) / WIDTHS
    return np.arctan2(away[:, 1], away[:, 0]), np.sum(away**2, axis=1)


def walk_of(name, seed, on_host=False):
    """Walkers that start at exact draws, with directions from other exact draws."""
    generator = np.random.default_rng(seed)
    position, level = exact_draws(generator, NUM_WALKERS)
    others, _ = exact_draws(generator, 200)
    log_prior = -0.5 * np.sum(position**2, axis=1) - math.log(2 * math.pi)
    place = Place(position, log_prior, level, generator.random(NUM_WALKERS))
    contour = Contour(np.full(NUM_WALKERS, LEVEL), np.full(NUM_WALKERS, 0.5))
    guides = [Guide(np.arange(NUM_WALKERS), others, find_clusters(others))]
    script = draw_script(name, generator, guides, 0.9, NUM_MOVES, NUM_MOVES)
    with in_double_precision():
        walk = find_move(name, None).walk
        found = problem(on_host).walk(walk, place, contour, script, generator)
    assert found.place.log_likelihood.min() > LEVEL
    # They have moved. (Steps of the published SGHMC have the length 0.03.)
    away = np.abs(found.place.position - position) / WIDTHS
    assert np.mean(away) > (0.05 if name == "sghmc" else 0.4)
    return found


def walked(name, seed, on_host=False):
    """New points above the contour, from exact draws."""
    if name != "prior":
        return walk_of(name, seed, on_host).place.position
    contour = Contour(np.full(4, LEVEL), np.full(4, 0.5))
    with in_double_precision():
        count, generator = NUM_WALKERS // 4, np.random.default_rng(seed)
        found = draw_above(problem(on_host), contour, np.arange(4), count, generator)
    return found.place.position.reshape(-1, 2)


CASES = [(name, False) for name in WALKS]
CASES += [(name, True) for name in WALKS if name not in WITH_GRADIENT]


@pytest.mark.parametrize(("name", "on_host"), CASES)
def test_exact_draws_stay_exact_draws(name, on_host):
    expected = angle_and_size(exact_draws(np.random.default_rng(99), 20_000)[0])
    for seed in (0,) if on_host else (0, 1):
        found = angle_and_size(walked(name, seed, on_host))
        for one, other in zip(found, expected):
            assert stats.ks_2samp(one, other).pvalue > SIGNIFICANT


def test_a_reflection_without_the_test_of_the_prior_would_be_found():
    """The same test rejects a move that ignores the prior's density: uniform in the ellipse."""
    generator = np.random.default_rng(0)
    away = generator.uniform(-1, 1, (3 * NUM_WALKERS, 2))
    uniform = CENTRE + WIDTHS * away[np.sum(away**2, axis=1) < 1][:NUM_WALKERS]
    found = angle_and_size(uniform)
    expected = angle_and_size(exact_draws(np.random.default_rng(99), 20_000)[0])
    assert stats.ks_2samp(found[0], expected[0]).pvalue < SIGNIFICANT


@pytest.mark.parametrize("name", ["galilean", "prior"])
def test_the_same_seed_gives_the_same_numbers(name):
    assert np.array_equal(walked(name, 3), walked(name, 3))
    assert not np.array_equal(walked(name, 3), walked(name, 4))


def test_galilean_steps_advance_or_are_reflected_but_seldom_turn_back():
    found = walk_of("galilean", 5)
    assert found.num_accepted.mean() > 0.75 * NUM_MOVES
    assert found.num_evaluations > 1.1 * NUM_WALKERS * NUM_MOVES


def box(dimension, half, log_likelihood, **options):
    prior = {"x": dist.Uniform(-half, half).expand([dimension]).to_event(1)}
    return wb.Model(prior, total_log_likelihood=log_likelihood, **options)


def normal(p):
    return jnp.sum(dist.Normal(0.0, 1.0).log_prob(p["x"]))


@pytest.mark.parametrize(
    ("method", "dimension"),
    [
        (wb.NestedSampling(num_live=200, moves="galilean"), 3),
        (wb.NestedSampling(num_live=200, moves="sghmc"), 3),
        (wb.NestedSampling(num_live=200, moves=wb.SGHMC(step_size=3e-3, friction=0.2)), 3),
        (wb.NestedSampling(num_live=2, num_islands=1, moves="sghmc"), 3),
        (wb.NestedSampling(num_live=100, moves="prior"), 1),
    ],
)
def test_the_evidence_in_units_of_its_error(method, dimension):
    """Ten comparisons: a bound of 4 errors has a false-alarm rate of 1 in 1,500."""
    model, exact = box(dimension, 10.0, normal), -dimension * math.log(20.0)
    for seed in (0, 1):
        result = wb.evidence(model, None, method, seed=seed)
        assert abs(result.log_evidence - exact) < 4 * result.std_error
        assert result.std_error < (2.0 if method.num_live == 2 else 0.3)
        again = wb.evidence(model, None, method, seed=seed)
        assert result.log_evidence == again.log_evidence


def test_rejection_ends_with_a_flag_where_it_is_hopeless(monkeypatch):
    monkeypatch.setattr("weighbridge.estimators.nested.run.LEAST_PRIOR_VOLUME", -4.0)
    method = wb.NestedSampling(num_live=100, moves="prior")
    result = wb.evidence(box(3, 10.0, normal), None, method)
    assert result.status is wb.Status.STOPPED_EARLY
    assert result.diagnostics["ended"] == "prior_too_wide"
    assert abs(result.log_evidence + 3 * math.log(20.0)) < 4 * result.claimed_error


@pytest.mark.parametrize("moves", [*WITH_GRADIENT, wb.SGHMC()])
def test_a_likelihood_without_gradients_is_refused(moves):
    model = box(2, 10.0, ellipse_on_host, on_host=True)
    with pytest.raises(wb.ModelError, match='"slice"'):
        wb.evidence(model, None, wb.NestedSampling(moves=moves))


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        (wb.NUTS(), "moves is one of"),
        (wb.SGHMC(step_size=-1.0), "step_size > 0"),
        (wb.SGHMC(friction=2.0), "friction in"),
        (wb.SGHMC(gradient_noise=1.0), "only step_size and friction"),
        (wb.SGHMC(step_size=wb.RobbinsMonro()), "numbers"),
    ],
)
def test_settings_out_of_range_are_refused(moves, message):
    with pytest.raises(wb.MethodError, match=message):
        wb.NestedSampling(moves=moves)
