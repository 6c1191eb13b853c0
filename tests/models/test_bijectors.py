"""The logistic map to an interval, beside NumPyro's bijectors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.models.bijectors import bijector_to, logistic, value_and_log_slope
from weighbridge.models.priors import Coordinates

BOUNDS = {
    "unit": dist.constraints.unit_interval,
    "interval": dist.constraints.interval(-1.0, 3.0),
    "array": dist.constraints.interval(np.array([0.0, -2.0, 5.0]), np.array([1.0, 2.0, 9.0])),
    "independent": dist.constraints.independent(dist.constraints.interval(-1.0, 3.0), 1),
    "positive": dist.constraints.positive,
    "real": dist.constraints.real,
}
POINTS = np.array([[-40.0, -3.0, -1e-9], [0.0, 0.7, 45.0]])


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", BOUNDS)
def test_values_and_slopes_are_those_of_numpyro(name):
    bijector = dist.biject_to(BOUNDS[name])

    @jax.jit
    def both(x):
        expected = bijector(x)
        slope = jnp.sum(bijector.log_abs_det_jacobian(x, expected))
        return value_and_log_slope(bijector, x), (expected, slope)

    for x in POINTS:
        (value, log_slope), (expected, slope) = both(x)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        assert float(log_slope) == pytest.approx(float(slope), rel=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_of_every_order(order):
    """Anchors and Laplace need the second, and the second differentiates the first."""

    def by_numpyro(x):
        bijector = dist.biject_to(BOUNDS["interval"])
        return jnp.sin(bijector(x)) + bijector.log_abs_det_jacobian(x, None)

    def ours(x):
        value, log_slope = value_and_log_slope(dist.biject_to(BOUNDS["interval"]), x)
        return jnp.sin(value) + log_slope

    for _ in range(order):
        by_numpyro, ours = jax.grad(by_numpyro), jax.grad(ours)
    by_numpyro, ours = jax.jit(by_numpyro), jax.jit(ours)
    for x in (-4.0, -0.3, 0.0, 2.5):
        assert float(ours(x)) == pytest.approx(float(by_numpyro(x)), rel=1e-9, abs=1e-12)


def test_the_ends_are_never_reached():
    value, log_slope = logistic(jnp.array([-1e4, 1e4, -800.0, 800.0]))
    assert np.all((value > 0) & (value < 1))
    np.testing.assert_allclose(log_slope, [-1e4, -1e4, -800.0, -800.0])
    slope = jax.vmap(jax.grad(lambda x: logistic(x)[1]))(jnp.array([-800.0, 800.0]))
    np.testing.assert_allclose(slope, [1.0, -1.0])


def test_bounds_may_be_functions_of_other_parameters():
    """The density of (a, b) with b uniform on (-a, a), against its definition."""
    prior = {"a": dist.HalfNormal(1.0), "b": lambda p: dist.Uniform(-p["a"], p["a"])}
    model = wb.Model(prior, total_log_likelihood=lambda p: 0.0 * p["b"])
    position = jnp.array([0.3, -0.8])
    parameters, log_density = jax.jit(model.transform)(position)
    a, b = float(parameters["a"]), float(parameters["b"])
    assert -a < b < a
    values = jax.jit(jax.jacfwd(lambda u: jnp.stack(list(model.transform(u)[0].values()))))
    jacobian = values(position)
    expected = dist.HalfNormal(1.0).log_prob(a) - np.log(2 * a)
    expected += np.linalg.slogdet(jacobian)[1]
    assert float(log_density) == pytest.approx(float(expected), rel=1e-6)


def test_a_simplex_is_that_of_numpyro_where_entries_are_not_tiny():
    ours, theirs = (f(dist.constraints.simplex) for f in (bijector_to, dist.biject_to))
    for x in (np.zeros(0), np.zeros(3), np.array([0.3, -2.0, 4.0]), np.array([-6.0, 1.0, 3.0])):
        value = theirs(x)
        np.testing.assert_allclose(ours(x), value, rtol=1e-12)
        np.testing.assert_allclose(ours.inv(value), x, atol=1e-12)
        slopes = [b.log_abs_det_jacobian(x, value) for b in (ours, theirs)]
        assert float(slopes[0]) == pytest.approx(float(slopes[1]), rel=1e-12)


def test_tiny_entries_of_a_simplex_come_back_and_have_a_gradient():
    coordinates = Coordinates.of(dist.Dirichlet(jnp.full((2, 4), 0.05)).to_event(1))
    x = np.array([[30.0, 2.0, -3.0], [-50.0, 80.0, 10.0]])
    np.testing.assert_allclose(coordinates.inverse(coordinates.value(x)[0]), x, rtol=1e-9)
    slope = jax.jit(jax.grad(lambda u: coordinates.value(u)[1]))(x)
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("concentration", [0.05, 0.1, 1.0])
def test_the_prior_of_a_simplex_integrates_to_one(concentration):
    coordinates = Coordinates.of(dist.Dirichlet(jnp.full(2, concentration)))
    grid = np.linspace(-600.0, 600.0, 120_001)
    height = jax.jit(jax.vmap(lambda u: coordinates.value(u)[1]))(grid[:, None])
    assert np.exp(height).sum() * (grid[1] - grid[0]) == pytest.approx(1.0, abs=1e-9)
