"""Observations in memory: normalising, checking and cutting rows."""

import json
import re

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from weighbridge.core.errors import DataError
from weighbridge.data.cutting import pad, rechunk, split
from weighbridge.data.row_checking import RowChecker
from weighbridge.data.values import as_values, column_names, num_rows


def refuses(*parts):
    """Expect a DataError whose message contains every part, in order."""
    return pytest.raises(DataError, match="(?s)" + ".*".join(re.escape(part) for part in parts))


# as_values


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([1.0, 2.0], "float64"),
        ([1, 2], "int64"),
        ([True, False], "bool"),
        ([1.0, None], "float64"),
        ([1, None], "float64"),
        ([[1, 2], [3, 4]], "int64"),
        ([(1, 2), (3, 4)], "int64"),
        (np.float32([1, 2]), "float64"),
        (np.uint8([1, 2]), "int64"),
        (np.array([1, 2], ">f8"), "float64"),
        (np.array([1, 2], object), "int64"),
        (np.array([True, False], object), "bool"),
        (jnp.ones(2, jnp.bfloat16), "float64"),
        (jnp.arange(2), "int64"),
        (pd.Series([1, None], dtype="Int64"), "float64"),
        (pd.Series([1, 2], dtype="Int64"), "int64"),
        (pd.Series([1, 2], dtype="UInt8"), "int64"),
        (pd.Series([True, None], dtype="boolean"), "float64"),
        (pd.Series([True, False], dtype="boolean"), "bool"),
        (pd.Series([1.5, None], dtype="double[pyarrow]"), "float64"),
        (pa.array([1, None]), "float64"),
        (pa.array([True, None]), "float64"),
        (pa.array([True, False]), "bool"),
        (pa.array([None, None]), "float64"),
        (pa.chunked_array([[1], [2]]), "int64"),
        (np.ma.masked_array([1, 2], [False, True]), "float64"),
        (np.ma.masked_array([1, 2]), "int64"),
    ],
)
def test_as_values_gives_one_of_three_types(given, dtype):
    values = as_values(given)
    assert type(values) is np.ndarray
    assert values.dtype == dtype
    assert len(values) == 2
    inside = as_values({"y": given, "x": np.zeros((2, 3))})
    assert inside["y"].dtype == dtype


def test_missing_entries_become_nan():
    for given in (
        [1.0, None],
        pd.Series([1, None], dtype="Int64"),
        pa.array([1, None]),
        np.ma.masked_array([1, 2], [False, True]),
    ):
        np.testing.assert_array_equal(as_values(given), [1.0, np.nan])


def test_as_values_does_not_copy():
    x = np.zeros((4, 2))
    assert as_values({"x": x})["x"].base is x


def test_tables_become_dicts():
    frame = pd.DataFrame({"b": [1, 2], "a": [0.5, np.nan]})
    for table in (frame, pa.Table.from_pandas(frame), pa.RecordBatch.from_pandas(frame)):
        values = as_values(table)
        assert type(values) is dict
        assert sorted(values) == ["a", "b"]
        np.testing.assert_array_equal(values["a"], [0.5, np.nan])
        np.testing.assert_array_equal(values["b"], [1, 2])
        assert values["b"].dtype == np.int64


def test_pytrees_keep_their_structure():
    values = as_values(({"a": [1, 2]}, [np.zeros((2, 3)), jnp.ones(2)]))
    assert type(values) is tuple
    assert type(values[1]) is list
    assert column_names(values) == ["data[0]['a']", "data[1][0]", "data[1][1]"]
    assert column_names(as_values([1.0])) == ["data"]
    assert column_names(as_values({"x": {"u": [1.0]}, "y": [1.0]})) == ["x.u", "y"]
    assert num_rows(values) == 2


