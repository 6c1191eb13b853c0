"""Population Monte Carlo: exact once fixed, and across modes; what ensembles do there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import weighbridge as wb
from tests.helpers.two_modes import (
    BOUND,
    LEFT,
    LOG_EVIDENCE,
    PRIOR,
    RIGHT,
    SIGMAS,
    VARIANCE,
    run,
    two_modes,
    z_score,
)
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.total import Total
from weighbridge.sampling.kernels.parts.mixture import (
    FittedMixture,
    draw_from,
    fitted,
    log_components,
    num_squares,
    spread_over,
    statistics_of,
)

MODEL = wb.Model(PRIOR, total_log_likelihood=two_modes)
TARGET = Target(MODEL, (Total(),))


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("degrees", [None, 5])
def test_it_gives_separated_modes_their_mass(degrees, seed):
    kernel = wb.PopulationMonteCarlo(4, degrees=degrees, num_adapt=60)
    rng = np.random.default_rng(seed)
    start = 10 * rng.normal(size=(16, kernel.num_walkers(2), 2))
    positions, info, _ = run(kernel, TARGET, start, 60, 60, seed)
    assert abs(z_score(np.mean(positions[..., 0] > 0, axis=(1, 2)), 0.7)) < BOUND
    assert abs(z_score(np.mean(positions[..., 1] ** 2, axis=(1, 2)), VARIANCE)) < BOUND
    # One minus the share of the component that does not learn, less what fits badly.
    assert np.median(info.perplexity) > 0.8
    assert np.median(info.ess) > 0.7 * kernel.num_walkers(2)
    assert np.mean(info.acceptance) > 0.8
    evidence = np.mean(np.exp(info.log_evidence - LOG_EVIDENCE), axis=1)
    assert abs(z_score(evidence, 1.0)) < BOUND


def tilted(u):
    """A normal with correlation 0.6, variances 1 and 4."""
    return -0.5 * u @ jnp.linalg.solve(COVARIANCE, u)


COVARIANCE = np.array([[1.0, 1.2], [1.2, 4.0]])


@pytest.mark.long
def test_a_fixed_proposal_is_exact_with_any_number_of_walkers():
    """Resampling six poor draws is biased; taking populations by their mean weight is not."""
    num_chains, walkers = 4000, 6
    kernel = wb.PopulationMonteCarlo(2, num_adapt=0)
    angle = 2 * np.pi * np.arange(walkers) / walkers
    ring = np.array([1.5, 1.5]) + 3.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    start = np.tile(ring, (num_chains, 1, 1))
    positions, info, state = run(kernel, jax.tree_util.Partial(tilted), start, 60, 0, 0)
    root = np.linalg.cholesky(COVARIANCE)
    means = []
    for step in (0, -1):
        standard = np.linalg.solve(root, positions[:, step].reshape(-1, 2).T).T
        means.append(standard.reshape(num_chains, walkers, 2))
    # Walkers of one population depend on each other, so that their means are what is tested.
    for moment, expected in ((1, 0.0), (2, 1.0)):
        first, last = ((draws**moment).mean(1) for draws in means)
        error = last.std(0, ddof=1) / np.sqrt(num_chains)
        assert np.all(np.abs(last.mean(0) - expected) < SIGMAS * error)
        if moment == 1:
            assert np.any(np.abs(first.mean(0)) > 10 * error), "without the test it is not exact"
    evidence = np.exp(info.log_evidence[:, 0]) / (2 * np.pi * np.sqrt(np.linalg.det(COVARIANCE)))
    assert abs(z_score(evidence, 1.0)) < SIGMAS
    # Nothing is learnt.
    with jax.enable_x64(True):
        begun = spread_over(jnp.asarray(ring), 2, 0.1)
    np.testing.assert_allclose(state.mixture.mean[0], begun.mean, rtol=1e-12)


def example_mixture():
    rng = np.random.default_rng(3)
    roots = np.tril(rng.normal(size=(3, 2, 2))) + 2 * np.eye(2)
    share = np.array([0.2, 0.5, 0.3])
    return FittedMixture(jnp.log(share), jnp.asarray(rng.normal(size=(3, 2))), jnp.asarray(roots))


@pytest.mark.parametrize("degrees", [None, 5])
def test_densities_of_a_mixture_are_those_of_scipy(degrees):
    with jax.enable_x64(True):
        mixture = example_mixture()
        places = np.random.default_rng(0).normal(size=(5, 2))
        components, distance = map(
            np.asarray, log_components(jnp.asarray(places), mixture, degrees)
        )
    for index, (mean, root) in enumerate(zip(*map(np.asarray, mixture[1:]))):
        scale = root @ root.T
        freedom = 3 if index == 2 else degrees
        law = (
            scipy.stats.multivariate_normal(mean, scale)
            if freedom is None
            else scipy.stats.multivariate_t(mean, scale, freedom)
        )
        expected = np.log(np.exp(mixture.log_weight[index])) + law.logpdf(places)
        np.testing.assert_allclose(components[:, index], expected, rtol=1e-6)
        away = places - mean
        np.testing.assert_allclose(
            distance[:, index], np.sum(away @ np.linalg.inv(scale) * away, axis=1), rtol=1e-9
        )


@pytest.mark.parametrize("degrees", [None, 5])
def test_draws_of_a_mixture_have_its_density(degrees):
    """The mean of f / q over draws from q is the integral of f, wherever f lies."""
    rng = np.random.default_rng(1)
    num = 40_000
    with jax.enable_x64(True):
        mixture = example_mixture()
        normal = jnp.asarray(rng.normal(size=(num, 2 + num_squares(degrees))))
        draws = draw_from(mixture, normal, jnp.asarray(rng.uniform(size=num)), degrees)
        components, _ = log_components(draws, mixture, degrees)
    log_proposal = np.logaddexp.reduce(np.asarray(components), axis=1)
    for centre in ([0.0, 0.0], [1.5, -1.0], [-3.0, 2.0]):
        law = scipy.stats.multivariate_normal(centre, 0.5 * np.eye(2))
        ratio = np.exp(law.logpdf(np.asarray(draws)) - log_proposal)
        assert abs(ratio.mean() - 1) < SIGMAS * ratio.std() / np.sqrt(num)


def learnt(places, log_weight):
    """A mixture of one component after one step."""
    tiny = 1e-12  # the share of the component that does not learn
    before = spread_over(places, 1, tiny)
    return fitted(statistics_of(places, log_weight, before, None), 400, before, tiny)


def test_one_component_learns_the_weighted_mean_and_covariance():
    rng = np.random.default_rng(2)
    places = 3.0 + rng.normal(size=(400, 2)) @ np.array([[1.0, 0.0], [0.5, 0.3]])
    log_weight = 0.3 * rng.normal(size=400)
    with jax.enable_x64(True):
        after = jax.jit(learnt)(places, log_weight)
    weight = np.exp(log_weight) / np.exp(log_weight).sum()
    np.testing.assert_allclose(after.mean[0], weight @ places, rtol=1e-6)
    away = places - weight @ places
    expected = (weight[:, None] * away).T @ away
    root = np.asarray(after.root[0])
    np.testing.assert_allclose(root @ root.T, expected, rtol=1e-5)


@pytest.mark.long
def test_weights_that_hang_on_one_draw_do_not_collapse_the_proposal():
    """A target a thousandth as wide as the first walkers."""

    def narrow(u):
        return -0.5 * jnp.sum((u - 0.3) ** 2) / 0.01**2

    kernel = wb.PopulationMonteCarlo(2, 128, num_adapt=80)
    start = 10 * np.random.default_rng(0).normal(size=(4, 128, 2))
    _, info, state = run(kernel, jax.tree_util.Partial(narrow), start, 5, 80, 0)
    assert np.all(info.perplexity[:, -1] > 0.6)
    assert np.all(np.isfinite(np.asarray(state.mixture.root)))
    exact = np.log(2 * np.pi * 0.01**2)
    np.testing.assert_allclose(info.log_evidence.mean(1), exact, atol=0.2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_components": 0}, "num_components must be"),
        ({"population": 1.5}, "population must be"),
        ({"degrees": True}, "degrees must be"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(wb.MethodError, match=message):
        wb.PopulationMonteCarlo(**settings)


def test_the_number_of_walkers_can_be_chosen():
    assert wb.PopulationMonteCarlo(population=50).num_walkers(3) == 50
    assert wb.PopulationMonteCarlo(8).num_walkers(10) == 1600


@pytest.mark.long
def test_a_stretching_ensemble_shares_out_modes_only_by_long_stretches():
    """Walkers find the mass ratio if stretches reach from mode to mode.

    By those of the usual length none crosses: the ratio stays as it began.
    """
    rng = np.random.default_rng(0)
    side = np.where(np.arange(20)[:, None] % 2, LEFT, RIGHT)
    start = side + rng.normal(size=(16, 20, 2))
    usual, *_ = run(wb.Stretch(), TARGET, start, 300, 0, 0)
    assert abs(np.mean(usual[:, -1, :, 0] > 0) - 0.5) < 0.05
    long, *_ = run(wb.Stretch(11.0), TARGET, start, 3000, 1000, 0)
    assert abs(z_score(np.mean(long[..., 0] > 0, axis=(1, 2)), 0.7)) < BOUND
    alone, *_ = run(wb.Stretch(), TARGET, LEFT + rng.normal(size=(16, 20, 2)), 300, 0, 0)
    assert np.mean(alone[..., 0] > 0) < 0.02, "from one mode the other is not found"
