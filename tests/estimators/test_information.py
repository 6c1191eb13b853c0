"""The score and the Fisher information against their formulas."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb

GAMMA = wb.Model(
    {"shape": dist.HalfNormal(5.0), "rate": dist.HalfNormal(5.0)},
    lambda p, y: dist.Gamma(p["shape"], p["rate"]).log_prob(y),
)


def test_linear_regression_over_several_blocks_of_rows_with_weights():
    data = wb.zoo.linear.simulate(3000, num_features=3)
    weight = np.random.default_rng(0).integers(0, 4, 3000).astype(float)
    model, point = wb.zoo.linear.model(3, noise=2.0), {"w": np.array([0.5, -1.0, 0.2]), "b": 0.3}
    features = np.column_stack([data["x"], np.ones(3000)])
    residual = (data["y"] - data["x"] @ point["w"] - 0.3) / 4.0
    rows = {**data, "weight": weight}
    found = wb.score(model, rows, point)
    exact = features.T @ (weight * residual)
    assert found["w"] == pytest.approx(exact[:3], rel=1e-12)
    assert found["b"] == pytest.approx(exact[3], rel=1e-12)
    observed = wb.fisher_information(model, rows, point)
    curvature = features.T @ (weight[:, None] * features) / 4.0
    assert observed.matrix == pytest.approx(curvature, rel=1e-12)
    assert observed.block("w", "b") == pytest.approx(curvature[:3, 3])
    assert observed.block("b").shape == ()
    spread = np.sqrt(np.diag(np.linalg.inv(curvature)))
    assert observed.std_errors["w"] == pytest.approx(spread[:3])
    products = wb.fisher_information(model, rows, point, "outer_products")
    expected = (features * residual[:, None]).T @ (weight[:, None] * features * residual[:, None])
    assert products.matrix == pytest.approx(expected, rel=1e-12)
    assert str(products).splitlines()[0].split() == ["w[0]", "w[1]", "w[2]", "b"]
    assert list(products.to_pandas().columns) == ["w[0]", "w[1]", "w[2]", "b"]


def test_both_kinds_agree_at_the_true_parameters_and_the_score_is_zero_at_the_maximum():
    """Gamma(shape, rate): trigamma(shape), -1/rate, shape/rate^2; here shape = 2, rate = 3."""
    data = np.random.default_rng(1).gamma(2.0, 1 / 3.0, 20_000)
    truth = {"shape": 2.0, "rate": 3.0}
    exact = 20_000 * np.array([[np.pi**2 / 6 - 1, -1 / 3], [-1 / 3, 2 / 9]])
    assert wb.fisher_information(GAMMA, data, truth).matrix == pytest.approx(exact, rel=1e-9)
    products = wb.fisher_information(GAMMA, data, truth, "outer_products")
    assert products.matrix == pytest.approx(exact, rel=0.05)
    # At the truth the score has the information as its variance.
    score = np.array(list(wb.score(GAMMA, data, truth).values()))
    assert score @ np.linalg.solve(exact, score) < 13.8  # chi-squared of 2, p = 0.001
    best = wb.maximize(GAMMA, data, "likelihood", num_starts=4, num_steps=300).parameters
    assert np.abs(list(wb.score(GAMMA, data, best).values())).max() < 0.05


def test_a_total_log_likelihood_has_both_but_no_outer_products():
    model = wb.Model(
        {"m": dist.Normal(0, 1).expand([2]).to_event(1)},
        total_log_likelihood=lambda p, y: -0.5 * jnp.sum((y - p["m"]) ** 2),
    )
    data = np.array([[1.0, 2.0], [3.0, 5.0]])
    assert wb.score(model, data, {"m": np.zeros(2)})["m"].tolist() == [4.0, 7.0]
    assert wb.fisher_information(model, data, {"m": np.zeros(2)}).matrix.tolist() == [
        [2, 0],
        [0, 2],
    ]
    with pytest.raises(wb.ModelError, match="row by row"):
        wb.fisher_information(model, data, {"m": np.zeros(2)}, "outer_products")
    host = wb.Model(
        {"m": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -np.asarray(p["m"]) ** 2,
        on_host=True,
    )  # fmt: skip
    with pytest.raises(wb.ModelError, match="needs derivatives"):
        wb.score(host, None, {"m": 0.0})


def test_bad_input_is_refused():
    data = np.ones(3)
    for point, message in (
        ({"shape": 1.0}, "missing"),
        ({"shape": 1.0, "rate": -1.0}, "outside the support"),
        ({"shape": 1.0, "rate": 1.0, "x": 1.0}, "no parameters"),
        ({"shape": np.ones(2), "rate": 1.0}, "shape"),
        (3.0, "mapping"),
    ):
        with pytest.raises(wb.WeighbridgeError, match=message):
            wb.score(GAMMA, data, point)
    with pytest.raises(wb.MethodError, match="kind"):
        wb.fisher_information(GAMMA, data, {"shape": 1.0, "rate": 1.0}, "expected")
    found = wb.fisher_information(GAMMA, data, {"shape": 1.0, "rate": 1.0})
    with pytest.raises(wb.MethodError, match="no parameter 'x'"):
        found.block("x")
    flat = wb.Information(np.zeros((1, 1)), {"a": np.zeros(())}, "observed")
    with pytest.raises(wb.MethodError, match="not positive definite"):
        _ = flat.std_errors
