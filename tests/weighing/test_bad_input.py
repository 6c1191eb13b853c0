"""Bad input through the front door: an error that names the thing and the remedy."""

import dataclasses
import functools
import itertools
import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import weighbridge as wb
from weighbridge.zoo.registry import parse

SMALL = wb.SGAIS(num_islands=4, num_particles=16, chunk_size=50)
GAUSSIAN = wb.zoo.gaussian.model()
LINEAR = wb.zoo.linear.model(2)
ROWS = wb.zoo.linear.simulate(60, num_features=2, seed=3)


def rows(**changes):
    return {name: column.copy() for name, column in ROWS.items()} | changes


def at(index, value, column=None):
    column = (ROWS["y"] if column is None else column).copy()
    column[index] = value
    return column


def refuses(kind, *parts):
    """Expect an error of this kind, which says each part, and whose root is WeighbridgeError."""
    assert issubclass(kind, wb.WeighbridgeError)
    return pytest.raises(kind, match="(?is)" + ".*".join(parts))


ENTRIES = {
    "evidence": lambda model, data: wb.evidence(model, data, SMALL),
    "chunks": lambda model, data: wb.evidence(model, iter([data]), SMALL),
    "online": lambda model, data: wb.Online(model, SMALL).update(data),
}


@pytest.fixture(params=ENTRIES)
def weigh(request):
    """Each of the ways in; all must refuse alike."""
    return ENTRIES[request.param]


# --- rows ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"y": at(7, np.nan)}, ("row 7 ", "'y' is nan", "on_bad_row='skip'")),
        ({"y": at(59, np.inf)}, ("row 59 ", "'y' is inf", "on_bad_row='skip'")),
        ({"x": at((3, 1), -np.inf, ROWS["x"])}, ("row 3 ", r"'x\[1\]' is -inf", "skip")),
        ({"y": at(slice(4, 6), np.nan)}, ("row 4 ", "2 bad rows", "skip")),
    ],
    ids=["nan", "inf", "minus inf", "two"],
)
def test_rows_that_are_not_finite(weigh, changes, parts):
    with refuses(wb.DataError, *parts):
        weigh(LINEAR, rows(**changes))


def test_missing_entries_of_a_table():
    table = pd.DataFrame({"y": [1.0, None, 3.0]})
    model = wb.Model({"mu": dist.Normal(0, 1)}, lambda p, row: -((row["y"] - p["mu"]) ** 2))
    with refuses(wb.DataError, "row 1 ", "'y' is nan", "skip"):
        wb.evidence(model, table, SMALL)


def test_bad_rows_are_named_by_their_place_in_the_stream():
    chunks = iter([rows(), rows(y=at(11, np.nan))])
    with refuses(wb.DataError, "row 71 ", "'y' is nan"):
        wb.evidence(LINEAR, chunks, SMALL)


@pytest.mark.parametrize("label", [3, -1, 1.5, np.nan])
def test_labels_outside_the_classes(weigh, label):
    model = wb.zoo.logistic.model(2, 3)
    data = wb.zoo.logistic.simulate(10, num_features=2, num_classes=3)
    y = at(4, label, data["y"].astype(type(label)))
    with refuses(wb.DataError, "row 4 ", "'y'", "skip"):
        weigh(model, data | {"y": y})


def test_a_policy_for_bad_rows():
    y = at([3, 40], np.nan)
    result = wb.evidence(LINEAR, rows(y=y), SMALL, on_bad_row="skip")
    assert result.diagnostics["rows_skipped"] == 2
    assert result.num_observations == 58
    good = {name: column[np.isfinite(y)] for name, column in ROWS.items()}
    assert result.log_evidence == wb.evidence(LINEAR, good, SMALL).log_evidence
    with refuses(wb.WeighbridgeError, "on_bad_row", "'drop'", "'raise' or 'skip'"):
        wb.evidence(LINEAR, ROWS, SMALL, on_bad_row="drop")
    with refuses(wb.WeighbridgeError, "on_bad_row", "'raise' or 'skip'"):
        wb.Online(LINEAR, SMALL, on_bad_row="drop")
    with refuses(wb.DataError, "empty|no row", "skipped"):
        wb.evidence(LINEAR, rows(y=np.full(60, np.nan)), SMALL, on_bad_row="skip")


