"""Warm-up: Stan's windows, dual averaging to its target, Welford against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weighbridge as wb
from weighbridge.sampling.warmup.dual_averaging import DualAveraging, first_step_size
from weighbridge.sampling.warmup.metric import Spread
from weighbridge.sampling.warmup.windows import plan_windows


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("num_warmup", [0, 1, 19, 20, 100, 149, 150, 151, 175, 300, 1000, 5000])
def test_windows_fill_the_warmup(num_warmup):
    windows = plan_windows(num_warmup)
    assert sum(window.length for window in windows) == num_warmup
    assert all(window.length > 0 for window in windows)
    if num_warmup >= 20:
        assert not windows[0].learns_metric
        assert not windows[-1].learns_metric
        assert all(window.learns_metric for window in windows[1:-1])


def test_windows_are_those_of_the_reference_manual():
    lengths = [window.length for window in plan_windows(1000)]
    assert lengths == [75, 25, 50, 100, 200, 500, 50]
    assert [window.length for window in plan_windows(100)] == [15, 75, 10]


@pytest.mark.parametrize("dense", [False, True])
def test_the_spread_is_what_numpy_says(dense):
    draws = np.random.default_rng(0).normal(size=(50, 3)) @ np.diag([1.0, 5.0, 0.1]) + 100.0
    spread = Spread.start(3, dense=dense)
    for draw in draws:
        spread = spread.update(draw)
    np.testing.assert_allclose(spread.mean, draws.mean(0))
    covariance = np.cov(draws.T)
    wanted = covariance if dense else np.diag(covariance)
    np.testing.assert_allclose(spread.scatter / 49, wanted, rtol=1e-9)
    shrunk = 50 / 55 * covariance + 1e-3 * 5 / 55 * np.eye(3)
    scale = spread.scale()
    found = scale @ scale.T if dense else scale**2
    np.testing.assert_allclose(found, shrunk if dense else np.diag(shrunk), rtol=1e-9)


def test_no_draws_make_a_metric_all_the_same():
    assert np.all(np.isfinite(Spread.start(2, dense=True).scale()))
    assert np.all(Spread.start(2, dense=False).scale() > 0)


def test_dual_averaging_finds_the_step_size_of_its_target():
    """Acceptance e^-step: 0.8 at a step size of -log 0.8."""
    rng = np.random.default_rng(0)
    tuning = DualAveraging.start(5.0)
    for _ in range(2000):
        noise = 0.1 * rng.normal()
        tuning = tuning.update(np.clip(np.exp(-np.exp(tuning.log_step)) + noise, 0, 1), 0.8)
    assert np.exp(tuning.log_average) == pytest.approx(-np.log(0.8), rel=0.1)


def test_the_first_updates_are_those_of_stan():
    """By hand: t0 = 10, gamma = 0.05, kappa = 0.75."""
    tuning = DualAveraging.start(1.0)
    mu = np.log(10.0)
    deficit, average = 0.0, 0.0
    for t, acceptance in enumerate([0.3, 0.9, 1.0], start=1):
        tuning = tuning.update(acceptance, 0.8)
        eta = 1 / (t + 10)
        deficit = (1 - eta) * deficit + eta * (0.8 - acceptance)
        log_step = mu - deficit * np.sqrt(t) / 0.05
        average = t**-0.75 * log_step + (1 - t**-0.75) * average
        assert float(tuning.log_step) == pytest.approx(log_step)
        assert float(tuning.log_average) == pytest.approx(average)


@pytest.mark.parametrize("begin", [1e-6, 0.01, 1.0, 1e3])
@pytest.mark.parametrize("deviation", [1e-3, 1.0, 50.0])
def test_the_first_step_size_has_the_size_of_the_density(begin, deviation):
    def density(position):
        return -0.5 * jnp.sum((position / deviation) ** 2)

    kernel = wb.HMC()
    state = kernel.init(0.5 * deviation * jnp.ones(4), density)
    uniform = jax.random.uniform(jax.random.key(0), (5,))
    found = jax.jit(lambda begin: first_step_size(uniform, state, density, begin, 1.0))(begin)
    assert 0.2 * deviation < float(found) < 4.1 * deviation
    # In the metric of the density it is the same number, whatever the metric.
    scaled = jax.jit(lambda begin: first_step_size(uniform, state, density, begin, deviation))
    assert 0.2 < float(scaled(begin)) < 4.1


def test_a_density_without_a_scale_ends_the_search():
    state = wb.HMC().init(jnp.zeros(1), lambda u: 0.0 * u[0])
    uniform = jnp.full(2, 0.5)
    found = first_step_size(uniform, state, lambda u: 0.0 * u[0], 1.0, 1.0)
    assert float(found) >= 1e7
