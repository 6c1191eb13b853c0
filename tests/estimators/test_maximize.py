"""Maxima against closed forms: in which space, from which starts, with and without gradients."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb

DATA = np.random.default_rng(0).normal(1.5, 2.0, size=40)


def normal_row(p, y):
    return dist.Normal(p["mu"], 2.0).log_prob(y)


CONJUGATE = wb.Model({"mu": dist.Normal(0.0, 3.0)}, normal_row)
PRECISION = 1 / 9 + 40 / 4
QUICK = {"num_starts": 4, "num_steps": 200}


def test_the_mode_of_a_conjugate_normal():
    best = wb.maximize(CONJUGATE, DATA, **QUICK)
    exact = DATA.sum() / 4 / PRECISION
    assert best.parameters["mu"] == pytest.approx(exact, abs=1e-6)
    assert best.std_errors["mu"] == pytest.approx(1 / np.sqrt(PRECISION), rel=1e-6)
    expected = CONJUGATE.log_prior({"mu": exact})
    expected += float(np.sum(-0.5 * ((DATA - exact) / 2) ** 2 - np.log(2 * np.sqrt(2 * np.pi))))
    assert best.log_density == pytest.approx(expected, abs=1e-8)
    assert best.optima.shape == (4,)
    assert best.notes == ()
    assert type(best.log_density) is float
    assert isinstance(best.parameters["mu"], np.ndarray)
    assert best.parameters["mu"].dtype == np.float64
    assert "mu = " in str(best)


def test_the_largest_likelihood():
    best = wb.maximize(CONJUGATE, DATA, "likelihood", **QUICK)
    assert best.parameters["mu"] == pytest.approx(DATA.mean(), abs=1e-6)
    assert best.std_errors["mu"] == pytest.approx(2 / np.sqrt(40), rel=1e-6)


def gamma_poisson(p, y):
    return y * jnp.log(p["rate"]) - p["rate"]


@pytest.mark.parametrize(
    ("objective", "space", "exact"),
    [
        # Posterior Gamma(a, b), a = 2 + 11, b = 1 + 4: its mode is (a - 1) / b, that of the log of
        # the rate, with the Jacobian, exp(u) = a / b.
        ("posterior", "constrained", 12 / 5),
        ("posterior", "unconstrained", 13 / 5),
        ("likelihood", "constrained", 11 / 4),
        ("likelihood", "unconstrained", 11 / 4),
    ],
)
def test_a_mode_depends_on_the_space_and_the_likelihood_does_not(objective, space, exact):
    model = wb.Model({"rate": dist.Gamma(2.0, 1.0)}, gamma_poisson)
    counts = np.array([3.0, 2.0, 4.0, 2.0])
    best = wb.maximize(model, counts, objective, space=space, **QUICK)
    assert best.parameters["rate"] == pytest.approx(exact, abs=1e-5)
    assert (best.objective, best.space) == (objective, space)
    if space == "constrained":
        # Minus one over the second derivative in the rate itself.
        power = 12 if objective == "posterior" else 11
        assert best.std_errors["rate"] == pytest.approx(exact / np.sqrt(power), rel=1e-4)


def test_linear_regression_with_its_covariance():
    rng = np.random.default_rng(1)
    design = rng.normal(size=(60, 3)) @ np.array([[1.0, 0.9, 0.0], [0, 0.3, 0.0], [0, 0, 5.0]])
    outcome = design @ np.array([1.0, -2.0, 0.5]) + rng.normal(size=60)
    model = wb.Model(
        {"w": dist.Normal(0.0, 2.0).expand([3]).to_event(1)},
        lambda p, row: dist.Normal(row["x"] @ p["w"], 1.0).log_prob(row["y"]),
    )
    best = wb.maximize(model, {"x": design, "y": outcome}, **QUICK)
    precision = design.T @ design + np.eye(3) / 4
    np.testing.assert_allclose(
        best.parameters["w"], np.linalg.solve(precision, design.T @ outcome), atol=1e-6
    )
    np.testing.assert_allclose(
        best.std_errors["w"], np.sqrt(np.diag(np.linalg.inv(precision))), rtol=1e-6
    )


def test_weights_of_rows_count():
    data = {"y": np.array([1.0, 4.0]), "weight": np.array([3.0, 1.0])}
    model = wb.Model({"mu": dist.Normal(0.0, 100.0)}, lambda p, r: -0.5 * (r["y"] - p["mu"]) ** 2)
    best = wb.maximize(model, data, "likelihood", **QUICK)
    assert best.parameters["mu"] == pytest.approx(7 / 4, abs=1e-6)


def rastrigin(p):
    u = p["u"] - 0.7
    return -jnp.sum(u**2 - 10 * jnp.cos(2 * jnp.pi * u) + 10)


def eggbox(p):
    return (2 + jnp.cos(p["u"][0] / 2) * jnp.cos(p["u"][1] / 2)) ** 5


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_best_of_a_hundred_hills(seed):
    """Rastrigin's function in three dimensions: about 1,000 optima, one best."""
    model = wb.Model(
        {"u": dist.Uniform(-5.12, 5.12).expand([3]).to_event(1)}, total_log_likelihood=rastrigin
    )
    best = wb.maximize(model, objective="likelihood", seed=seed)
    np.testing.assert_allclose(best.parameters["u"], 0.7, atol=1e-5)
    assert best.log_density == pytest.approx(0.0, abs=1e-8)
    np.testing.assert_allclose(best.std_errors["u"], (2 + 40 * np.pi**2) ** -0.5, rtol=1e-4)
    assert np.all(np.diff(best.optima) <= 0)
    single = wb.maximize(model, objective="likelihood", num_starts=8, num_steps=1, seed=seed)
    assert single.log_density < -0.5, "climbing alone does not find it"
    assert "other optima" in single.notes[0]