def test_negative_and_unusable_weights(weigh):
    with refuses(wb.DataError, "row 9 ", "'weight'", "negative"):
        weigh(LINEAR, rows(weight=at(9, -1.0, np.ones(60))))
    with refuses(wb.DataError, "row 9 ", "'weight' is nan"):
        weigh(LINEAR, rows(weight=at(9, np.nan, np.ones(60))))
    with refuses(wb.DataError, "'weight'", "one finite non-negative number per row"):
        weigh(LINEAR, rows(weight=np.ones((60, 2))))


# --- shapes and types ------------------------------------------------------------------


def test_the_wrong_number_of_features(weigh):
    with refuses(wb.ModelError, "log-likelihood fails", r"x: float64\[3\]", "number of columns"):
        weigh(LINEAR, rows(x=np.ones((60, 3))))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"x": np.ones((60, 3))}, ("'x' changed shape", "row 60 ", "number of features")),
        ({"x": np.ones(60)}, ("'x' changed shape", "row 60 ")),
        ({"y": np.ones(60, bool)}, ("'y' changed type", "row 60 ", "float64", "bool", "convert")),
        ({"y": np.array(["a"] * 60)}, ("'y'", "text", "row 60 ", "convert")),
        ({"y": np.ones(60, complex)}, ("'y'", "complex", "real and the imaginary")),
    ],
    ids=["features", "axis", "bool", "text", "complex"],
)
def test_a_later_chunk_that_differs(changes, parts):
    with refuses(wb.DataError, *parts):
        wb.evidence(LINEAR, iter([rows(), rows(**changes)]), SMALL)


def test_whole_numbers_that_become_real():
    model = wb.Model({"mu": dist.Normal(0, 1)}, lambda p, row: -((row["k"] - p["mu"]) ** 2))
    chunks = [{"k": np.arange(5)}, {"k": np.array([0.5, 1.0])}]
    with refuses(wb.DataError, "'k' changed type", "row 5 ", "int64", "float64"):
        wb.evidence(model, iter(chunks), SMALL)


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(0),
        [],
        {"x": np.zeros((0, 2)), "y": np.zeros(0)},
        iter([]),
        iter([np.zeros(0)]),
    ],
    ids=["array", "list", "dict", "no chunks", "an empty chunk"],
)
def test_empty_data(data):
    with refuses(wb.DataError, "empty|no row"):
        wb.evidence(GAUSSIAN, data, SMALL)


def test_an_empty_update_and_no_columns_and_no_data():
    with refuses(wb.DataError, "no rows", "skip it"):
        wb.Online(GAUSSIAN, SMALL).update(np.zeros(0))
    with refuses(wb.DataError, "no columns", "dict of arrays"):
        wb.evidence(LINEAR, {}, SMALL)
    with refuses(wb.DataError, "give it data"):
        wb.evidence(LINEAR, None, SMALL)


def test_columns_of_different_lengths(weigh):
    with refuses(wb.DataError, "'x' and 'y'", "60 and 59", "same number of rows"):
        weigh(LINEAR, rows(y=ROWS["y"][:59]))


def test_a_single_row_works(weigh):
    data = {name: column[:1] for name, column in ROWS.items()}
    result = weigh(LINEAR, data)
    assert result.num_observations == 1
    assert abs(result.log_evidence - wb.zoo.linear.log_evidence(data)) < 5 * result.std_error


# --- models ------------------------------------------------------------------------------


def model_with(log_likelihood, prior=None):
    return wb.Model({"mu": dist.Normal(0.0, 1.0) if prior is None else prior}, log_likelihood)


DRAWS = itertools.count()

BAD_LIKELIHOODS = {
    "vector": (lambda p, y: jnp.stack([y, p["mu"]]), ("scalar", r"\(2,\)", "sum it")),
    "pair": (lambda p, y: (y, p["mu"]), ("scalar",)),
    "integer": (lambda p, y: jnp.asarray(3), ("real number", "int")),
    "nothing": (lambda p, y: None, ("log-likelihood",)),
    "nan": (lambda p, y: y + jnp.log(-1.0 - p["mu"] ** 2), ("NaN", "row 0 ", "64 of 64", "-inf")),
    "nan at a row": (
        lambda p, y: jnp.where(y == 2.0, jnp.nan, -((y - p["mu"]) ** 2)),
        ("NaN", "row 2 ", "64 of 64"),
    ),
    "minus inf": (lambda p, y: jnp.where(p["mu"] > 1e3, y, -jnp.inf), ("-inf", "prior draw")),
    "random": (
        lambda p, y: -((y - p["mu"]) ** 2) + np.random.default_rng(next(DRAWS)).normal(),
        ("random from call to call", "prior"),
    ),
    "fails": (lambda p, y: y["missing"] + p["mu"], ("log-likelihood fails", "columns")),
    "numpy": (lambda p, y: float(y) + p["mu"], ("log-likelihood fails", "jax.numpy")),
    "misspelt": (lambda p, y: y - p["nu"], ("log-likelihood fails", "nu")),
}


