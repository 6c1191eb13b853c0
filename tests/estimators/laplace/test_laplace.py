"""Laplace's method: exact where it should be, an honest error or a flag where it is not."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from tests.helpers.two_modes import LOG_EVIDENCE, PRIOR, two_modes
from weighbridge.core.status import Status

# Bound of comparisons with the check, in its standard errors; some thirty comparisons.
BOUND = 5.0
NEVER = {Status.MODE_AT_EDGE, Status.SINGULAR_CURVATURE, Status.MODE_NOT_REACHED}


def whole(prior, function, **options):
    return wb.Model(prior, total_log_likelihood=function, **options)


def laplace(model, data=None, *, seed=0, **options):
    return wb.evidence(model, data, wb.Laplace(**options), seed=seed, progress=False)


def one_parameter(prior, function=None):
    return whole({"x": prior}, function or (lambda p: 0.0 * p["x"]))


def checked(result):
    """The estimate of the check and its standard error."""
    return result.diagnostics["check_log_evidence"], result.diagnostics["check_error"]


@pytest.mark.parametrize("seed", range(2))
def test_conjugate_regression_is_exact_to_rounding(seed):
    data = wb.zoo.linear.simulate(300, seed=seed)
    result = laplace(wb.zoo.linear.model(), data, seed=seed, num_starts=4)
    assert abs(result.log_evidence - wb.zoo.linear.log_evidence(data)) < 3 * result.std_error
    assert result.std_error < 1e-9
    assert result.flags == ()
    assert result.diagnostics["check_error"] < 1e-10


def test_the_posterior_draws_are_weighted_draws_of_the_posterior():
    data = wb.zoo.gaussian.simulate(30, seed=1)
    result = laplace(wb.zoo.gaussian.model(), data)
    weights, mu = np.exp(result.log_weights), result.samples["mu"]
    mean, variance = data.sum() / 31, 1 / 31
    error = math.sqrt(variance / result.diagnostics["check_ess"])
    assert abs(weights @ mu - mean) < BOUND * error
    assert weights @ (mu - mean) ** 2 == pytest.approx(variance, rel=0.15)


def test_two_separate_modes_are_summed():
    result = laplace(whole(PRIOR, two_modes))
    # Each mode is a Gaussian, up to the tail of the other one.
    assert result.log_evidence == pytest.approx(LOG_EVIDENCE, abs=1e-4)
    assert abs(result.log_evidence - LOG_EVIDENCE) < 3 * result.std_error
    assert result.diagnostics["num_separate"] == 2
    np.testing.assert_allclose(result.diagnostics["mode_share"], [0.7, 0.3], atol=1e-4)
    assert result.diagnostics["mode_found_by"].sum() == result.diagnostics["num_starts"]
    right = result.samples["u"][:, 0] > 0
    assert np.exp(result.log_weights)[right].sum() == pytest.approx(0.7, abs=0.05)


def test_modes_that_overlap_are_not_counted_twice():
    def near(p):
        centres = jnp.array([-1.2, 1.2])
        return jnp.logaddexp.reduce(dist.Normal(centres, 1.0).log_prob(p["x"])) - math.log(2.0)

    exact = -math.log(60.0)
    result = laplace(one_parameter(dist.Uniform(-30.0, 30.0), near))
    assert result.diagnostics["num_modes"] == 2
    assert result.diagnostics["num_separate"] == 1
    assert abs(result.log_evidence - exact) < 2.5 * result.std_error
    value, error = checked(result)
    assert abs(value - exact) < BOUND * error


def test_a_mode_at_a_bound_is_flagged():
    model = one_parameter(dist.Uniform(0.0, 1.0), lambda p: 9.0 * jnp.log(p["x"]))
    assert laplace(model).flags == ()
    own = laplace(model, coordinates="own")
    assert own.status is Status.MODE_AT_EDGE
    assert math.isnan(own.std_error) or own.std_error > abs(own.log_evidence + math.log(10)) / 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_starts": 0}, "num_starts"),
        ({"num_draws": 10}, "num_draws"),
        ({"coordinates": "constrained"}, "coordinates"),
        ({"coordinates": {"x": "log"}}, "coordinates"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(wb.MethodError, match=message):
        wb.Laplace(**options)
