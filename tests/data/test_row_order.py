"""Rows sorted by what they say are taken in random order, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.data.row_order import in_random_order, order_matters

SMALL = wb.SGAIS(num_islands=4, num_particles=16)


def sorted_rows(num_rows=3000, by="y"):
    data = wb.zoo.linear.simulate(num_rows, seed=3)
    order = np.argsort(data["y"] if by == "y" else data["x"][:, 0])
    return {name: column[order] for name, column in data.items()}


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, shape: rng.normal(size=shape),
        lambda rng, shape: rng.standard_cauchy(size=shape),
        lambda rng, shape: rng.integers(0, 2, size=shape),
        lambda rng, shape: rng.random(size=shape) < 0.01,
    ],
    ids=["normal", "heavy tails", "labels", "rare labels"],
)
def test_rows_in_random_order_are_never_said_to_be_sorted(draw):
    # Some 100 columns of 8 segments, each with a false-alarm rate of 1e-9: none may be found.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert not order_matters({"x": draw(rng, (20_000, 4)), "y": draw(rng, 20_000)})


def test_what_stands_in_an_order_is_found():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(50_000, 3))
    late = noise.copy()
    late[25_000:, 2] += 0.5  # a small shift, in one column, of the second half
    assert order_matters(np.sort(noise, axis=0))
    assert order_matters({"x": noise, "label": np.repeat([0, 1], 25_000)})
    assert order_matters(late)
    assert order_matters(wb.zoo.mixture.simulate_shift(20_000))
    assert not order_matters(noise)
    assert not order_matters(np.arange(200.0))  # one chunk has no order


@pytest.mark.parametrize("width", [0, 1, 63, 64, 65, 784])
def test_a_sorted_label_is_found_beside_any_number_of_columns(width):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2000, width)), np.sort(rng.integers(0, 2, 2000))
    assert order_matters({"x": x, "y": y})
    assert order_matters({"image": x.reshape(2000, 1, width), "y": y + 2**60})
    assert not order_matters({"x": x})


def test_a_random_order_has_every_row_once_and_follows_from_the_seed():
    rows = {"a": np.arange(1000), "b": -np.arange(1000.0)}

    def taken(seed, first_island=0):
        chunks = list(in_random_order(rows, seed, first_island, lambda seen: max(seen, 100)))
        assert [len(chunk["a"]) for chunk in chunks] == [100, 100, 200, 400, 200]
        return np.concatenate([chunk["a"] for chunk in chunks]), np.concatenate(
            [chunk["b"] for chunk in chunks]
        )

    first, second = taken(0)
    assert sorted(first) == list(range(1000))
    np.testing.assert_array_equal(first, -second)
    np.testing.assert_array_equal(first, taken(0)[0])
    assert np.any(first != taken(1)[0])
    assert np.any(first != taken(0, first_island=8)[0])


@pytest.mark.long
def test_sorted_rows_are_weighed_in_random_order():
    data = sorted_rows()
    exact = wb.zoo.linear.log_evidence(data)
    result = wb.evidence(wb.zoo.linear.model(), data, SMALL, seed=0)
    assert result.diagnostics["row_order"] == "random"
    assert abs(result.log_evidence - exact) < 1e-4
    path = result.diagnostics["path_log_evidence"] - exact
    assert abs(path) < 4 * result.diagnostics["path_error"]
    again = wb.evidence(wb.zoo.linear.model(), data, SMALL, seed=0)
    assert again.diagnostics["path_log_evidence"] == result.diagnostics["path_log_evidence"]


def test_rows_stand_as_they_are_given_where_nothing_speaks_against_it():
    data = wb.zoo.linear.simulate(1000, seed=3)
    model = wb.zoo.linear.model()
    result = wb.evidence(model, data, wb.SGAIS(), seed=0)
    assert result.diagnostics["row_order"] == "as given"
    # The trace is that of the first rows.
    for rows, log_evidence, error in zip(
        result.trace.rows, result.trace.log_evidence, result.trace.std_error
    ):
        first = {name: column[: int(rows)] for name, column in data.items()}
        assert abs(log_evidence - wb.zoo.linear.log_evidence(first)) < 5 * error
    sorted_as_given = wb.SGAIS(num_islands=4, num_particles=16, shuffle=False)
    result = wb.evidence(model, sorted_rows(1000), sorted_as_given, seed=0)
    assert result.diagnostics["row_order"] == "as given"


def test_a_bad_row_is_named_by_where_it_was_given():
    data = sorted_rows(1000)
    data["y"][700] = np.nan
    shuffled = wb.SGAIS(num_islands=4, num_particles=16, shuffle=True)
    with pytest.raises(wb.DataError, match="700"):
        wb.evidence(wb.zoo.linear.model(), data, shuffled)


def test_an_error_of_the_model_says_that_rows_are_counted_in_random_order():
    model = wb.Model({"m": dist.Normal(0, 1)}, lambda p, row: jnp.log(row["y"]) + p["m"])
    rows = {"y": np.where(np.arange(100) == 70, -1.0, 1.0)}
    method = wb.SGAIS(num_islands=4, num_particles=16, shuffle=True)
    with pytest.raises(wb.ModelError) as caught:
        wb.evidence(model, rows, method)
    assert "random order" in caught.value.__notes__[0]
    with pytest.raises(wb.ModelError, match="row 70") as caught:
        wb.evidence(model, rows, replace(method, shuffle=False))
    assert not hasattr(caught.value, "__notes__")


def test_no_rows_are_no_rows_in_any_order():
    method = wb.SGAIS(num_islands=4, num_particles=16, shuffle=True)
    for nothing in ([], {"x": np.empty((0, 5)), "y": np.empty(0)}):
        with pytest.raises(wb.DataError):
            wb.evidence(wb.zoo.linear.model(), nothing, method)


@pytest.mark.long
def test_rounds_of_a_tolerance_have_orders_of_their_own():
    model = wb.zoo.mixture.model(2, 1)
    rows = np.sort(np.random.default_rng(0).normal(size=(300, 1)), axis=0)
    result = wb.evidence(model, rows, SMALL, seed=0, tolerance=0.2, time_limit=0.01)
    assert result.diagnostics["row_order"] == "random"
    assert result.diagnostics["path_repaired"] == 0.0


def test_rows_with_weights_are_shuffled_with_them_after_the_bad_ones_are_out():
    data = sorted_rows(600)
    data["weight"] = np.where(np.arange(600) % 3, 1.0, 2.0)
    data["y"][::50] = np.nan
    kept = {name: column[np.isfinite(data["y"])] for name, column in data.items()}
    times = kept.pop("weight").astype(int)
    twice = {name: np.repeat(column, times, axis=0) for name, column in kept.items()}
    shuffled = wb.SGAIS(num_islands=4, num_particles=16, shuffle=True)
    result = wb.evidence(wb.zoo.linear.model(), data, shuffled, on_bad_row="skip")
    assert result.diagnostics["rows_skipped"] == 12
    assert abs(result.log_evidence - wb.zoo.linear.log_evidence(twice)) < 1e-4


def test_models_that_are_compared_take_the_same_order():
    data = sorted_rows(600)
    table = wb.compare({"a": wb.zoo.linear.model(), "b": wb.zoo.linear.model()}, data, SMALL)
    paths = [r.diagnostics["path_log_evidence"] for r in table.results.values()]
    assert paths[0] == paths[1]
    assert all(r.diagnostics["row_order"] == "random" for r in table.results.values())


def test_only_rows_in_memory_are_shuffled(tmp_path):
    path = tmp_path / "rows.csv"
    np.savetxt(path, np.arange(10.0), header="y", comments="")
    with pytest.raises(wb.MethodError, match="in memory"):
        wb.evidence(wb.zoo.gaussian.model(), path, wb.SGAIS(shuffle=True))
    with pytest.raises(wb.MethodError, match="leave out shuffle"):
        wb.SGAIS(half_life=100, shuffle=True)
    with pytest.raises(wb.MethodError, match="shuffle must be"):
        wb.SGAIS(shuffle="yes")