@pytest.mark.parametrize("name", BAD_LIKELIHOODS)
def test_likelihoods_that_cannot_be_used(weigh, name):
    function, parts = BAD_LIKELIHOODS[name]
    with refuses(wb.ModelError, *parts):
        weigh(model_with(function), np.arange(4.0))


def test_a_likelihood_that_is_undefined_for_some_draws_only(weigh):
    """Half of the prior gives NaN: the evidence of the other half would be a wrong number."""
    model = model_with(lambda p, y: jnp.log(p["mu"]) - y)
    with refuses(wb.ModelError, "NaN", "row 0 ", "of 64 parameter draws", "-inf"):
        weigh(model, np.arange(4.0))


def test_a_likelihood_without_rows(weigh):
    model = wb.Model({"mu": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -(p["mu"] ** 2))
    with refuses(wb.ModelError, "row by row", r"log_likelihood=f\(parameters, row\)"):
        weigh(model, np.arange(4.0))


@pytest.mark.parametrize(
    ("prior", "parts"),
    [
        (dist.Poisson(3.0), ("'mu'", "discrete", "Poisson", "sum")),
        (dist.Bernoulli(0.5), ("'mu'", "discrete")),
        (dist.ImproperUniform(dist.constraints.real, (), ()), ("'mu'", "improper", "proper prior")),
        (dist.Normal(0.0, np.inf), ("'mu'", "scale=inf", "improper", "finite")),
        (dist.Uniform(0.0, np.inf), ("'mu'", "high=inf", "improper")),
        (dist.Delta(1.0), ("'mu'", "point")),
        (dist.Normal(0.0, -1.0, validate_args=False), ("'mu'", "not valid", "scale")),
        (1.0, ("'mu'", "distribution", "1.0")),
    ],
    ids=[
        "poisson",
        "bernoulli",
        "improper",
        "inf scale",
        "half line",
        "point",
        "negative",
        "number",
    ],
)
def test_priors_that_leave_the_evidence_undefined(prior, parts):
    with refuses(wb.ModelError, *parts):
        model_with(lambda p, y: -((y - p["mu"]) ** 2), prior)


def test_something_else_than_a_model():
    for thing in (lambda p, y: 0.0, None, {"mu": dist.Normal(0, 1)}):
        with refuses(wb.WeighbridgeError, "model must be a wb.Model", "from_numpyro"):
            wb.evidence(thing, np.arange(4.0), SMALL)
        with refuses(wb.WeighbridgeError, "model must be a wb.Model"):
            wb.Online(thing, SMALL)


# --- names -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nearest"), [("sgias", "'sgais'"), ("publishd", "'published'"), ("SGAIS", "sgais")]
)
def test_unknown_methods(name, nearest):
    with refuses(wb.MethodError, "no method", name, nearest):
        wb.evidence(GAUSSIAN, np.arange(4.0), name)
    with refuses(wb.MethodError, "no method", name, nearest):
        wb.Online(GAUSSIAN, name)
    with refuses(wb.MethodError, "method must be", "SGAIS"):
        wb.evidence(GAUSSIAN, np.arange(4.0), 3)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("linaer", "'linear'"), ("mixtur:3", "'mixture'"), ("logistic", "'softmax'")],
)
def test_unknown_zoo_names(name, nearest):
    with refuses(wb.ModelError, "no model", nearest):
        parse(name)
    with refuses(wb.ModelError, "mixture", "components", "'none'"):
        parse("mixture:none")


# --- files -------------------------------------------------------------------------------


@functools.cache
def column_model(name):
    return wb.Model({"mu": dist.Normal(0, 1)}, lambda p, row: -0.5 * (row[name] - p["mu"]) ** 2)


def test_missing_files(tmp_path):
    (tmp_path / "heights.csv").write_text("h\n1.0\n")
    with refuses(wb.DataError, "no file 'hieghts.csv'", "heights.csv"):
        wb.evidence(column_model("h"), str(tmp_path / "hieghts.csv"), SMALL)
    with refuses(wb.DataError, "not a folder"):
        wb.evidence(column_model("h"), tmp_path / "nowhere" / "heights.csv", SMALL)
    (tmp_path / "heights.txt").write_text("h\n1.0\n")
    with refuses(wb.DataError, "heights.txt", r"\.csv"):
        wb.evidence(column_model("h"), tmp_path / "heights.txt", SMALL)