def test_no_rows_are_allowed():
    assert num_rows(as_values([])) == 0
    assert num_rows(as_values({"x": np.zeros((0, 3))})) == 0
    assert num_rows(as_values(pd.DataFrame({"x": pd.Series([], dtype="Int64")}))) == 0


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"name": ["1", "bob"]}, ["'name'", "text", "'bob'", "row 1 (counting from 0)", "numbers"]),
        ({"name": np.array(["1", "2"])}, ["'name'", "text", "'1'", "row 0"]),
        (pd.DataFrame({"c": [1, "x"]}, dtype=object), ["'c'", "'x'", "row 1"]),
        (pd.DataFrame({"c": ["u", "v"]}), ["'c'", "text", "'u'", "row 0"]),
        (pa.table({"c": ["3", "v"]}), ["'c'", "text", "'v'", "row 1"]),
        (pa.table({"c": [[1, 2], [3]]}), ["'c'", "not numbers", "[1, 2]", "row 0"]),
        ({"x": np.array([[1, 2], [3, {}]], object)}, ["'x'", "{}", "row 1"]),
        ({"x": np.zeros(2, [("a", float)])}, ["'x'", "not numbers"]),
        ({"z": [1j, 2.0]}, ["'z'", "complex", "two columns"]),
        ({"x": [1.0], "s": 3.0}, ["'s'", "single value", "3.0"]),
        ({"x": [1.0], "s": None}, ["'s'", "single value", "None"]),
        ((1.0, 2.0), ["'data[0]'", "single value"]),
        ({"x": [1.0, 2.0], "y": [1.0]}, ["'x'", "'y'", "2", "1", "same number"]),
        ({}, ["no columns"]),
        (pd.DataFrame(), ["no columns"]),
        ({"x": [[1, 2], [3]]}, ["'x'", "equal shape"]),
        ({"u": np.array([2**64 - 1])}, ["'u'", "64-bit"]),
        ({"u": [10**30, 1]}, ["'u'", "too large"]),
        ({1: [1.0], "a": [1.0]}, ["Column names"]),
        (pd.DataFrame({"c": pd.Categorical(["a", "b"])}), ["'c'", "categorical", "codes"]),
        (pa.table({"c": pa.array(["a"]).dictionary_encode()}), ["'c'", "categorical", "codes"]),
        (pd.DataFrame({"t": pd.to_datetime(["2020-01-01"])}), ["'t'", "date or time", "seconds"]),
        (
            pd.DataFrame({"t": pd.to_datetime(["2020-01-01"], utc=True)}),
            ["'t'", "date or time"],
        ),
        ({"t": np.array(["2020-01-01"], "M8[D]")}, ["'t'", "date or time"]),
        (pa.table({"t": pa.array([1], pa.timestamp("s"))}), ["'t'", "date or time"]),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ["'a'", "more than once"]),
        (pa.table([[1], [2]], names=["a", "a"]), ["'a'", "more than once"]),
    ],
)
def test_as_values_refuses(given, parts):
    with refuses(*parts):
        as_values(given)


# RowChecker


def test_checker_passes_good_blocks_without_copying():
    checker = RowChecker()
    x = np.ones((5, 2))
    assert np.shares_memory(checker({"x": x})["x"], x)
    assert (checker.rows_read, checker.rows_skipped) == (5, 0)
    big = np.full((3, 2), 1e308)
    assert np.shares_memory(checker({"x": big})["x"], big)


def test_checker_names_the_global_row():
    checker = RowChecker()
    checker({"x": np.zeros((100, 4)), "y": np.zeros(100)})
    x = np.zeros((50, 4))
    x[7, 2] = np.nan
    x[9, 0] = np.inf
    with refuses("row 107 (counting from 0)", "'x[2]' is nan", "2 bad rows", "on_bad_row='skip'"):
        checker({"x": x, "y": np.zeros(50)})
    assert checker.rows_read == 100
    y = np.zeros(50)
    y[0] = -np.inf
    with refuses("row 100", "'y' is -inf"):
        checker({"x": x, "y": y})
    checker({"x": np.zeros((50, 4)), "y": np.zeros(50)})
    assert checker.rows_read == 150


def test_checker_skips_and_counts():
    checker = RowChecker("skip", lambda v: {"label outside 0..3": (v["k"] < 0) | (v["k"] > 3)})
    out = checker({"k": np.array([0, 5, 3, 1]), "y": np.array([1.0, 2.0, np.nan, 4.0])})
    assert out["k"].tolist() == [0, 1]
    assert out["y"].tolist() == [1.0, 4.0]
    assert (checker.rows_read, checker.rows_skipped) == (4, 2)
    assert num_rows(checker({"k": np.array([7]), "y": np.array([1.0])})) == 0
    assert (checker.rows_read, checker.rows_skipped) == (5, 3)


def test_checker_gives_the_reason_of_check_rows():
    checker = RowChecker(check_rows=lambda v: {"label outside 0..3": v["k"] > 3})
    checker({"k": np.array([0, 1])})
    with refuses("row 3", "label outside 0..3", "on_bad_row='skip'"):
        checker({"k": np.array([0, 9])})
    checker = RowChecker(check_rows=lambda v: {"odd": np.array([True, False])})
    with refuses("check_rows", "'odd'", "(3,)"):
        checker({"k": np.arange(3)})


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        ({"x": np.zeros((2, 4)), "k": np.arange(2)}, ["'x'", "(3,)", "(4,)", "features"]),
        ({"x": np.zeros((2, 3)), "k": np.zeros(2)}, ["'k'", "int64", "float64", "schema={'k'"]),
        ({"x": np.zeros((2, 3)), "k": np.array([1.5, np.nan])}, ["'k'", "int64", "float64"]),
        ({"x": np.zeros((2, 3)), "k": np.ones(2, bool)}, ["'k'", "int64", "bool"]),
        ({"x": np.zeros((2, 3))}, ["columns changed", "k, x", "got x"]),
        ({"x": np.zeros((2, 3)), "j": np.arange(2)}, ["columns changed", "k, x", "j, x"]),
        (np.zeros((2, 3)), ["columns changed", "got data"]),
    ],
)
@pytest.mark.parametrize("restored", [False, True])
def test_checker_refuses_another_structure(block, parts, restored):
    checker = RowChecker()
    checker({"x": np.zeros((10, 3)), "k": np.arange(10)})
    if restored:
        state = json.loads(json.dumps(checker.state()))
        checker = RowChecker()
        checker.restore(state)
    before = checker.state()
    with refuses("row 10 (counting from 0)"):
        checker(block)
    with refuses(*parts):
        checker(block)
    assert checker.state() == before
    checker({"x": np.zeros((1, 3)), "k": np.arange(1)})
    assert checker.rows_read == 11


