"""Preconditioned SGLD against the law of its steps, and the drift that its paper drops."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import weighbridge as wb
from tests.helpers.noisy_chains import (
    CORRELATED,
    ILL_CONDITIONED,
    SIGMAS,
    assert_covariance,
    draws_of,
    normal,
    run,
    sgais,
)
from weighbridge.core.islands import combine_islands
from weighbridge.core.pytrees import register_dataclass

NUM_CHAINS = 1_000


def slow_law(precision, step_size, noise):
    """Squares that stand still, and the covariance (P - epsilon P G P / 2)^-1 that they lead to."""
    squares = np.diag(precision) + noise
    for _ in range(100):
        pull = precision @ np.diag(step_size / np.sqrt(squares)) @ precision
        covariance = np.linalg.inv(precision - pull / 2)
        squares = np.diag(precision @ covariance @ precision) + noise
    return squares, covariance


@pytest.mark.parametrize("noise", [0.0, 30.0])
@pytest.mark.parametrize("precision", [CORRELATED, ILL_CONDITIONED], ids=["correlated", "ill"])
def test_with_a_long_memory_it_has_the_variance_of_its_steps(precision, noise):
    """The squares hardly move then; with beta-hat right, gradient noise makes no difference."""
    squares, expected = slow_law(precision, 0.1, noise)
    kernel = wb.PSGLD(0.1, 0.9999, 0.0, squares, gradient_noise=noise)
    with jax.enable_x64(True):
        chains = run(kernel, normal(precision, noise), draws_of(precision, NUM_CHAINS), 600)
    assert_covariance(chains, expected)
    assert not np.any(chains.info.noise_clipped)
    np.testing.assert_allclose(chains.state.square.mean(0), squares, rtol=0.01)
    # The target's own covariance is not what it has, and is told from it.
    assert np.abs(chains.errors(np.linalg.inv(precision))).max() > 2 * SIGMAS


def test_the_squares_find_the_size_of_the_gradients():
    with jax.enable_x64(True):
        kernel = wb.PSGLD(0.1, decay=0.95, initial_square=np.ones(2))
        target = normal(ILL_CONDITIONED, np.array([5.0, 0.0]))
        chains = run(kernel, target, draws_of(ILL_CONDITIONED, NUM_CHAINS), 200)
    # A gradient has the variance of its noise and of the position, times the precision squared.
    variance = np.diag(chains.covariance())
    expected = np.array([5.0, 0.0]) + np.diag(ILL_CONDITIONED) ** 2 * variance
    np.testing.assert_allclose(chains.state.square.mean(0), expected, rtol=0.1)


def test_noise_left_in_heats_and_noise_too_large_is_clipped():
    precision, noise = np.eye(2), 30.0
    squares, expected = slow_law(precision, 0.1, noise)
    heated = expected * (1 + 0.1 / np.sqrt(squares) * noise / 2)
    kernel = wb.PSGLD(0.1, 0.9999, 0.0, squares)
    with jax.enable_x64(True):
        chains = run(kernel, normal(precision, noise), draws_of(precision, NUM_CHAINS), 600)
        target = normal(precision, 1e4)
        for kernel in (wb.PSGLD(gradient_noise=1e4), wb.PSGLD(estimate_noise=True)):
            _, info = kernel.step(jax.random.key(0), kernel.init(jnp.ones(2), target), target)
            assert info.noise_clipped
    assert_covariance(chains, heated)
    assert np.abs(chains.errors(expected)).max() > 2 * SIGMAS


def test_without_decay_it_is_sgld():
    with jax.enable_x64(True):
        target, key = normal(CORRELATED), jax.random.key(5)
        start = jnp.array([0.5, -2.0])
        kernel = wb.PSGLD(0.3, decay=1.0, damping=1.0, initial_square=np.array([4.0, 25.0]))
        plain = wb.SGLD(np.array([0.1, 0.05]))
        state, _ = kernel.step(key, kernel.init(start, target), target)
        other, _ = plain.step(key, plain.init(start, target), target)
    np.testing.assert_allclose(state.position, other.position, rtol=1e-12)


def test_the_drift_that_is_dropped_widens_and_its_correction_mends_it():
    """Only with the correction do shorter steps mean a smaller error."""
    found = {}
    with jax.enable_x64(True):
        target, start = normal(np.eye(2)), draws_of(np.eye(2), NUM_CHAINS)
        for step_size in (0.2, 0.02):
            for on in (False, True):
                kernel = wb.PSGLD(step_size, initial_square=np.ones(2), correct_drift=on)
                chains = run(kernel, target, start, 1500)
                assert np.all(np.abs(chains.errors(np.eye(2))[:2]) < SIGMAS)
                found[step_size, on] = np.diag(chains.covariance()).mean() - 1
    assert found[0.02, False] > 0.15
    assert abs(found[0.02, True]) < 0.05
    assert found[0.02, False] > found[0.2, False]
    assert 0 < found[0.02, True] < found[0.2, True] < found[0.2, False]


@partial(register_dataclass, data_fields=["shape"], meta_fields=[])
@dataclass(frozen=True)
class LogGamma:
    """The logarithm of a gamma variable with mean 1."""

    shape: float

    def __call__(self, position):
        return self.shape * (position[0] - jnp.exp(position[0]))

    def subsample(self, step):
        return self


@pytest.mark.parametrize("decay", [0.9, 0.99])
def test_the_correction_holds_where_the_curvature_varies(decay):
    """A slope that is not forgotten as fast as the chain forgets shifts the mean by 0.06 to 0.2."""
    mean, variance = digamma(3) - np.log(3), polygamma(1, 3)
    start = np.log(np.random.default_rng(0).gamma(3, 1 / 3, size=(NUM_CHAINS, 1)))
    found = {}
    with jax.enable_x64(True):
        for on in (False, True):
            kernel = wb.PSGLD(0.02, decay, 0.2, correct_drift=on)
            found[on] = run(kernel, LogGamma(3.0), start, 1500)
    assert abs(found[True].mean.mean() - mean) < 0.03
    excess = {on: chains.covariance()[0, 0] / variance - 1 for on, chains in found.items()}
    assert excess[False] > 0.1
    assert abs(excess[True]) < 0.4 * excess[False]


@pytest.mark.long
def test_sgais_takes_it():
    """Its heat is not measured, so no error is stated; the islands' own spread covers it."""
    result, exact = sgais(wb.PSGLD(0.1))
    assert wb.Status.ERROR_UNKNOWN in result.flags
    combined = combine_islands(result.diagnostics["island_log_evidence"])
    assert abs(combined.log_evidence - exact) < 5 * combined.std_error
    assert combined.std_error < 0.3
