"""Finding the modes of a posterior: where they are, how wide, and what is no mode."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from tests.helpers.two_modes import LEFT, RIGHT
from weighbridge.core.compilation import in_double_precision
from weighbridge.estimators.laplace.charts import Chart
from weighbridge.estimators.laplace.modes import Modes, find_modes
from weighbridge.estimators.laplace.summit import SummitKind
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.models.held import hold


def modes_of(model, data=None, **options) -> Modes:
    with in_double_precision():
        density = JointDensity(model, *hold(model, data, "a test"))
        return find_modes(density, **options)


def whole(prior, function, **options):
    return wb.Model(prior, total_log_likelihood=function, **options)


def test_the_mode_of_a_conjugate_regression_is_its_posterior():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(90, 5)) * [1.0, 1e3, 1e-3, 1.0, 1.0]
    y = x @ (np.ones(5) / [1.0, 1e3, 1e-3, 1.0, 1.0]) + generator.normal(size=90)
    model = wb.Model(
        {"w": dist.Normal(0.0, np.array([1.0, 1e-2, 1e4, 1.0, 1.0])).to_event(1)},
        lambda p, row: dist.Normal(row["x"] @ p["w"], 1.0).log_prob(row["y"]),
    )
    modes = modes_of(model, {"x": x, "y": y})
    scale = np.array([1.0, 1e-2, 1e4, 1.0, 1.0])
    precision = x.T @ x + np.diag(scale**-2.0)
    covariance = np.linalg.inv(precision)
    assert modes.kinds == (SummitKind.MODE,)
    assert modes.found_by.tolist() == [32]
    np.testing.assert_allclose(modes.position[0], covariance @ x.T @ y, rtol=1e-9)
    np.testing.assert_allclose(modes.root[0] @ modes.root[0].T, covariance, rtol=1e-7)
    marginal = np.eye(90) + (x * scale**2) @ x.T
    exact = -0.5 * (y @ np.linalg.solve(marginal, y) + np.linalg.slogdet(2 * np.pi * marginal)[1])
    assert modes.log_mass[0] == pytest.approx(exact, abs=1e-8)


def test_exchangeable_components_have_one_labelling_and_copies():
    generator = np.random.default_rng(1)
    y = np.concatenate([generator.normal(centre, 0.5, 40) for centre in (-6.0, 0.0, 6.0)])
    model = wb.Model(
        {"mu": dist.Normal(0.0, 10.0).expand([3]).to_event(1)},
        lambda p, row: jnp.logaddexp.reduce(dist.Normal(p["mu"], 0.5).log_prob(row)) - jnp.log(3.0),
        exchangeable={"mu": 0},
    )
    modes = modes_of(model, y)
    best = np.sort(modes.position[0])
    np.testing.assert_allclose(best, [-6, 0, 6], atol=0.5)
    assert modes.log_copies[0] == pytest.approx(math.log(6))
    assert modes.cell is not None
    offset = modes.cell(modes.position[None])[0]
    np.testing.assert_allclose(offset, math.log(6))
    # Every other labelling of the best mode is the best mode.
    apart = np.abs(np.sort(modes.position, axis=1) - best).max(axis=1)
    assert (apart[1:] > 0.1).all()


def test_a_saddle_point_is_left():
    # The origin is a saddle point between two modes, and the mean of the prior.
    model = whole(
        {"u": dist.Normal(0.0, 1.0).expand([2]).to_event(1)},
        lambda p: jnp.logaddexp(*(-0.5 * jnp.sum((p["u"] - m) ** 2) / 0.01 for m in (LEFT, RIGHT))),
    )
    modes = modes_of(model, num_starts=4)
    assert modes.kinds == (SummitKind.MODE, SummitKind.MODE)
    np.testing.assert_allclose(np.abs(modes.position[:, 0]), 5 / 1.01, rtol=1e-6)


def test_a_density_that_grows_towards_a_bound_is_at_the_edge():
    model = whole({"p": dist.Uniform(0.0, 1.0)}, lambda p: 20.0 * jnp.log(p["p"]) + jnp.log(21.0))
    assert modes_of(model).kinds == (SummitKind.MODE,)
    own = modes_of(model, chart=Chart.of("own"))
    assert own.kinds == (SummitKind.EDGE,)


def test_a_likelihood_on_the_host_has_finite_differences():
    def on_host(p):
        x = np.asarray(p["x"])
        return -0.5 * (((x - [1.0, 200.0]) / [0.1, 3.0]) ** 2).sum(axis=-1)

    prior = {"x": dist.Normal(0.0, np.array([1.0, 1e3])).to_event(1)}
    modes = modes_of(whole(prior, on_host, on_host=True), num_starts=2)
    assert modes.kinds == (SummitKind.MODE,)
    deviation = np.sqrt(1 / (np.array([0.1, 3.0]) ** -2.0 + np.array([1.0, 1e3]) ** -2.0))
    np.testing.assert_allclose(modes.root[0], np.diag(deviation), atol=1e-3 * deviation[1])
    assert modes.root[0, 0, 0] == pytest.approx(deviation[0], rel=1e-4)
    many = {"x": dist.Normal(0.0, 1.0).expand([13]).to_event(1)}
    with pytest.raises(wb.MethodError, match=r"jax\.numpy"):
        modes_of(whole(many, lambda p: -np.asarray(p["x"]).sum(axis=-1), on_host=True))


def test_a_density_that_is_zero_everywhere_has_no_mode():
    with pytest.raises(wb.WeighbridgeError, match="no mode"):
        modes_of(whole({"x": dist.Normal(0.0, 1.0)}, lambda p: jnp.log(0.0 * p["x"])))


@pytest.mark.parametrize(
    ("coordinates", "message"),
    [
        ("constrained", "coordinates is one of"),
        (3, "coordinates is one of"),
        ({}, "map names"),
        ({"x": 3}, "map names"),
        ({"z": jnp.log}, "names"),
        (lambda p: p["x"], "2 degrees"),
        (lambda p: 0.0 * jnp.append(p["x"], p["s"]), "not invertible"),
    ],
)
def test_bad_coordinates_are_refused(coordinates, message):
    model = whole({"x": dist.Normal(0, 1), "s": dist.HalfNormal(1)}, lambda p: -(p["x"] ** 2))
    with pytest.raises(wb.MethodError, match=message):
        modes_of(model, chart=Chart.of(coordinates))


def test_a_simplex_has_no_density_of_its_own():
    model = whole({"w": dist.Dirichlet(jnp.ones(3))}, lambda p: p["w"][0])
    with pytest.raises(wb.MethodError, match="degrees of freedom"):
        modes_of(model, chart=Chart.of("own"))
