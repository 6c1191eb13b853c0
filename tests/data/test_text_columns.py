"""Columns of text become numbers; a value that is none is named with its place."""

import numpy as np
import pytest

from weighbridge.core.errors import DataError, MissingDependencyError
from weighbridge.core.optional import is_a, require
from weighbridge.data.sources.files import check_file, expand, is_readable
from weighbridge.data.sources.reading import NoRowsError, make_head
from weighbridge.data.sources.requested_columns import ALL_COLUMNS, Request, check_request, select
from weighbridge.data.sources.text_columns import (
    infer_kinds,
    infer_kinds_leniently,
    parse_column,
    parse_leniently,
    place_of,
)

pyarrow = pytest.importorskip("pyarrow")


def where(position):
    return place_of(position, position + 2)


def table(**columns):
    return pyarrow.table({name: pyarrow.array(texts) for name, texts in columns.items()})


def test_types_are_inferred_from_the_text():
    batch = table(a=["1", "2"], b=["1.5", None], c=["true", "false"], d=["x", "y"])
    assert infer_kinds(batch, {}, False, where) == {"a": "int64", "b": "float64", "c": "bool"}
    assert infer_kinds(batch, {"a": float}, False, where)["a"] == "float64"
    with pytest.raises(DataError, match="'x'"):
        infer_kinds(batch, {}, True, where)


def test_a_column_of_mostly_numbers_is_one_of_numbers_if_read_leniently():
    batch = table(a=["1.5", "2", "oops", "3"], b=["x", "y", "1", "z"])
    assert infer_kinds_leniently(batch, {}, False) == {"a": "float64"}


def test_a_value_that_is_no_number_is_named_or_left_out():
    column = pyarrow.array(["1", "2", "oops", "4"])
    with pytest.raises(DataError, match="oops"):
        parse_column(column, "a", "float64", 0, False, where)
    values, bad = parse_leniently(column, "a", "float64", False, where)
    np.testing.assert_array_equal(values, [1.0, 2.0, np.nan, 4.0])
    assert list(bad) == [2]
    assert "oops" in bad[2]


def test_a_request_names_the_columns_that_must_be_there():
    request = check_request("y", {"y": int}, lenient=True)
    assert request == Request(["y"], {"y": int}, True)
    assert (request.named, ALL_COLUMNS.named) == (["y", "y"], [])
    values = {"x": np.ones(2), "y": np.array([1.0, 2.0])}
    assert select(values, ALL_COLUMNS, 0) is values
    assert select(values, request, 0)["y"].dtype == np.int64


def test_a_head_needs_columns_and_rows():
    assert make_head(["a"], ["a", "b"], None).ignored == ["b"]
    with pytest.raises(DataError, match="No column holds numbers"):
        make_head([], ["a"], 3)
    with pytest.raises(NoRowsError):
        make_head(["a"], ["a"], 0)


def test_files_are_found_by_pattern_and_refused_by_type(tmp_path):
    for name in ("b.csv", "a.csv", "c.txt"):
        (tmp_path / name).write_text("y\n1\n")
    assert [path.name for path in expand(tmp_path / "*.csv")] == ["a.csv", "b.csv"]
    assert [is_readable(name) for name in ("a.CSV", ".a.csv", "c.txt")] == [True, False, False]
    with pytest.raises(DataError, match=r"'\.txt', which is not known"):
        check_file(tmp_path / "c.txt")
    with pytest.raises(DataError, match=r"Did you mean 'a\.csv'"):
        check_file(tmp_path / "aa.csv")


def test_an_optional_module_is_asked_for_by_name():
    assert require("pyarrow") is pyarrow
    assert is_a(pyarrow.array([1]), "pyarrow", "Array")
    assert not is_a(1, "a_module_that_is_not_there", "Array")
    with pytest.raises(MissingDependencyError, match=r"weighbridge\[data\]"):
        require("a_module_that_is_not_there")