def test_missing_columns(tmp_path):
    (tmp_path / "heights.csv").write_text("h\n1.0\n2.0\n")
    with refuses(wb.ModelError, "width", "columns"):
        wb.evidence(column_model("width"), tmp_path / "heights.csv", SMALL)


@pytest.mark.parametrize("row", [3, 70])
def test_a_csv_column_that_turns_into_text(tmp_path, row):
    lines = ["h,k", *(f"{i / 7},{i}" for i in range(100))]
    lines[row + 1] = f"tall,{row}"
    (tmp_path / "heights.csv").write_text("\n".join(lines))
    with refuses(wb.DataError, "heights.csv", "'h'", "'tall'", f"row {row} ", "correct that value"):
        wb.evidence(column_model("h"), tmp_path / "heights.csv", SMALL)


def test_a_csv_column_that_turns_into_text_in_a_later_block(tmp_path, monkeypatch):
    monkeypatch.setattr("weighbridge.data.sources.csv_records.BLOCK_BYTES", 256)
    lines = ["h", *(f"{i / 8}" for i in range(200)), "tall", "1.0"]
    (tmp_path / "heights.csv").write_text("\n".join(lines))
    with refuses(wb.DataError, "heights.csv", "'h'", "'tall'", "row 200 ", "correct that value"):
        wb.evidence(column_model("h"), tmp_path / "heights.csv", SMALL)


def test_a_good_csv_is_read_whole(tmp_path):
    values = wb.zoo.gaussian.simulate(120, seed=1)
    np.savetxt(tmp_path / "y.csv", values, header="h", comments="", fmt="%.17g")
    from_file = wb.evidence(column_model("h"), tmp_path / "y.csv", SMALL)
    from_array = wb.evidence(column_model("h"), {"h": values}, SMALL)
    assert from_file.num_observations == 120
    assert from_file.log_evidence == from_array.log_evidence
    assert math.isfinite(from_file.std_error)


# --- sizes -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, 2.5, "5", None, True])
@pytest.mark.parametrize(
    "name", ["num_islands", "num_particles", "chunk_size", "batch_size", "num_moves", "reservoir"]
)
def test_sizes_are_whole_and_positive(name, value):
    with refuses(wb.MethodError, name, "whole number of at least 1"):
        wb.PublishedSGAIS(**{name: value})
    if name == "num_moves" or (name in ("chunk_size", "batch_size") and value is None):
        return
    with refuses(wb.MethodError, name, "whole number of at least 1"):
        wb.SGAIS(**{name: value})


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"num_particles": 1}, ("num_particles", "at least 2")),
        ({"target_ess": 0.0}, ("target_ess", "between 0 and 1", "fraction")),
        ({"target_ess": 5}, ("target_ess", "between 0 and 1", "fraction")),
        ({"target_ess": math.nan}, ("target_ess", "between 0 and 1")),
        ({"resample_below": -0.1}, ("resample_below", r"\[0, 1\]")),
        ({"resample_below": 2}, ("resample_below", r"\[0, 1\]")),
        ({"kernel": "hmc"}, ("kernel", r"wb\.SGHMC", "'hmc'")),
        ({"noise": 0.0}, ("noise", "positive")),
        ({"noise": math.nan}, ("noise", "positive")),
        ({"noise": "small"}, ("noise", "number")),
    ],
    ids=str,
)
def test_other_settings(arguments, parts):
    for method in (wb.SGAIS, wb.PublishedSGAIS):
        if set(arguments) <= {field.name for field in dataclasses.fields(method)}:
            with refuses(wb.MethodError, *parts):
                method(**arguments)


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None, True, 2**63, 2**80])
def test_seeds(seed):
    with refuses(wb.MethodError, "seed must be a whole number"):
        wb.evidence(GAUSSIAN, np.arange(4.0), SMALL, seed=seed)
    with refuses(wb.MethodError, "seed must be a whole number"):
        wb.Online(GAUSSIAN, SMALL, seed=seed)


@pytest.mark.parametrize("value", [0, -1.0, math.nan])
@pytest.mark.parametrize("name", ["tolerance", "time_limit"])
def test_limits_are_positive(name, value):
    with refuses(wb.MethodError, name, "positive"):
        wb.evidence(GAUSSIAN, np.arange(4.0), SMALL, **{name: value})