def test_checker_converts_ints_where_floats_were():
    checker = RowChecker()
    checker(np.zeros(3))
    out = checker(np.arange(3))
    assert out.dtype == np.float64


def test_checker_is_not_fixed_by_an_empty_or_bad_first_block():
    checker = RowChecker()
    checker([])
    with refuses("row 0"):
        checker({"x": np.array([np.nan])})
    assert checker.state() == RowChecker().state()
    checker({"y": np.arange(3)})
    assert checker.rows_read == 3


def test_checker_names_a_row_although_names_collide():
    with refuses("row 1", "'a.b' is nan"):
        RowChecker()({"a": {"b": np.array([1.0, np.nan])}, "a.b": np.zeros(2)})


def test_checker_resumes():
    rng = np.random.default_rng(0)
    blocks = [np.where(rng.random(20) < 0.2, np.nan, 1.0) for _ in range(6)]
    whole, first, second = (RowChecker("skip") for _ in range(3))
    expected = [whole(block) for block in blocks]
    got = [first(block) for block in blocks[:3]]
    second.restore(json.loads(json.dumps(first.state())))
    got += [second(block) for block in blocks[3:]]
    assert [len(block) for block in got] == [len(block) for block in expected]
    assert second.state() == whole.state()
    assert second.rows_skipped > 0


def test_checker_refuses_unknown_policy():
    with refuses("'ignore'", "'raise'", "'skip'"):
        RowChecker("ignore")


# rechunk, split, pad


def test_rechunk_loses_nothing():
    rng = np.random.default_rng(0)
    for _ in range(300):
        lengths = rng.integers(0, 12, size=rng.integers(0, 10))
        size = int(rng.integers(1, 25))
        total = int(lengths.sum())
        x = rng.normal(size=(total, 2))
        ends = np.cumsum(lengths)
        blocks = [
            {"x": x[end - length : end], "k": np.arange(end - length, end)}
            for length, end in zip(lengths, ends)
        ]
        chunks = list(rechunk(blocks, size))
        counts = [num_rows(chunk) for chunk in chunks]
        assert all(count == size for count in counts[:-1])
        assert sum(counts) == total
        assert not counts or 1 <= counts[-1] <= size
        if chunks:
            assert np.concatenate([c["k"] for c in chunks]).tolist() == list(range(total))
            np.testing.assert_array_equal(np.concatenate([c["x"] for c in chunks]), x)


def test_rechunk_is_lazy_and_slices():
    x = np.arange(10.0)
    assert all(np.shares_memory(chunk, x) for chunk in rechunk([x], 3))

    def endless():
        while True:
            yield np.ones(3)

    chunks = rechunk(endless(), 7)
    assert [len(next(chunks)) for _ in range(5)] == [7] * 5


def test_split():
    x = np.arange(10.0)
    pieces = list(split({"x": x}, 4))
    assert [len(piece["x"]) for piece in pieces] == [4, 4, 2]
    assert all(np.shares_memory(piece["x"], x) for piece in pieces)
    assert list(split(np.zeros(0), 4)) == []


def test_sizes_are_checked_at_the_call():
    for cut in (lambda: rechunk([], 0), lambda: split(np.zeros(3), -1)):
        with refuses("size", "at least one"):
            cut()


def test_pad():
    values = {"x": np.array([[1.0, 2.0], [3.0, 4.0]]), "k": np.array([5, 6])}
    padded, weight = pad(values, np.array([2.0, 3.0]), 4)
    assert padded["x"].tolist() == [[1, 2], [3, 4], [1, 2], [1, 2]]
    assert padded["k"].tolist() == [5, 6, 5, 5]
    assert padded["k"].dtype == np.int64
    assert weight.tolist() == [2, 3, 0, 0]
    assert pad(values, weight[:2], 2)[0] is values
    for size, rows in ((1, 2), (3, 0)):
        with refuses("Cannot pad"):
            pad(np.zeros(rows), np.zeros(rows), size)
    with refuses("weight", "(3,)", "2 rows"):
        pad(values, np.ones(3), 4)
