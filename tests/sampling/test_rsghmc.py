"""SGHMC in the Fisher metric: the law of its steps, and what a metric that varies asks for."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

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
from weighbridge.core.pytrees import register_dataclass
from weighbridge.models.targets.batches import Subsampled
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.rows import Rows

NUM_CHAINS = 1_000
FRICTION = 0.2


def law(precision, eta, metric, noise):
    """Covariance of positions for a constant metric: SGHMC in coordinates sqrt(G) theta."""
    scale = np.diag(1 / np.sqrt(metric))
    position, _ = momentum_law(scale @ precision @ scale, eta, FRICTION, noise)
    return scale @ position @ scale


@pytest.mark.parametrize("eta", [0.05, 0.4])
@pytest.mark.parametrize("precision", [CORRELATED, ILL_CONDITIONED], ids=["correlated", "ill"])
def test_with_exact_gradients_it_has_the_variance_of_its_steps(precision, eta):
    """Steps that are as long as these in all coordinates would run away without the metric."""
    metric = np.diag(precision)
    kernel = wb.RiemannianSGHMC(eta, FRICTION, damping=metric)
    with jax.enable_x64(True):
        chains = run(kernel, normal(precision), draws_of(precision, NUM_CHAINS), 300)
    assert_covariance(chains, law(precision, eta, metric, 2 * FRICTION * eta))
    velocity = momentum_law(precision / np.sqrt(np.outer(metric, metric)), eta, FRICTION, 1.0)[1]
    expected = 2 * FRICTION * np.diag(velocity).mean() * (1 - FRICTION / 2)
    temperature = chains.info.temperature
    assert abs(temperature.mean() - expected) < SIGMAS * temperature.std() / np.sqrt(NUM_CHAINS)


@pytest.mark.parametrize("estimate_noise", [False, True])
def test_the_noise_is_the_metric_and_heats_all_coordinates_alike(estimate_noise):
    """The Fisher information of the rows, 50 times as large for the noise of their batches."""
    precision, noise, eta = ILL_CONDITIONED, 50 * np.diag(ILL_CONDITIONED), 0.39
    metric = 1.0 + noise
    kernel = wb.RiemannianSGHMC(eta, FRICTION, np.ones(2), estimate_noise=estimate_noise)
    with jax.enable_x64(True):
        start = draws_of(precision, NUM_CHAINS)
        chains = run(kernel, normal(precision, noise), start, 600)
    cold = 2 * FRICTION * eta
    heated = cold + eta**2 * noise / metric
    assert_covariance(chains, law(precision, eta, metric, cold if estimate_noise else heated))
    assert not np.any(chains.info.noise_clipped)
    temperature = chains.info.temperature.mean()
    assert abs(temperature - (1 if estimate_noise else 1 + eta / (2 * FRICTION))) < 0.03


def test_noise_is_clipped_beyond_twice_the_friction():
    clipped = {}
    with jax.enable_x64(True):
        target, start = normal(np.eye(2), 1e6), np.zeros((NUM_CHAINS, 2))
        for eta in (1.99 * FRICTION, 2.01 * FRICTION):
            kernel = wb.RiemannianSGHMC(eta, FRICTION, np.ones(2), estimate_noise=True)
            clipped[eta > 2 * FRICTION] = run(kernel, target, start, 2).info.noise_clipped
    assert np.all(clipped[True])
    assert not np.any(clipped[False])


@partial(register_dataclass, data_fields=["precision", "rates"], meta_fields=[])
@dataclass(frozen=True)
class Varying:
    """A normal density with exact gradients, whose metric is exponential in the position."""

    precision: np.ndarray
    rates: np.ndarray

    def __call__(self, position):
        return -0.5 * position @ (jnp.asarray(self.precision) @ position)

    def subsample(self, step):
        return self

    def gradient_variance(self, position):
        return jnp.exp(jnp.asarray(self.rates) @ position)


def test_a_metric_that_varies_leaves_the_target_as_it_is():
    """Without gamma the density would be off by sqrt(G), and with the wrong sign by G."""
    with jax.enable_x64(True):
        target, start = Varying(np.eye(2), np.eye(2)), draws_of(np.eye(2), NUM_CHAINS)
        kernel = wb.RiemannianSGHMC(0.03, FRICTION, damping=0.3)
        chains = run(kernel, target, start, 4000)
    # With the metric of the start, instead of half way, the mean would be 0.04.
    assert_covariance(chains, np.eye(2))
    assert abs(chains.info.temperature.mean() - 1) < 0.02
    grid = np.linspace(-9, 9, 10_001)
    for power in (0.5, 1.0):
        wrong = np.exp(-0.5 * grid**2) * (0.3 + np.exp(grid)) ** power
        shift = np.sum(wrong * grid) / np.sum(wrong)
        assert np.all(np.abs(chains.errors(np.eye(2), np.full(2, shift))[:2]) > 5 * SIGMAS)


def test_a_metric_that_varies_with_the_other_coordinate():
    precision = np.linalg.inv(np.array([[1.0, 0.6], [0.6, 1.0]]))
    target = Varying(precision, np.array([[0.5, 1.0], [-1.0, 0.3]]))
    with jax.enable_x64(True):
        kernel = wb.RiemannianSGHMC(0.01, FRICTION, damping=0.3)
        chains = run(kernel, target, draws_of(precision, NUM_CHAINS), 1200)
    assert_covariance(chains, np.linalg.inv(precision))


@partial(register_dataclass, data_fields=["rows", "key", "index"], meta_fields=[])
@dataclass(frozen=True)
class Exponential:
    """Exponential rows with the rate in logarithms, on mini-batches of 10."""

    rows: np.ndarray
    key: jax.Array
    index: jax.Array | int = 0

    def target(self):
        rows = Rows(self.rows, jnp.ones(len(self.rows)))
        return Target(EXPONENTIAL, (Subsampled(rows, self.key, 10, self.index),))

    def __call__(self, position):
        return self.target()(position)

    def subsample(self, step):
        return replace(self, index=step)

    def gradient_variance(self, position):
        return self.target().gradient_variance(position)


EXPONENTIAL = wb.Model(
    {"u": dist.Normal(0.0, 1.0).expand([1]).to_event(1)},
    lambda p, y: p["u"][0] - y * jnp.exp(p["u"][0]),
)


def test_mini_batches_of_rows_give_metric_and_gradient():
    """The Fisher information of these rows varies with their rate."""
    rows = np.random.default_rng(3).exponential(size=20)
    kernel = wb.RiemannianSGHMC(0.05, 0.1, damping=20.0, estimate_noise=True)
    grid = np.linspace(-3, 3, 10_001)
    density = np.exp(20 * grid - rows.sum() * (np.exp(grid) - 1) - grid**2 / 2)
    density /= density.sum()
    mean = np.sum(density * grid)
    variance = np.sum(density * (grid - mean) ** 2)
    with jax.enable_x64(True):
        target = Exponential(rows, jax.random.key(0))
        chains = run(kernel, target, np.full((NUM_CHAINS, 1), mean), 400)
    assert_covariance(chains, np.array([[variance]]), mean)


@pytest.mark.long
def test_sgais_takes_it_and_states_an_error():
    result, exact = sgais(wb.RiemannianSGHMC(0.1, 0.2, estimate_noise=True))
    assert abs(result.log_evidence - exact) < 5 * result.std_error
    assert result.std_error < 0.5
