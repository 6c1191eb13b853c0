"""Data frames as users have them: pandas, polars, Arrow; text, dates, gaps; several models."""

import contextlib
import datetime
import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import weighbridge as wb
from weighbridge.data.feeds.opening import open_feed
from weighbridge.data.sources.opening import open_source
from weighbridge.data.values import TableReader, as_values, take_columns
from weighbridge.models.column_scales import scale_remark
from weighbridge.models.columns_read import refuse_if_read
from weighbridge.models.held import hold

DAY = datetime.date(2020, 1, 1)
CITIES = ["Oslo", "Bonn", None]
QUICK = wb.PriorSampling(num_particles=64, num_islands=4)


def reads(*names):
    """A model of rows that reads these columns."""
    return wb.Model(
        {"mu": dist.Normal(0, 1)},
        lambda p, row: sum(dist.Normal(p["mu"], 1.0).log_prob(row[name]) for name in names),
    )


MODEL = reads("y")


def frame(kind, **columns):
    return {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table, "dict": dict}[kind](
        columns
    )


# --- what a column may be ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.array([1, None, 3], "Int64"), [1, np.nan, 3]),
        (pd.array([1, 2, 3], "Int64"), np.array([1, 2, 3])),
        (pd.array([1.5, None], "Float64"), [1.5, np.nan]),
        (pd.array([True, None], "boolean"), [1, np.nan]),
        (pd.array([True, False], "boolean"), np.array([True, False])),
        (pd.Categorical([3, 5, 3]), np.array([3, 5, 3])),
        (pd.Categorical([1.5, None]), [1.5, np.nan]),
        (pd.Categorical(pd.array([1, None], "Int64")), [1, np.nan]),
        (pd.arrays.SparseArray([0.0, 1.0]), [0.0, 1.0]),
        (pd.arrays.SparseArray([0, 1]), np.array([0, 1])),
        (pd.Series([1, None, 2.5], dtype=object), [1, np.nan, 2.5]),
        (pd.array([1, None], "int64[pyarrow]"), [1, np.nan]),
        (pd.array([True, False], "bool[pyarrow]"), np.array([True, False])),
        (pd.array(["1.5", None], pd.ArrowDtype(pa.decimal128(5, 2))), [1.5, np.nan]),
    ],
)
def test_pandas_types_become_numbers(column, expected):
    table = pd.DataFrame({"v": column})
    table.index = range(100, 100 + len(table))[::-1]  # rows are counted, not looked up
    array = as_values(table)["v"]
    np.testing.assert_array_equal(array, expected)
    assert array.dtype == np.asarray(expected).dtype or np.isnan(expected).any()


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pl.Series([1, None, 3]), [1, np.nan, 3]),
        (pl.Series([1, 2], dtype=pl.UInt8), np.array([1, 2])),
        (pl.Series([1, 2], dtype=pl.Int128), np.array([1, 2])),
        (pl.Series([1.5, None, float("nan")]), [1.5, np.nan, np.nan]),
        (pl.Series([True, False]), np.array([True, False])),
        (pl.Series([True, None]), [1.0, np.nan]),
        (pl.Series(["1.5", "2"]).cast(pl.Decimal(10, 2)), [1.5, 2.0]),
        (pl.Series([None, None]), [np.nan, np.nan]),
        (pl.Series([[1.0, 2.0], None], dtype=pl.Array(pl.Float64, 2)), [[1, 2], [np.nan] * 2]),
    ],
)
def test_polars_types_become_numbers(column, expected):
    for array in (as_values(pl.DataFrame({"v": column}))["v"], as_values(column)):
        np.testing.assert_array_equal(array, expected)
        assert array.dtype in (np.float64, np.int64, np.bool_)


@pytest.mark.parametrize(
    ("column", "what"),
    [
        (CITIES, "text"),
        ([DAY] * 3, "date or time"),
        (pd.to_datetime(["2020-01-01"] * 3, utc=True), "date or time"),
        (pd.to_timedelta([1, 2, 3]), "date or time"),
        (pd.Series(["a", "b", "a"], dtype="category"), "categorical"),
        (pd.array(["a", "b", "c"], "string[pyarrow]"), "text"),
        (pl.Series(CITIES), "text"),
        (pl.Series([DAY] * 3), "date or time"),
        (pl.Series([datetime.timedelta(1)] * 3), "date or time"),
        (pl.Series(["a", "b", "a"], dtype=pl.Categorical), "to_physical"),
        (pl.Series(["a", "b", "a"], dtype=pl.Enum(["a", "b"])), "categorical"),
        (pl.Series([[1], [2, 3], []]), "not numbers"),
        (np.array(["2020-01-01"] * 3, "M8[D]"), "date or time"),
        (np.array([1j, 2j, 3j]), "complex"),
    ],
)
def test_columns_that_are_not_numbers_are_left_out_or_refused(column, what):
    build = pl.DataFrame if isinstance(column, pl.Series) else dict
    table = build({"y": [1.0, 2.0, 3.0], "other": column})
    values, left_out = take_columns(table)
    assert list(values) == ["y"]
    assert what in str(left_out["other"])
    assert "'other'" in str(left_out["other"])
    with pytest.raises(wb.DataError, match="'other'"):
        as_values(table)


