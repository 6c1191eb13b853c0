"""Every kernel, as users run it: exact moments in units of the Monte Carlo error."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb

pytestmark = pytest.mark.long

CORRELATION = 0.95
DEVIATIONS = np.logspace(-2, 0, 50)
# The largest of up to a hundred z-scores, and their root mean square: with some fifty runs in
# this file a false alarm of either is below one in a hundred.
LARGEST, TYPICAL = 5.0, 1.6


def correlated(parameters):
    """With the prior, a normal of unit variances and correlation 0.95."""
    precision = np.linalg.inv(np.array([[1.0, CORRELATION], [CORRELATION, 1.0]]))
    u = parameters["u"]
    return -0.5 * u @ (precision - np.eye(2)) @ u


def ill_conditioned(parameters):
    """With the prior, independent normals with deviations from 0.01 to 1."""
    return -0.5 * jnp.sum(parameters["u"] ** 2 * (DEVIATIONS**-2 - 1.0))


def standard(dimension, total_log_likelihood):
    prior = {"u": dist.Normal(0.0, 1.0).expand([dimension]).to_event(1)}
    return wb.Model(prior, total_log_likelihood=total_log_likelihood)


MODELS = {"correlated": standard(2, correlated), "ill-conditioned": standard(50, ill_conditioned)}


def shrink(key, u):
    """A proposal that pulls towards the middle, and is not symmetric."""
    return 0.7 * u + 0.5 * jax.random.normal(key, u.shape)


def log_shrink(to, given):
    return -0.5 * jnp.sum(((to - 0.7 * given) / 0.5) ** 2)


SHAPE = np.array([[1.2, 0.0], [1.1, 0.5]])

# A kernel, how many steps for a draw on two coordinates, and on fifty, with the steps of its
# warm-up: kernels that creep need long to see all of the density, and so to learn its metric. Those
# that learn none are given another kernel for fifty coordinates, below.
KERNELS = {
    "nuts": (wb.NUTS(), 1, (1, 800)),
    "nuts-classic": (wb.NUTS(criterion="classic"), 1, (1, 800)),
    "xhmc": (wb.XHMC(max_depth=7), 1, (1, 800)),
    "hmc": (wb.HMC(0.1, 8, jitter=0.2), 2, (1, 800)),
    "windowed-hmc": (wb.WindowedHMC(0.1, 8), 2, (1, 800)),
    "mala": (wb.MALA(0.1), 10, (20, 10_000)),
    "metropolis": (wb.Metropolis(0.5), 30, (200, 100_000)),
    "adaptive-metropolis": (wb.AdaptiveMetropolis(), 30, (200, 100_000)),
    "metropolis-hastings": (wb.MetropolisHastings(shrink, log_shrink), 30, None),
    "rejection": (wb.Rejection(np.zeros(2), SHAPE, np.log(1.2 * 0.5) + 1.0), 1, None),
    "slice": (wb.Slice(1.0), 3, None),
    "slice-coordinates": (wb.Slice(1.0, 1.0, along="coordinates"), 20, (200, 1000)),
    "stretch": (wb.Stretch(), 10, None),
    "gibbs": (wb.Gibbs({"u": wb.HMC(0.2, 5)}), 20, None),
    "independence": (wb.Independence(np.zeros(2), SHAPE), 3, None),
    "parallel-tempering": (wb.ParallelTempering(wb.HMC(0.2, 5)), 5, None),
    "simulated-tempering": (wb.SimulatedTempering(wb.HMC(0.2, 5)), 2, None),
    "population": (wb.PopulationMonteCarlo(2), 1, None),
}


def scores(draws, power, exact):
    """Deviation of the mean of a power from its exact value, in Monte Carlo errors."""
    values = draws**power
    return (values.mean((0, 1)) - exact) / wb.mcse(values)


def check(draws):
    """Draws that are standard normal in every coordinate."""
    for power, exact in ((1, 0.0), (2, 1.0)):
        found = scores(draws, power, exact)
        assert np.max(np.abs(found)) < LARGEST, (power, found)
        assert np.sqrt(np.mean(found**2)) < TYPICAL + LARGEST / len(found), (power, found)


@pytest.mark.parametrize("name", KERNELS)
def test_two_correlated_coordinates(name):
    kernel, thin, _ = KERNELS[name]
    found = wb.sample(
        MODELS["correlated"], kernel=kernel, num_samples=500, num_warmup=500, thin=thin, seed=4
    )
    u = found.samples["u"]
    second = (u[..., 1] - CORRELATION * u[..., 0]) / np.sqrt(1 - CORRELATION**2)
    check(np.stack([u[..., 0], second], axis=-1))
    assert np.min(wb.ess(u)) > 100


# A proposal that keeps the target: another one would not come back from where chains begin, a
# hundred deviations off.
NOISE = np.sqrt(1 - 0.9**2) * DEVIATIONS


def creep(key, u):
    return 0.9 * u + NOISE * jax.random.normal(key, u.shape)


def log_creep(to, given):
    return -0.5 * jnp.sum(((to - 0.9 * given) / NOISE) ** 2)


WIDER = 1.02 * DEVIATIONS
SCALED = wb.HMC(0.3, 8, DEVIATIONS, jitter=0.2)
FIFTY = {name: (k, *steps) for name, (k, _, steps) in KERNELS.items() if steps is not None} | {
    "metropolis-hastings": (wb.MetropolisHastings(creep, log_creep), 20, 500),
    "rejection": (wb.Rejection(np.zeros(50), WIDER, np.sum(np.log(WIDER))), 1, 0),
    "slice": (wb.Slice(2.0, DEVIATIONS), 100, 200),
    "stretch": (wb.Stretch(), 300, 30_000),
    "gibbs": (wb.Gibbs({"u": SCALED}), 2, 50),
    "independence": (wb.Independence(np.zeros(50), WIDER, degrees=None), 2, 0),
    "parallel-tempering": (wb.ParallelTempering(SCALED, (1.0, 0.8, 0.6), 100), 2, 100),
    "simulated-tempering": (wb.SimulatedTempering(SCALED, (1.0, 0.9, 0.8), 200), 1, 200),
}  # A population's walkers share their weights, and are no chains whose errors these tests know.


@pytest.mark.parametrize("name", FIFTY)
def test_fifty_coordinates_of_all_sizes(name):
    kernel, thin, num_warmup = FIFTY[name]
    model = MODELS["ill-conditioned"]
    found = wb.sample(
        model, kernel=kernel, num_samples=400, num_warmup=num_warmup, thin=thin, seed=5
    )
    check(found.samples["u"] / DEVIATIONS)
    assert np.min(wb.ess(found.samples["u"])) > 100


@functools.cache
def logistic():
    """A logistic regression, and means and deviations of a long run."""
    model = wb.zoo.logistic.model(2, 2)
    data = wb.zoo.logistic.simulate(150, num_features=2, num_classes=2, seed=1)
    long = wb.sample(model, data, num_samples=5000, num_warmup=1000, seed=99)
    assert long.warnings == ()
    return model, data, long.positions


@pytest.mark.parametrize("name", ["xhmc", "hmc", "windowed-hmc", "mala", "metropolis",
                                  "adaptive-metropolis", "slice", "stretch"])  # fmt: skip
def test_logistic_regression_as_a_long_run_has_it(name):
    model, data, reference = logistic()
    kernel, thin, _ = KERNELS[name]
    found = wb.sample(
        model, data, kernel, num_samples=500, num_warmup=500, thin=2 * thin, seed=6
    ).positions
    for power in (1, 2):
        known, values = reference**power, found**power
        error = np.hypot(wb.mcse(known), wb.mcse(values))
        assert np.max(np.abs(values.mean((0, 1)) - known.mean((0, 1))) / error) < LARGEST
