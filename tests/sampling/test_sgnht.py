"""The thermostat against the law of its steps, with gradient noise that it is not told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import weighbridge as wb
from tests.helpers.noisy_chains import (
    CORRELATED,
    ILL_CONDITIONED,
    SIGMAS,
    assert_covariance,
    draws_of,
    momentum_law,
    normal,
    run,
    sgais,
)

NUM_CHAINS = 1_000
ETA, FRICTION = 0.002, 0.1


def settled(precision, noise, per_coordinate):
    """Friction at which the temperature is 1, and the covariance of positions there."""
    injected = 2 * FRICTION * ETA + ETA**2 * np.broadcast_to(noise, len(precision))

    def excess(friction):
        _, velocity = momentum_law(precision, ETA, friction, injected)
        temperature = (1 - friction / 2) * np.diag(velocity) / ETA
        return (temperature if per_coordinate else np.mean(temperature)) - 1

    guess = FRICTION + ETA * np.broadcast_to(noise, len(precision)) / 2
    if per_coordinate:
        friction = scipy.optimize.fsolve(excess, guess)
    else:
        friction = scipy.optimize.brentq(excess, 0.01, 0.9)
    return friction, momentum_law(precision, ETA, friction, injected)[0]


def assert_temperature_is_one(chains):
    temperature = chains.info.temperature
    error = temperature.std() / np.sqrt(len(temperature))
    assert abs(temperature.mean() - 1) < SIGMAS * error
    assert error < 0.005


@pytest.mark.parametrize("per_coordinate", [False, True])
@pytest.mark.parametrize("precision", [CORRELATED, ILL_CONDITIONED], ids=["correlated", "ill"])
def test_it_has_the_variance_of_its_steps(precision, per_coordinate):
    friction, expected = settled(precision, 0.0, per_coordinate)
    kernel = wb.SGNHT(ETA, FRICTION, rate=0.003, per_coordinate=per_coordinate)
    with jax.enable_x64(True):
        start = draws_of(precision, NUM_CHAINS)
        chains = run(kernel, normal(precision), start, 600)
    assert_covariance(chains, expected)
    assert_temperature_is_one(chains)
    np.testing.assert_allclose(chains.state.thermostat.mean(0), friction, atol=0.01)


@pytest.mark.parametrize("per_coordinate", [False, True])
def test_it_absorbs_noise_that_makes_sghmc_hot(per_coordinate):
    """From cold friction; a thermostat of the wrong sign would run away."""
    precision, noise = 10 * CORRELATED / np.diag(CORRELATED).max(), 200.0
    with jax.enable_x64(True):
        target, start = normal(precision, noise), draws_of(precision, NUM_CHAINS)
        kernel = wb.SGNHT(ETA, FRICTION, per_coordinate=per_coordinate)
        chains = run(kernel, target, start, 1000)
        hot = run(wb.SGHMC(ETA, FRICTION), target, start, 1000)
    friction, expected = settled(precision, noise, per_coordinate)
    assert_covariance(chains, expected)
    assert_temperature_is_one(chains)
    np.testing.assert_allclose(chains.info.thermostat.mean(), np.mean(friction), atol=0.02)
    assert np.all(friction > 2.5 * FRICTION)
    # Left to itself SGHMC has three times the variance, as its law says.
    injected = 2 * FRICTION * ETA + ETA**2 * noise
    assert_covariance(hot, momentum_law(precision, ETA, FRICTION, injected)[0])
    assert hot.info.temperature.mean() > 2.9
    assert np.abs(hot.errors(expected)).max() > 50


def test_coordinates_of_different_noise_want_thermostats_of_their_own():
    precision, noise = np.diag([5.0, 20.0]), np.array([0.0, 400.0])
    found = {}
    with jax.enable_x64(True):
        target, start = normal(precision, noise), draws_of(precision, NUM_CHAINS)
        for per_coordinate in (False, True):
            kernel = wb.SGNHT(ETA, FRICTION, per_coordinate=per_coordinate)
            found[per_coordinate] = run(kernel, target, start, 1000)
    for chains in found.values():
        assert_temperature_is_one(chains)
    assert_covariance(found[True], settled(precision, noise, True)[1])
    temperature = np.diag(found[False].covariance()) * np.diag(precision)
    assert temperature[0] < 0.5
    assert temperature[1] > 1.5


def test_the_thermostat_is_spread_by_its_rate():
    precision, found = np.diag([5.0, 20.0]), {}
    with jax.enable_x64(True):
        start = draws_of(precision, NUM_CHAINS)
        for per_coordinate in (False, True):
            kernel = wb.SGNHT(ETA, 0.2, rate=0.004, per_coordinate=per_coordinate)
            found[per_coordinate] = run(kernel, normal(precision), start, 400).state.thermostat
    assert found[False].shape == (NUM_CHAINS,)
    np.testing.assert_allclose(found[False].var(), 0.004 / 2, rtol=0.15)
    np.testing.assert_allclose(found[True].var(0), 0.004, rtol=0.15)


def test_a_guess_of_the_noise_starts_it_where_it_ends():
    position = jnp.zeros(2)
    with jax.enable_x64(True):
        target = normal(np.eye(2), np.array([100.0, 300.0]))
        for kernel, expected in (
            (wb.SGNHT(ETA, FRICTION), FRICTION),
            (wb.SGNHT(ETA, FRICTION, gradient_noise=100.0), 0.2),
            (wb.SGNHT(ETA, FRICTION, estimate_noise=True), 0.3),
            (wb.SGNHT(ETA, FRICTION, per_coordinate=True), [FRICTION, FRICTION]),
            (wb.SGNHT(ETA, FRICTION, per_coordinate=True, estimate_noise=True), [0.2, 0.4]),
            (wb.SGNHT(ETA, FRICTION, gradient_noise=1e9), 1.0),
        ):
            thermostat = np.asarray(kernel.init(position, target).thermostat)
            np.testing.assert_allclose(thermostat, expected, rtol=1e-12)
            assert thermostat.shape == np.shape(expected)


def test_more_noise_than_it_can_absorb_is_seen_in_the_temperature():
    with jax.enable_x64(True):
        target = normal(np.eye(2), 4e3)
        chains = run(wb.SGNHT(ETA, FRICTION), target, draws_of(np.eye(2), NUM_CHAINS), 600)
    assert np.all(np.isfinite(chains.state.position))
    assert np.all(chains.info.thermostat <= 1.0)
    assert chains.info.thermostat.mean() > 0.8
    assert chains.info.temperature.mean() > 1.5


def test_sgais_takes_it_and_states_an_error():
    result, exact = sgais(wb.SGNHT(0.1, 0.2, estimate_noise=True))
    assert abs(result.log_evidence - exact) < 5 * result.std_error
    assert result.std_error < 0.5
    assert abs(result.trace["temperature"][-1] - 1) < 0.15