def test_a_lazy_frame_and_repeated_names_are_refused():
    lazy = pl.LazyFrame({"y": [1.0]})
    for take in (as_values, open_source, open_feed, lambda d: wb.evidence(MODEL, d)):
        with pytest.raises(wb.DataError, match=r"LazyFrame.*collect\(\).*sink_parquet"):
            take(lazy)
    with pytest.raises(wb.DataError, match="'a' occurs more than once"):
        open_source(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(wb.DataError, match="'city' holds text"):  # and nothing else
        as_values({"city": ["Oslo"]})


def test_pieces_of_a_table_keep_their_columns():
    reader = TableReader()
    assert list(reader({"y": [1.0], "code": ["a"]})) == ["y"]
    assert list(reader({"y": [1.0], "code": [7]})) == ["y"]
    with pytest.raises(wb.DataError, match="'y' holds text"):
        reader({"y": ["oops"], "code": [7]})
    with contextlib.suppress(ZeroDivisionError), reader.undoable():
        reader({"y": [1.0], "more": ["a"]})
        raise ZeroDivisionError
    assert list(reader.left_out) == ["code"]


# --- what a model reads --------------------------------------------------------------------------


def whole_row(p, row):
    return p["mu"] * sum(jax.tree_util.tree_leaves(row))


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda p, row: p["mu"] * row["city"],
        lambda p, row: p["mu"] * (row["y"] if "city" in row else 1.0),
        lambda p, row: p["mu"] * row.get("city", row["y"]),
        lambda p, row: p["mu"] * jnp.stack(list(row.values())).sum(),
        lambda p, row: p["mu"] * len(row),
        lambda p, row: p["mu"] * sum(dict(row).values()),
        lambda p, row: (lambda y, **rest: p["mu"] * y)(**row),
        whole_row,
        jax.jit(whole_row),
        jax.jit(lambda p, row: p["mu"] * row["city"]),
    ],
)
def test_a_column_that_is_read_is_refused(likelihood):
    model = wb.Model({"mu": dist.Normal(0, 1)}, likelihood)
    with pytest.raises(wb.DataError, match=r"'city' holds text values.*'Oslo' at row 0"):
        hold(model, {"y": [1.0, 2.0, 3.0], "city": CITIES}, "a test")


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda p, row: p["mu"] * row["y"],
        jax.jit(lambda p, row: p["mu"] * row["y"]),
        lambda p, row: jax.vmap(lambda c, r: c * r["y"], (0, None))(p["mu"][None], row).sum(),
        lambda p, row: jax.tree_util.tree_map(lambda leaf: leaf * p["mu"], row)["y"],
    ],
)
@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dict"])
def test_a_column_that_nobody_reads_is_left_out(likelihood, kind):
    model = wb.Model({"mu": dist.Normal(0, 1)}, likelihood)
    values, _ = hold(model, frame(kind, y=[1.0, 2.0, 3.0], city=CITIES), "a test")
    np.testing.assert_array_equal(values["y"], [1, 2, 3])
    assert list(values) == ["y"]


def test_a_weight_that_is_no_number_is_never_left_out():
    with pytest.raises(wb.DataError, match="'weight' holds text"):
        hold(MODEL, {"y": [1.0, 2.0], "weight": ["two", "three"]}, "a test")


def test_a_total_log_likelihood_too():
    data = {"y": [1.0, 2.0, 3.0], "city": CITIES}

    def in_numpy(p, d):
        return -0.5 * float(np.sum((np.asarray(d["y"]) - float(p["mu"])) ** 2))

    for function in (in_numpy, lambda p, d: -0.5 * jnp.sum((d["y"] - p["mu"]) ** 2)):
        model = wb.Model({"mu": dist.Normal(0, 1)}, total_log_likelihood=function)
        assert list(hold(model, data, "a test")[0]) == ["y"]
    for function in (lambda p, d: len(d["city"]) * p["mu"], lambda p, d: p["mu"] * len(d)):
        model = wb.Model({"mu": dist.Normal(0, 1)}, total_log_likelihood=function)
        with pytest.raises(wb.DataError, match="'city' holds text"):
            hold(model, data, "a test")