def test_one_of_the_highest_eggs():
    model = wb.Model(
        {"u": dist.Uniform(0.0, 10 * np.pi).expand([2]).to_event(1)}, total_log_likelihood=eggbox
    )
    best = wb.maximize(model, num_starts=4, num_steps=500)
    prior = -2 * np.log(10 * np.pi)
    assert best.log_density == pytest.approx(3**5 + prior, abs=1e-6)


def on_host(p):
    """Plain NumPy, one set of parameters at a time, with a branch."""
    if p["a"] < -1e3:
        return -np.inf
    return float(-0.5 * ((p["a"] - 2.0) ** 2 + 10 * (p["b"] - 0.5) ** 2))


def test_a_likelihood_on_the_host_is_maximised_without_a_gradient():
    prior = {"a": dist.Normal(0.0, 5.0), "b": dist.Uniform(0.0, 1.0)}
    best = wb.maximize(wb.Model(prior, total_log_likelihood=on_host), num_starts=2, num_steps=200)
    assert best.parameters["a"] == pytest.approx(2 / (1 + 1 / 25), abs=1e-3)
    assert best.parameters["b"] == pytest.approx(0.5, abs=1e-3)
    assert best.std_errors is None
    assert any("Nelder-Mead" in note for note in best.notes)


def test_far_away_in_units_of_a_scale_is_no_edge():
    """The mean in units of the standard deviation, eighty of them from 0."""
    standard = dist.Normal(0.0, 1.0)
    model = wb.Model(
        {
            "s": dist.HalfNormal(1.0),
            "mu": lambda p: dist.TransformedDistribution(
                standard, dist.transforms.AffineTransform(0.0, p["s"])
            ),
        },
        lambda p, y: dist.Normal(p["mu"], p["s"]).log_prob(y),
    )
    rows = 40.0 + 0.5 * np.random.default_rng(0).normal(size=200)
    best = wb.maximize(model, rows, "likelihood", **QUICK)
    assert not any("edge" in note for note in best.notes)
    assert best.parameters["mu"] == pytest.approx(rows.mean(), rel=1e-6)
    assert best.std_errors["mu"] == pytest.approx(rows.std() / np.sqrt(200), rel=1e-3)


def test_a_density_that_grows_to_the_edge_is_noted():
    model = wb.Model({"s": dist.Exponential(1.0)}, lambda p, y: 0.0 * y)
    best = wb.maximize(model, np.zeros(3), **QUICK)
    assert best.parameters["s"] < 1e-6
    assert any("edge of its support" in note for note in best.notes)
    assert best.std_errors is None


def test_the_same_seed_gives_the_same_numbers_and_a_second_call_compiles_nothing(compiled):
    first = wb.maximize(CONJUGATE, DATA, seed=3, **QUICK)
    before = len(compiled)
    again = wb.maximize(CONJUGATE, DATA, seed=3, **QUICK)
    wb.maximize(CONJUGATE, DATA[:35], seed=4, **QUICK)
    assert len(compiled) == before
    np.testing.assert_array_equal(first.positions, again.positions)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"objective": "prior"}, wb.MethodError, "objective must be"),
        ({"space": "log"}, wb.MethodError, "space must be"),
        ({"num_starts": 0}, wb.MethodError, "num_starts must be"),
        ({"num_steps": 1.5}, wb.MethodError, "num_steps must be"),
        ({"seed": -1}, wb.MethodError, "seed must be"),
        ({"data": None}, wb.DataError, "give it data"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, error, message):
    with pytest.raises(error, match=message):
        wb.maximize(CONJUGATE, **{"data": DATA, **settings})


def test_a_density_that_is_nowhere_is_refused():
    model = wb.Model({"u": dist.Normal(0, 1)}, total_log_likelihood=lambda p: jnp.nan * p["u"])
    with pytest.raises(wb.ModelError, match="at every prior draw"):
        wb.maximize(model, **QUICK)
    with pytest.raises(wb.MethodError, match=r"must be a wb\.Model"):
        wb.maximize(3.0)
