"""Predictive draws: their moments, their independence, their forms, and what mistakes are told."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.results import prediction
from weighbridge.results.prediction import Prediction, predict
from weighbridge.results.trace import Trace

GENERATOR = np.random.default_rng(0)
SAMPLES = {"w": GENERATOR.normal(size=(300, 2)), "b": GENERATOR.normal(size=300)}
ROWS = {"x": GENERATOR.normal(size=(7, 2)), "k": np.arange(7)}


def made(samples, weights=None):
    size = len(next(iter(samples.values())))
    weights = np.full(size, 1 / size) if weights is None else weights
    return wb.Evidence(-1.0, 0.1, 9, "smc", Trace(), samples, np.log(weights))


def line(p, row):
    return row["x"] @ p["w"] + p["b"] + row["k"]


def noisy(p, row):
    return dist.Normal(line(p, row), 2.0)


def test_plain_numbers_are_taken_as_they_are():
    expected = SAMPLES["w"] @ ROWS["x"].T + SAMPLES["b"][:, None] + ROWS["k"]
    draws = predict(line, SAMPLES, ROWS)
    np.testing.assert_allclose(draws, expected, rtol=1e-12)
    assert type(draws) is np.ndarray
    assert draws.dtype == np.float64
    np.testing.assert_allclose(predict(lambda p: p["w"], SAMPLES), SAMPLES["w"])
    assert predict(lambda p: 3, SAMPLES).shape == (300,)
    assert predict(lambda p, row: row["x"][:, None] * p["w"], SAMPLES, ROWS).shape == (300, 7, 2, 2)


def test_double_precision_inside():
    kinds = []

    def function(p, row):
        kinds.append((p["b"].dtype, row["k"].dtype))
        return p["b"] * 1e-12 + 1.0

    draws = predict(function, SAMPLES, ROWS)
    np.testing.assert_allclose((draws[:, 0] - 1) * 1e12, SAMPLES["b"], atol=1e-3)
    assert kinds[0] == (np.float64, np.int64)
    assert jnp.ones(1).dtype == np.float32  # the user's own setting is as before


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_moments_of_the_posterior_predictive(seed):
    """With mu ~ N(1, 0.5^2) and y ~ N(mu, 2^2), y ~ N(1, 0.5^2 + 2^2) on every row."""
    mu = {"mu": 1 + 0.5 * np.random.default_rng(seed).normal(size=20_000)}
    posterior = made(mu)
    told = posterior.predict(
        lambda p, row: dist.Normal(p["mu"], 2.0), np.zeros(3), num_draws=20_000, seed=seed
    )
    deviation = np.sqrt(0.25 + 4)
    # Six comparisons at 5 standard errors, three times: by chance once in 10^5.
    assert np.all(np.abs(told.mean - 1) < 5 * deviation / np.sqrt(20_000))
    assert np.all(np.abs(told.sd / deviation - 1) < 5 / np.sqrt(2 * 20_000))
    # Rows share the parameters and not the noise: correlation 0.25 / 4.25.
    correlation = np.corrcoef(told.draws.T)[np.triu_indices(3, 1)]
    assert np.all(np.abs(correlation - 0.25 / 4.25) < 5 / np.sqrt(20_000))
    low, high = told.interval(0.9)
    np.testing.assert_allclose(low, 1 - 1.645 * deviation, atol=0.2)
    np.testing.assert_allclose(high, 1 + 1.645 * deviation, atol=0.2)


def test_weights_count():
    weights = np.array([0.1, 0.6, 0.3])
    posterior = made({"a": np.array([0.0, 1.0, 2.0])}, weights)
    told = posterior.predict(lambda p: p["a"], num_draws=1000)
    assert np.bincount(told.draws.astype(int)).tolist() == [100, 600, 300]
    assert told.num_rows is None
    assert told.mean == pytest.approx(1.2)


def test_no_random_number_is_used_twice_and_seeds_name_streams(monkeypatch):
    monkeypatch.setattr(prediction, "BLOCK_DRAWS", 64)
    monkeypatch.setattr(prediction, "BLOCK_VALUES", 128)
    first = predict(noisy, SAMPLES, ROWS, seed=5)
    noise = first - predict(line, SAMPLES, ROWS)
    assert noise.shape == (300, 7)
    assert len(np.unique(noise.round(9))) == noise.size
    assert abs(noise.mean()) < 5 * 2 / np.sqrt(noise.size)
    again, other = predict(noisy, SAMPLES, ROWS, seed=5), predict(noisy, SAMPLES, ROWS, seed=6)
    np.testing.assert_array_equal(again, first)
    assert not np.any(again == other)


def test_blocks_bound_what_is_computed_at_once(monkeypatch):
    whole = predict(line, SAMPLES, ROWS)
    sizes = []
    evaluate = prediction._evaluate

    def watched(static, parameters, rows, key_data):
        sizes.append(key_data.shape[:2])
        return evaluate(static, parameters, rows, key_data)

    monkeypatch.setattr(prediction, "_evaluate", watched)
    monkeypatch.setattr(prediction, "BLOCK_DRAWS", 64)
    monkeypatch.setattr(prediction, "BLOCK_VALUES", 128)
    np.testing.assert_allclose(predict(line, SAMPLES, ROWS), whole, rtol=1e-12)
    assert set(sizes) == {(64, 2)}
    assert len(sizes) == 5 * 4


def test_a_second_call_compiles_nothing():
    traced = []

    class Function:
        """Equal to nothing and without a hash, as modules that hold arrays are."""

        __hash__ = None

        def __eq__(self, other):
            raise AssertionError("functions are told apart by identity")

        def __call__(self, p, row):
            traced.append(1)
            return dist.Normal(p["b"], row["k"] + 1.0)

    function = Function()
    predict(function, SAMPLES, ROWS)
    first = len(traced)
    predict(function, {k: 2 * v for k, v in SAMPLES.items()}, ROWS, seed=1)
    assert len(traced) == first > 0


@pytest.mark.parametrize(
    ("make", "shape", "support"),
    [
        (lambda p, row: dist.Poisson(3.0), (), lambda y: (y >= 0) & (y == np.round(y))),
        (lambda p, row: dist.Bernoulli(logits=p["b"]), (), lambda y: (y == 0) | (y == 1)),
        (lambda p, row: dist.Dirichlet(jnp.ones(3)), (3,), lambda y: (y >= 0) & (y <= 1)),
        (lambda p, row: dist.Normal(row["x"], 1.0), (2,), np.isfinite),
        (
            lambda p, row: dist.MixtureSameFamily(
                dist.Categorical(jnp.ones(2) / 2), dist.Normal(p["w"], 1.0)
            ),
            (),
            np.isfinite,
        ),
    ],
)
def test_many_distributions(make, shape, support):
    draws = predict(make, SAMPLES, ROWS)
    assert draws.shape == (300, 7, *shape)
    assert draws.dtype == np.float64
    assert np.all(support(draws))


@pytest.mark.parametrize(
    ("function", "inputs", "error", "says"),
    [
        (lambda p: None, None, wb.ModelError, "plain numbers.*not NoneType"),
        (lambda p: {"y": 1.0}, None, wb.ModelError, "distribution or plain numbers.*not dict"),
        (lambda p, row: 1.0, None, wb.ModelError, r"function\(parameters\)"),
        (lambda p: 1.0, ROWS, wb.ModelError, r"called as function\(parameters, row\)"),
        (lambda p, row: p["v"], ROWS, wb.ModelError, r"KeyError: 'v'.*"),
        (lambda p, row: np.sin(float(row["k"])), ROWS, wb.ModelError, "must use jax.numpy"),
        (lambda p, row: row["k"] * 1j, ROWS, wb.ModelError, "real numbers"),
        (lambda p, row: row["x"] @ p["b"], ROWS, wb.ModelError, r"'x': 'float64\[2\]'"),
        (3, ROWS, wb.MethodError, "callable.*not 3"),
        (line, {"x": np.zeros((0, 2)), "k": np.zeros(0)}, wb.DataError, "no rows"),
        (line, {"x": np.zeros((3, 2)), "k": np.zeros(2)}, wb.DataError, "2 and 3 rows"),
        (line, {"x": np.array(["a"]), "k": np.zeros(1)}, wb.DataError, "'x' holds text"),
    ],
)
def test_mistakes_are_named(function, inputs, error, says):
    with pytest.raises(error, match=says):
        predict(function, SAMPLES, inputs)


def test_mistakes_in_what_is_asked():
    posterior = made(SAMPLES)
    for bad in (0, -1, 2.5, True):
        with pytest.raises(wb.MethodError, match="num_draws must be a whole number"):
            posterior.predict(line, ROWS, num_draws=bad)
    with pytest.raises(wb.MethodError, match="seed must be"):
        predict(line, SAMPLES, ROWS, seed=-1)
    with pytest.raises(wb.MethodError, match="no posterior draws"):
        wb.Evidence(-1.0, 0.1, 9, "smc", Trace(), {}, np.zeros(1)).predict(line, ROWS)
    told = posterior.predict(line, ROWS)
    for bad in (1.5, [-0.1], np.nan):
        with pytest.raises(wb.MethodError, match="between 0 and 1"):
            told.quantile(bad)
    for bad in (0.0, 1.0, 90):
        with pytest.raises(wb.MethodError, match="between 0 and 1"):
            told.interval(bad)
    with pytest.raises(wb.MethodError, match="each of the 7 rows"):
        told.plot(np.zeros(6))
    with pytest.raises(wb.MethodError, match="leave x out"):
        posterior.predict(lambda p: p["b"]).plot([1.0])


def test_what_a_prediction_tells():
    draws = np.arange(10.0)[:, None] + np.array([0.0, 100.0])
    told = Prediction(draws, num_rows=2)
    assert told.num_draws == 10
    assert told.mean.tolist() == [4.5, 104.5]
    np.testing.assert_allclose(told.sd, np.std(np.arange(10.0)))
    assert told.quantile(0.5).tolist() == [4.5, 104.5]
    assert told.quantile([0.0, 1.0]).tolist() == [[0.0, 100.0], [9.0, 109.0]]
    low, high = told.interval(0.8)
    assert (high - low).tolist() == [7.0, 7.0]  # eight of ten draws, nowhere closer together
    low, high = told.interval(0.8, "equal-tailed")
    np.testing.assert_allclose([low[0], high[0]], np.quantile(np.arange(10.0), [0.1, 0.9]))
    lines = str(told).splitlines()
    assert lines[0] == "10 draws of 2 rows"
    assert lines[1].split() == ["mean", "sd", "50%", "94%", "HDI", "low", "94%", "HDI", "high"]
    assert lines[2].split()[:3] == ["row", "0", "4.5"]
    assert repr(told) == "<Prediction: 10 draws of 2 rows>"
    scalar = Prediction(np.arange(10.0))
    assert isinstance(scalar.mean, float)
    assert str(scalar).splitlines()[2].startswith("value")


def test_a_long_prediction_is_cut_when_printed():
    told = Prediction(np.zeros((4, 30, 2)), num_rows=30, probabilities={"a": 0.25, "b": 0.75})
    lines = str(told).splitlines()
    assert lines[0] == "4 draws of 30 rows, averaged over a (0.25), b (0.75)"
    assert lines[2].startswith("row 0 [0]")
    assert lines[-1].startswith("and 50 more values")
    assert len(lines) == 13


def test_inputs_as_tables_and_arrays():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"k": [1.0, 2.0]})
    by_table = predict(lambda p, row: p["b"] * row["k"], SAMPLES, table)
    by_array = predict(lambda p, row: p["b"] * row, SAMPLES, [1.0, 2.0])
    np.testing.assert_array_equal(by_table, by_array)


def test_the_posterior_of_a_regression_predicts_new_rows():
    """Against the exact predictive of conjugate regression, at two new rows."""
    data = wb.zoo.linear.simulate(200, num_features=2, seed=4)
    model = wb.zoo.linear.model(num_features=2)
    result = wb.evidence(model, data, wb.SMC(num_islands=16, num_particles=32), seed=1)
    design = np.column_stack([data["x"], np.ones(200)])
    covariance = np.linalg.inv(np.eye(3) + design.T @ design)
    mean = covariance @ design.T @ data["y"]
    new = np.array([[1.0, -1.0], [0.0, 3.0]])
    rows = np.column_stack([new, np.ones(2)])
    told = result.predict(lambda p, row: row["x"] @ p["w"] + p["b"], {"x": new}, num_draws=2000)
    variance = np.einsum("ij,jk,ik->i", rows, covariance, rows)
    # Resampled particles share ancestors: count a quarter of the 512 as independent.
    assert np.all(np.abs(told.mean - rows @ mean) < 5 * np.sqrt(variance / 128))
    np.testing.assert_allclose(told.sd, np.sqrt(variance), rtol=0.3)