def test_check_rows_reads_columns_too():
    model = wb.Model(
        {"mu": dist.Normal(0, 1)}, MODEL.log_likelihood, check_rows=lambda v: {"x": v["city"] == 0}
    )
    with pytest.raises(wb.DataError, match="It is text"):
        refuse_if_read(model, {"y": np.zeros(2)}, {"city": wb.DataError("It is text.")})


# --- everywhere data are taken -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dict"])
def test_results_tell_what_was_left_out(kind):
    data = frame(kind, y=[0.1, 0.4, -0.2], city=CITIES)
    expected = wb.evidence(MODEL, {"y": [0.1, 0.4, -0.2]}, QUICK).log_evidence
    for given in (data, iter([data])):
        result = wb.evidence(MODEL, given, QUICK)
        assert result.log_evidence == expected
        assert result.diagnostics["columns_left_out"] == ["city"]
        assert "left out columns that are not numbers: city" in str(result)
        assert json.loads(result.to_json())["columns_left_out"] == ["city"]
    comparison = wb.compare({"a": MODEL, "b": reads("y")}, data, QUICK)
    assert comparison.columns_left_out == ["city"]
    assert "that are not numbers: city" in str(comparison)
    assert json.loads(comparison.to_json())["columns_left_out"] == ["city"]


def test_files_tell_it_too(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("y,city\n0.1,Oslo\n0.4,Bonn\n")
    assert wb.evidence(MODEL, path, QUICK).columns_left_out == ["city"]
    with pytest.raises(wb.DataError, match="'city' was left out, because it does not hold"):
        wb.evidence(reads("city"), path, QUICK)
    for parts in (
        open_source(path, columns=["y"]),
        open_source({"y": [1.0], "c": ["a"]}, columns="y"),
    ):
        assert parts.ignored_columns == []
    with pytest.raises(wb.DataError, match="'c' holds text"):
        open_source({"y": [1.0], "c": ["a"]}, columns=["c"])


def test_feeds_and_lags_of_polars_frames():
    table = pl.DataFrame({"y": [1.0, 2.0, None], "city": CITIES})
    for given in (table, [table], table.iter_slices(2)):
        parcels = [parcel for parcel in open_feed(given).read() if parcel is not None]
        values = np.concatenate([parcel.values["y"] for parcel in parcels])
        np.testing.assert_array_equal(values, [1, 2, np.nan])
    with pytest.warns(UserWarning, match="that are not numbers: city"):
        rows = wb.lagged(table, order=1)
    np.testing.assert_array_equal(rows["past"]["y"], [[1.0], [2.0]])
    lags = wb.Lagged(1)
    with pytest.warns(UserWarning, match="city"):
        lags(table[:2])
    np.testing.assert_array_equal(lags(table[2:])["past"]["y"], [[2.0]])


def test_online_takes_frames_and_is_as_before_after_an_error():
    small = wb.SGAIS(num_islands=4, num_particles=16)
    online = wb.Online(MODEL, small)
    with pytest.raises(wb.DataError, match="'y' holds text"):
        online.update({"y": ["one", "two"], "z": [1.0, 2.0]})
    online.update(pl.DataFrame({"y": [0.1, 0.2], "z": [1, 2], "city": ["Oslo", "Bonn"]}))
    with pytest.raises(wb.DataError, match="'y' holds text"):
        online.update(pl.DataFrame({"y": ["one"], "z": [1], "city": ["Oslo"]}))
    online.update(pd.DataFrame({"y": [0.3, 0.4], "z": [1, 1], "city": [7, 8]}))
    assert online.result().num_observations == 4
    assert online.result().columns_left_out == ["city"]
    both = wb.OnlineComparison({"a": MODEL, "b": reads("y")}, small)
    both.update(pl.DataFrame({"y": [0.1, 0.2], "city": ["Oslo", "Bonn"]}))
    assert both.result().columns_left_out == ["city"]
    with pytest.raises(wb.DataError, match="'city' holds text"):
        both.add("c", reads("city"))


def test_sampling_and_predicting_on_frames():
    data = pl.DataFrame({"y": [0.1, 0.2, 0.4], "city": CITIES})
    posterior = wb.sample(MODEL, data, num_samples=20, num_warmup=20, num_chains=4)
    assert posterior.columns_left_out == ("city",)
    assert "that are not numbers: city" in str(posterior)
    line = posterior.predict(lambda p, row: p["mu"] + row["y"], data, num_draws=10)
    assert line.draws.shape == (10, 3)
    with pytest.raises(wb.DataError, match="'city' holds text"):
        posterior.predict(lambda p, row: p["mu"] * row["city"], data, num_draws=10)


# --- bad rows in a comparison --------------------------------------------------------------------


def test_compare_leaves_a_row_that_is_bad_for_one_out_for_all(tmp_path):
    positive = wb.Model(
        {"mu": dist.Normal(0, 1)},
        lambda p, row: dist.Normal(p["mu"], 1.0).log_prob(row["y"]),
        check_rows=lambda values: {"y is negative": values["y"] < 0},
    )
    data = {"y": [0.1, np.nan, -1.0, 0.4]}
    models = {"any": MODEL, "positive": positive}
    clean = wb.compare(models, {"y": [0.1, 0.4]}, QUICK)
    result = wb.compare(models, data, QUICK, on_bad_row="skip")
    assert (result.num_observations, result.rows_skipped) == (2, 2)
    assert {r.rows_skipped for r in result.results.values()} == {2}
    assert result.log_evidences == clean.log_evidences
    path = tmp_path / "bad.jsonl"
    result = wb.compare(models, data, QUICK, on_bad_row="quarantine", quarantine=path)
    assert (result.rows_quarantined, result.rows_skipped) == (2, 0)
    assert ", 2 quarantined" in str(result)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["row"], line["reason"]) for line in lines] == [
        (1, "column 'y' is nan"),
        (2, "y is negative"),
    ]
    with pytest.raises(wb.DataError, match="row 1 "):
        wb.compare(models, data, QUICK)


