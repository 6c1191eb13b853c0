"""Integrals against exact values, in units of the stated error."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb

SEEDS = range(6)
# Sobol errors have 15 degrees of freedom: beyond 5 in one of 6,000 cases.
BOUND = 5.0

SHAPES = {
    "normal": (lambda x: x**2, dist.Normal(1.0, 2.0), 5.0),
    "exponential": (lambda x: jnp.exp(-x), dist.Exponential(2.0), 2 / 3),
    "independent": (
        lambda x: jnp.cos(x[0]) * jnp.exp(-(x[1] ** 2)) + x[2],
        dist.Normal(0.0, 1.0).expand([3]).to_event(1),
        np.exp(-0.5) / np.sqrt(3.0),
    ),
    "correlated": (
        lambda x: x[0] * x[1],
        dist.MultivariateNormal(
            jnp.array([1.0, -1.0]), covariance_matrix=jnp.array([[2.0, 0.6], [0.6, 0.5]])
        ),
        -0.4,
    ),
    "named": (
        lambda p: p["s"] * p["mu"] ** 2,
        {"s": dist.Uniform(1.0, 2.0), "mu": lambda p: dist.Normal(0.0, p["s"])},
        15 / 4,  # E s^3
    ),
    "box": (lambda x: x[0] * jnp.exp(x[1]), [(0.0, 2.0), (-1.0, 1.0)], 2 * np.sinh(1.0) * 2),
    "ball": (lambda x: 1.0 * (x @ x < 1), [(-1.0, 1.0)] * 3, 4 * np.pi / 3),
}


@pytest.mark.parametrize("method", ["monte_carlo", "sobol"])
@pytest.mark.parametrize("name", SHAPES)
def test_values_are_exact_within_their_errors(name, method):
    function, over, exact = SHAPES[name]
    scores = []
    for seed in SEEDS:
        result = wb.integrate(function, over, num_draws=4096, method=method, seed=seed)
        assert result.num_draws == 4096
        assert result.reliable
        scores.append((result.value - exact) / result.std_error)
    assert np.max(np.abs(scores)) < BOUND
    # Errors that are far too large are as wrong.
    assert np.sqrt(np.mean(np.square(scores))) > 0.2


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "ball"])
def test_sobol_points_are_more_accurate(name):
    function, over, exact = SHAPES[name]
    errors = {}
    for method in ("monte_carlo", "sobol"):
        found = [
            wb.integrate(function, over, num_draws=8192, method=method, seed=seed) for seed in SEEDS
        ]
        errors[method] = np.sqrt(np.mean([(result.value - exact) ** 2 for result in found]))
        stated = np.mean([result.std_error for result in found])
        assert 0.3 < errors[method] / stated < 2.5
    assert errors["sobol"] < errors["monte_carlo"] / 3


def test_the_prior_of_a_model_is_one_too():
    model = wb.Model({"mu": dist.Normal(2.0, 1.0), "s": dist.Gamma(3.0, 1.0)}, lambda p, y: 0.0)
    result = wb.integrate(lambda p: p["mu"] * p["s"], model, num_draws=20_000)
    assert abs(result.value - 6.0) < BOUND * result.std_error < 0.3
    with pytest.raises(wb.MethodError, match=r"of 's', and NumPyro has none for Gamma"):
        wb.integrate(lambda p: p["mu"], model, method="sobol")


@pytest.mark.parametrize("method", ["monte_carlo", "sobol"])
def test_importance_sampling_reaches_a_rare_event(method):
    """P(x > 4) = 3.17e-5: plain draws hardly ever see it, and say so."""
    exact = 3.167124183311992e-05

    def beyond(x):
        return 1.0 * (x > 4)

    normal = dist.Normal(0.0, 1.0)
    plain = wb.integrate(beyond, normal, num_draws=4096, method=method)
    assert not plain.reliable
    assert "few draws count" in str(plain)
    for seed in SEEDS:
        result = wb.integrate(
            beyond, normal, proposal=dist.Normal(4.0, 1.0), num_draws=4096, method=method, seed=seed
        )
        assert abs(result.value - exact) < BOUND * result.std_error < 0.5 * exact


def test_a_density_up_to_a_constant_is_weighed_by_shares():
    """A normal at 1 with a factor of e^-700, drawn from a wide Student-t."""
    scores = []
    for seed in SEEDS:
        result = wb.integrate(
            lambda x: x**2,
            lambda x: -0.5 * (x - 1.0) ** 2 - 700.0,
            proposal=dist.StudentT(5.0, 0.0, 2.0),
            seed=seed,
        )
        scores.append((result.value - 2.0) / result.std_error)
        assert 0.3 < result.ess / result.num_draws < 0.9
        assert result.reliable
    assert np.max(np.abs(scores)) < BOUND
    assert 0.3 < np.sqrt(np.mean(np.square(scores))) < 2.5


def test_the_effective_size_is_that_of_the_weights():
    """For weights N(x; 0, 1) / N(x; m, 1) it is N exp(-m^2)."""
    result = wb.integrate(
        lambda x: x, dist.Normal(0.0, 1.0), proposal=dist.Normal(0.5, 1.0), num_draws=100_000
    )
    assert result.ess / result.num_draws == pytest.approx(np.exp(-0.25), rel=0.03)
    assert wb.integrate(lambda x: x, dist.Normal(0.0, 1.0)).ess == 2**14


def test_a_proposal_that_is_too_narrow_is_flagged():
    narrow = wb.integrate(lambda x: x**2, dist.Normal(0.0, 1.0), proposal=dist.Normal(0.0, 0.4))
    assert not narrow.reliable
    assert "heavy tail" in str(narrow)
    # So is a function without a mean.
    assert not wb.integrate(lambda x: x, dist.Cauchy(0.0, 1.0)).reliable


def test_a_box_may_have_a_proposal():
    """The integral of exp(-10 |x|) over a box around it, drawn from where it is."""
    result = wb.integrate(
        lambda x: jnp.exp(-10 * jnp.sum(jnp.abs(x))),
        [(-5.0, 5.0), (-5.0, 5.0)],
        proposal=dist.Laplace(0.0, 0.15).expand([2]).to_event(1),
    )
    exact = (0.2 * (1 - np.exp(-50))) ** 2
    assert abs(result.value - exact) < BOUND * result.std_error < 0.1 * exact


def test_the_same_seed_gives_the_same_numbers_and_results_are_plain():
    first, again, other = (
        wb.integrate(lambda x: x**2, dist.Normal(0.0, 1.0), seed=seed) for seed in (3, 3, 4)
    )
    assert first == again
    assert first.value != other.value
    assert all(type(number) is float for number in (first.value, first.std_error, first.ess))


@pytest.mark.parametrize("method", ["monte_carlo", "sobol"])
def test_another_seed_or_another_width_compiles_nothing(method, compiled):
    def integrate(seed, width):
        return wb.integrate(jnp.cos, dist.Normal(0.0, width), method=method, seed=seed)

    integrate(0, 1.0)
    before = len(compiled)
    result = integrate(1, 2.0)
    assert len(compiled) == before
    assert abs(result.value - np.exp(-2.0)) < BOUND * result.std_error


def test_many_draws_go_in_blocks():
    whole = wb.integrate(lambda x: x, dist.Uniform(0.0, 1.0), num_draws=150_000)
    assert whole.num_draws == 150_000
    assert whole.std_error == pytest.approx(np.sqrt(1 / 12 / 150_000), rel=0.02)
    assert abs(whole.value - 0.5) < BOUND * whole.std_error


def test_discrete_distributions_can_be_drawn_from():
    result = wb.integrate(lambda x: 1.0 * x, dist.Poisson(3.0))
    assert abs(result.value - 3.0) < BOUND * result.std_error
    with pytest.raises(wb.MethodError, match="none for Poisson"):
        wb.integrate(lambda x: 1.0 * x, dist.Poisson(3.0), method="sobol")


@pytest.mark.parametrize(
    ("function", "over", "settings", "message"),
    [
        (jnp.sin, dist.Normal(0, 1), {"method": "halton"}, "method must be one of"),
        (jnp.sin, dist.Normal(0, 1), {"num_draws": 3}, "at least 32"),
        (jnp.sin, dist.Normal(0, 1), {"seed": -1}, "seed must be"),
        (3.0, dist.Normal(0, 1), {}, "must be a function"),
        (jnp.sin, 3.0, {}, "over must be"),
        (jnp.sin, [(1.0, 0.0)], {}, "low < high"),
        (jnp.sum, [(0.0, np.inf)], {}, "is infinite"),
        (jnp.sin, jnp.sin, {}, "give a proposal"),
        (jnp.sin, dist.Normal(0, 1), {"proposal": 1}, "proposal must be"),
        (lambda x: jnp.ones(2), dist.Normal(0, 1), {}, "one number"),
        (lambda x: x if x > 0 else -x, dist.Normal(0, 1), {}, "jnp.where"),
        (jnp.log, dist.Normal(0, 1), {}, "not a number"),
        (lambda x: x["a"], {"a": dist.Beta(1, 1)}, {"method": "sobol"}, "of 'a'"),
    ],
)
def test_what_makes_no_sense_is_refused(function, over, settings, message):
    with pytest.raises(wb.MethodError, match=message):
        wb.integrate(function, over, **settings)


def test_the_path_of_an_integral_ends_at_its_value():
    for method, least in (("monte_carlo", 4), ("sobol", 64)):
        found = wb.integrate(lambda x: x**2, dist.Normal(0, 1), num_draws=1024, method=method)
        draws, values, errors = np.array(found.path).T
        assert found.path[-1] == (1024, found.value, found.std_error)
        assert draws[0] == least
        assert np.all(np.diff(np.log2(draws)) == 1)
        assert np.all(np.abs(values - 1) < 5 * errors + 0.5)


def test_a_density_that_is_zero_at_the_first_draws_has_a_shorter_path():
    found = wb.integrate(
        lambda x: x,
        lambda x: jnp.where(x > 1.5, 0.0, -jnp.inf),
        num_draws=1024,
        proposal=dist.Normal(0, 1),
        seed=2,
    )
    assert found.path[-1][0] == 1024
    assert all(np.isfinite(value) for _, value, _ in found.path)
