"""Finding modes: more posteriors, and ends of climbs that are no modes."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from tests.helpers.two_modes import LEFT, LOG_EVIDENCE, PRIOR, RIGHT, VARIANCE, two_modes
from weighbridge.core.compilation import in_double_precision
from weighbridge.estimators.laplace.charts import Chart
from weighbridge.estimators.laplace.modes import Modes, find_modes
from weighbridge.estimators.laplace.summit import SummitKind
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.models.held import hold

pytestmark = pytest.mark.long


def modes_of(model, data=None, **options) -> Modes:
    with in_double_precision():
        density = JointDensity(model, *hold(model, data, "a test"))
        return find_modes(density, **options)


def whole(prior, function, **options):
    return wb.Model(prior, total_log_likelihood=function, **options)


def test_two_separate_modes_are_found_and_their_masses_add_up():
    modes = modes_of(whole(PRIOR, two_modes))
    assert modes.kinds == (SummitKind.MODE, SummitKind.MODE)
    assert modes.found_by.sum() == modes.num_starts == 32
    # The prior N(0, 10^2) draws each mode towards its centre.
    np.testing.assert_allclose(modes.position, VARIANCE * np.array([RIGHT, LEFT]), atol=1e-6)
    assert np.logaddexp.reduce(modes.log_mass) == pytest.approx(LOG_EVIDENCE, abs=1e-6)
    mixture = modes.mixture(5.0)
    assert mixture.share.sum() == pytest.approx(1.0)
    assert mixture.share[1] == pytest.approx(0.9 * 0.3 + 0.05, abs=1e-3)
    assert mixture.freedom.tolist() == [5.0, 5.0]


def test_equal_components_have_fewer_copies():
    model = wb.Model(
        {"mu": dist.Normal(0.0, 1.0).expand([3]).to_event(1)},
        lambda p, row: jnp.logaddexp.reduce(dist.Normal(p["mu"], 1.0).log_prob(row)) - jnp.log(3.0),
        exchangeable={"mu": 0},
    )
    modes = modes_of(model, np.array([0.1, -0.1]))
    assert modes.kinds == (SummitKind.MODE,)
    assert modes.log_copies[0] == pytest.approx(0.0)


def test_flat_curvature_is_singular():
    modes = modes_of(
        whole(
            {"x": dist.Uniform(-1.0, 1.0), "y": dist.Normal(0.0, 1.0)},
            # minus the log prior of the unconstrained coordinate, so that x^4 is all that is left
            lambda p: -1e3 * p["x"] ** 4 + 0.25 * jnp.log1p(-(p["x"] ** 2)) * -4.0,
        )
    )
    assert SummitKind.SINGULAR in modes.kinds
    assert np.isfinite(modes.log_mass).all()


def test_a_funnel_without_a_mode_is_at_the_edge():
    model = wb.Model(
        {
            "tau": dist.HalfNormal(1.0),
            "x": lambda p: dist.Normal(0.0, p["tau"]).expand([8]).to_event(1),
        },
        lambda p, row: 0.0 * row,
    )
    assert SummitKind.EDGE in modes_of(model, np.zeros(1)).kinds


def test_a_kink_does_not_converge():
    model = whole({"x": dist.Laplace(0.0, 1.0)}, lambda p: -jnp.abs(p["x"] - 0.3) * 3.0)
    assert modes_of(model).kinds == (SummitKind.UNCONVERGED,)


def test_own_coordinates_move_the_mode():
    # Gamma(3, 1): its mode is at 2, and that of its logarithm at 3.
    model = whole({"x": dist.Gamma(3.0, 1.0)}, lambda p: 0.0 * p["x"])
    assert np.exp(modes_of(model).position[0, 0]) == pytest.approx(3.0, rel=1e-6)
    own = modes_of(model, chart=Chart.of("own"))
    assert np.exp(own.position[0, 0]) == pytest.approx(2.0, rel=1e-6)
    # log f + 1/2 log 2 pi - 1/2 log(1 / 2) for x e^-x x / Gamma(3) at 2
    assert own.log_mass[0] == pytest.approx(
        math.log(2 * math.exp(-2)) + 0.5 * math.log(4 * math.pi)
    )
    cube = modes_of(model, chart=Chart.of(lambda p: p["x"] ** (1 / 3)))
    assert np.exp(cube.position[0, 0]) == pytest.approx(8 / 3, rel=1e-6)


def test_the_same_seed_gives_the_same_modes():
    model = whole(PRIOR, two_modes)
    one, two = (modes_of(model, num_starts=4, seed=5) for _ in range(2))
    assert np.array_equal(one.position, two.position)
    assert one.num_evaluations == two.num_evaluations