def test_a_method_that_takes_rows_as_they_come_leaves_them_out_for_all():
    positive = wb.Model(
        {"mu": dist.Normal(0, 1)},
        MODEL.log_likelihood,
        check_rows=lambda values: {"y is negative": values["y"] < 0},
    )
    data, small = {"y": [0.1, np.nan, -1.0, 0.4]}, wb.SGAIS(num_islands=4, num_particles=16)
    result = wb.compare({"any": MODEL, "positive": positive}, data, small, on_bad_row="skip")
    assert (result.num_observations, result.rows_skipped) == (2, 2)


def test_compare_of_results_has_no_rows_to_refuse(tmp_path):
    results = {name: wb.evidence(MODEL, {"y": [0.1]}, QUICK) for name in "ab"}
    for wrong in ({"on_bad_row": "skip"}, {"quarantine": tmp_path / "bad.jsonl"}):
        with pytest.raises(
            wb.MethodError, match="on_bad_row, quarantine and cross_check are for models"
        ):
            wb.compare(results, **wrong)
    with pytest.raises(wb.DataError, match="on_bad_row='quarantine'"):
        wb.compare({"a": MODEL, "b": MODEL}, {"y": [0.1]}, QUICK, quarantine=tmp_path / "bad.jsonl")


# --- scales that differ --------------------------------------------------------------------------


def test_scales_that_differ_are_told(capsys):
    rng = np.random.default_rng(0)
    rows = {"a": rng.normal(size=50), "b": 1e5 * rng.normal(size=50)}
    assert "a factor of 1e+05 (a 0.9" in scale_remark(reads("a", "b"), rows)
    assert scale_remark(reads("a", "b"), {**rows, "b": rows["b"] / 1e3}) == ""
    assert scale_remark(reads("a"), rows) == ""  # what nobody reads has no say
    constant = {**rows, "b": np.full(50, 1e9)}
    assert scale_remark(reads("a", "b"), constant) == ""
    whole = {**rows, "b": np.round(rows["b"]).astype(np.int64)}
    assert "standardise them" in scale_remark(reads("a", "b"), whole)
    assert "[1]" in scale_remark(wb.zoo.mixture.model(2, 2), np.c_[rows["a"], rows["b"]])
    result = wb.evidence(reads("a", "b"), rows, QUICK, progress=True)
    assert "weighbridge: the scales of columns differ" in capsys.readouterr().err
    assert "standardise them" in str(result)
    quiet = wb.evidence(reads("a"), rows, QUICK, progress=False)
    assert quiet.remarks == []
    assert capsys.readouterr().err == ""


def test_what_was_left_out_is_remembered_in_files(tmp_path):
    """After ``load`` a run, and a posterior, had forgotten it."""
    small = wb.SGAIS(num_islands=4, num_particles=16)
    online = wb.Online(MODEL, small)
    online.update({"y": [0.1, 0.4, -0.2], "city": CITIES})
    online.save(tmp_path / "run")
    again = wb.Online.load(tmp_path / "run", MODEL, small)
    assert again.result().columns_left_out == ["city"]
    again.update({"y": [0.3], "city": [7.0]})  # what was left out once stays out
    assert again.result().columns_left_out == ["city"]
    draws = np.zeros((1, 4))
    posterior = wb.Posterior({"mu": draws}, draws[..., None], {}, columns_left_out=("city",))
    posterior.save(tmp_path / "posterior")
    assert wb.Posterior.load(tmp_path / "posterior").columns_left_out == ("city",)
