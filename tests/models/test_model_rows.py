"""The log-likelihood of one row against the rows that it is given."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from weighbridge.core.errors import DataError, ModelError
from weighbridge.models.model import Model
from weighbridge.models.row_likelihood import check_row_function, split_weight


def linear(p, row):
    return dist.Normal(row["x"] @ p["w"], 1.0).log_prob(row["y"])


LINEAR = Model({"w": dist.Normal(0, 1).expand([2]).to_event(1)}, linear)
ROWS = {"x": np.ones((4, 2)), "y": np.zeros(4)}
WEIGHT = {"weight": np.arange(4)}


def with_likelihood(function):
    return Model({"w": dist.Normal(0, 1).expand([2]).to_event(1)}, function)


def test_weight_column_counts_rows_unless_it_is_used():
    assert check_row_function(LINEAR, ROWS) is False
    assert check_row_function(LINEAR, ROWS | WEIGHT) is True
    uses = {
        "item": lambda p, r: linear(p, r) * r["weight"],
        "get": lambda p, r: linear(p, r) + r.get("weight", 1.0),
        "values": lambda p, r: linear(p, r) + sum(jnp.sum(v) for v in r.values()),
        "leaves": lambda p, r: linear(p, r) + sum(jnp.sum(v) for v in jax.tree_util.tree_leaves(r)),
        "jitted": jax.jit(lambda p, r: linear(p, r) * r["weight"]),
        "cond": lambda p, r: jax.lax.cond(r["weight"] > 1, lambda: linear(p, r), lambda: 0.0),
        "scan": lambda p, r: jax.lax.fori_loop(0, 2, lambda i, t: t + r["weight"] * p["w"][0], 0.0),
    }
    for name, function in uses.items():
        assert check_row_function(with_likelihood(function), ROWS | WEIGHT) is False, name
    ignores = {
        "jitted": jax.jit(linear),
        "mapped": lambda p, r: linear(p, jax.tree_util.tree_map(lambda v: v + 0.0, r)),
        "copied": lambda p, r: linear(p, dict(r)),
        "dropped": lambda p, r: linear(p, {k: v for k, v in r.items() if k != "weight"}),
    }
    for name, function in ignores.items():
        assert check_row_function(with_likelihood(function), ROWS | WEIGHT) is True, name


def test_plain_arrays_are_rows_too():
    model = Model({"mu": dist.Normal(0, 1)}, lambda p, y: -((y - p["mu"]) ** 2))
    assert check_row_function(model, np.zeros(3)) is False


def test_row_log_likelihoods_vectorise():
    with jax.enable_x64(True):
        rows = LINEAR.row_log_likelihoods({"w": jnp.array([1.0, 2.0])}, ROWS)
    np.testing.assert_allclose(rows, -4.5 - 0.5 * np.log(2 * np.pi), rtol=1e-12)


NOISE = np.random.default_rng(0)
KEY = [0]


def _counter(p, row):
    KEY[0] += 1
    return linear(p, row) + KEY[0]


@pytest.mark.parametrize(
    ("function", "values", "message"),
    [
        (lambda p, r: r["x"] * p["w"], ROWS, r"must be a scalar; it has the shape \(2,\)"),
        (lambda p, r: (linear(p, r), 0.0), ROWS, r"a scalar; it has the shape \[\(\), \(\)"),
        (lambda p, r: jnp.asarray(1), ROWS, "must be a real number; it is of type int"),
        (lambda p, r: r["y"] > 0, ROWS, "must be a real number; it is of type bool"),
        (lambda p, r: linear(p, r) + 0j, ROWS, "must be a real number; it is of type complex"),
        (linear, {"x": np.ones((4, 3)), "y": np.zeros(4)}, r"fails on one row \{x: float64\[3\]"),
        (linear, {"x": np.ones((4, 2))}, "fails on one row .* KeyError: 'y'"),
        (lambda p, r: linear(p, r) + p["v"], ROWS, "fails on one row .* KeyError: 'v'"),
        (lambda p, r: float(r["y"]), ROWS, "use jax.numpy inside"),
        (lambda p, r: linear(p, r) + NOISE.normal(), ROWS, "random from call to call"),
        (lambda p, r: linear(p, r) + NOISE.normal(size=5000).sum(), ROWS, "random from call"),
        (lambda p, r: linear(p, r) + jnp.sum(NOISE.normal(size=5000)), ROWS, "random from call"),
        (lambda p, r: linear(p, r) + jnp.sum(NOISE.normal(size=3) * p["w"][0]), ROWS, "random"),
        (_counter, ROWS, "random from call to call"),
    ],
)  # fmt: skip
def test_bad_row_functions(function, values, message):
    with pytest.raises(ModelError, match=message):
        check_row_function(with_likelihood(function), values)


def test_a_model_is_traced_once_for_each_layout_of_its_rows():
    traces = []

    def counting(p, row):
        traces.append(1)
        return p["w"][0] * row["x"][0]

    model = with_likelihood(counting)
    for rows in ({"x": np.ones((5, 2))}, {"x": np.zeros((9, 2))}, {"x": np.ones((5, 3))}):
        assert check_row_function(model, rows) is False
    assert len(traces) == 4, "two traces for each of two layouts"
    assert check_row_function(with_likelihood(counting), {"x": np.ones((5, 2))}) is False
    assert len(traces) == 6, "another model is another one"


def test_an_error_of_the_library_passes_through():
    def refuses(p, r):
        raise DataError("the label is outside 0..3")

    with pytest.raises(DataError, match="outside"):
        check_row_function(with_likelihood(refuses), ROWS)


def test_a_fixed_key_is_not_random():
    def fixed(p, r):
        return linear(p, r) + jax.random.normal(jax.random.key(3)) * 0.1

    assert check_row_function(with_likelihood(fixed), ROWS) is False


def test_a_fixed_array_is_not_random():
    table = NOISE.normal(size=(5000, 2))
    model = with_likelihood(lambda p, r: linear(p, r) + jnp.sum(table @ p["w"]))
    assert check_row_function(model, ROWS) is False


def test_total_log_likelihood_has_no_rows():
    model = Model({"a": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -(p["a"] ** 2))
    for call in (
        model.require_rows,
        lambda: check_row_function(model, ROWS),
        lambda: model.row_log_likelihoods({"a": 0.0}, ROWS),
    ):
        with pytest.raises(ModelError, match=r"works row by row.*Give log_likelihood"):
            call()
    assert model.sample_prior(2)["a"].shape == (2,)


def test_split_weight():
    values, weight = split_weight(ROWS | WEIGHT, True)
    assert list(values) == ["x", "y"]
    np.testing.assert_array_equal(weight, [0.0, 1.0, 2.0, 3.0])
    assert weight.dtype == np.float64
    values, weight = split_weight(ROWS | WEIGHT, False)
    assert "weight" in values
    np.testing.assert_array_equal(weight, np.ones(4))
    values, weight = split_weight(np.zeros((3, 2)), False)
    np.testing.assert_array_equal(weight, np.ones(3))


@pytest.mark.parametrize(
    "weight",
    [np.array([1.0, -1.0]), np.ones((2, 2)), np.array([1.0, np.nan]), np.array([1.0, np.inf])],
)
def test_split_weight_errors(weight):
    with pytest.raises(DataError, match=r"'weight' counts repeated rows.*Rename it"):
        split_weight({"x": np.zeros(2), "weight": weight}, True)
