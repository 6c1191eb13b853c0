"""Sources of observations: files, streams and chunks."""

import io
import re
import sys
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weighbridge.core.errors import DataError, MissingDependencyError
from weighbridge.data.row_checking import RowChecker
from weighbridge.data.sources import csv_records, parquet_file
from weighbridge.data.sources.opening import open_source
from weighbridge.data.sources.source import Source
from weighbridge.data.values import as_values, num_rows


def refuses(*parts):
    """Expect a DataError whose message contains every part, in order."""
    return pytest.raises(DataError, match="(?s)" + ".*".join(re.escape(part) for part in parts))


def joined(source):
    blocks = list(source.blocks())
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def write_csv(path, text):
    path.write_text(text)
    return path


def test_array_source():
    x = np.zeros((4, 2))
    assert next(open_source(x).blocks()).base is x
    source = open_source({"x": np.arange(3.0), "y": [1, 2, 3]})
    assert isinstance(source, Source)
    assert (source.num_rows, source.reopenable, source.ignored_columns) == (3, True, [])
    assert len(list(source.blocks())) == len(list(source.blocks())) == 1
    assert open_source(source) is source
    pair = open_source([np.zeros((4, 2)), np.zeros(4)])
    assert pair.num_rows == 4


def test_csv_keeps_numeric_columns(tmp_path):
    text = "a,name,b,flag,empty,when\n1,x, 0.5,true,,2020-01-01\n2,y,NA,false,,2020-01-02\n"
    source = open_source(write_csv(tmp_path / "d.csv", text))
    assert source.ignored_columns == ["name", "when"]
    assert source.num_rows is None
    for _ in range(2):
        values = joined(source)
        assert {name: str(leaf.dtype) for name, leaf in values.items()} == {
            "a": "int64",
            "b": "float64",
            "flag": "bool",
            "empty": "float64",
        }
        np.testing.assert_array_equal(values["b"], [0.5, np.nan])
        np.testing.assert_array_equal(values["flag"], [True, False])


def test_csv_columns_and_schema(tmp_path):
    path = write_csv(tmp_path / "d.csv", "\ufeffa,b,c\n1,2,x\n3,4,y\n")
    source = open_source(str(path), columns=["b", "a"], schema={"a": float})
    values = joined(source)
    assert list(values) == ["b", "a"]
    assert values["a"].dtype == np.float64
    assert source.ignored_columns == []
    assert joined(open_source(path, columns="a"))["a"].tolist() == [1, 3]


def test_csv_quoted_newlines_latin1_and_blank_lines(tmp_path):
    path = tmp_path / "d.csv"
    path.write_bytes(b'a,note\n1,"two\nlines"\n\n"2",caf\xe9\n')
    source = open_source(path)
    assert source.ignored_columns == ["note"]
    assert joined(source)["a"].tolist() == [1, 2]
    with refuses("'note'", "row 0"):
        open_source(path, columns=["note"])


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", 256)
    monkeypatch.setattr(parquet_file, "BATCH_ROWS", 100)


def csv_with(values, at, text):
    rows = [f"{v},{v}.5" for v in range(values)]
    rows[at] = text
    return "a,b\n" + "\n".join(rows) + "\n"


@pytest.mark.parametrize("at", [0, 100, 777, 999])
@pytest.mark.usefixtures("small_blocks")
def test_csv_that_turns_to_text(tmp_path, at):
    path = write_csv(tmp_path / "d.csv", csv_with(1000, at, f"{at},oops"))
    where = ["d.csv", "'b'", "'oops'", f"row {at} (counting from 0)", "columns=["]
    if at:
        source = open_source(path)
        with refuses(*where):
            list(source.blocks())
        blocks = source.blocks()
        assert 0 < num_rows(next(blocks)) <= at
    else:
        assert open_source(path).ignored_columns == ["b"]
        with refuses(*where):
            open_source(path, columns=["b"])


def test_csv_that_turns_to_text_in_the_second_real_block(tmp_path):
    path = write_csv(tmp_path / "d.csv", csv_with(150_000, 149_000, "1,oops"))
    assert path.stat().st_size > 1.5 * csv_records.BLOCK_BYTES
    with refuses("'b'", "'oops'", "row 149000 (counting from 0)"):
        list(open_source(path).blocks())


@pytest.mark.usefixtures("small_blocks")
def test_csv_int_that_turns_to_float(tmp_path):
    path = write_csv(tmp_path / "d.csv", csv_with(1000, 777, "7.25,1.5"))
    with refuses("'a'", "whole numbers", "'7.25'", "row 777", "schema={'a': float}"):
        list(open_source(path).blocks())
    values = joined(open_source(path, schema={"a": float}))
    assert values["a"][777] == 7.25
    assert len(values["a"]) == 1000
    with refuses("'a'", "int in schema", "7.25", "row 777"):
        list(open_source(path, schema={"a": int}).blocks())


@pytest.mark.usefixtures("small_blocks")
def test_csv_missing_int_is_a_bad_row_and_not_a_new_type(tmp_path):
    path = write_csv(tmp_path / "d.csv", csv_with(1000, 777, ",1.5"))
    checker = RowChecker()
    with refuses("row 777", "'a' is nan", "on_bad_row='skip'"):
        for block in open_source(path).blocks():
            checker(block)
    checker = RowChecker(on_bad_row="skip")
    blocks = [checker(block)["a"] for block in open_source(path).blocks()]
    assert {block.dtype for block in blocks} == {np.dtype("int64")}
    assert sum(map(len, blocks)) == 999
    with refuses("'a'", "int in schema", "nan", "row 777"):
        list(open_source(path, schema={"a": int}).blocks())


@pytest.mark.usefixtures("small_blocks")
def test_csv_bool_that_turns(tmp_path):
    path = write_csv(tmp_path / "d.csv", "f\n" + "true\n" * 200 + "maybe\n")
    with refuses("'f'", "true/false", "'maybe'", "row 200"):
        list(open_source(path).blocks())


@pytest.mark.usefixtures("small_blocks")
def test_csv_ragged_row(tmp_path):
    path = write_csv(tmp_path / "d.csv", csv_with(1000, 500, "1,2,3"))
    with refuses("Row 500 (counting from 0)", "3 fields", "header has 2", "'1,2,3'"):
        list(open_source(path).blocks())
    with refuses("Row 1 (counting from 0)", "1 fields"):
        open_source(write_csv(tmp_path / "e.csv", "a,b\n1,2\n3\n"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["empty"]),
        ("a,b\n", ["no rows"]),
        ("1.5,2\n3,4\n", ["no header", "1.5,2"]),
        ("a,b,a\n1,2,3\n", ["'a'", "more than once"]),
        ("a\nx\n", ["No column holds numbers", "a"]),
    ],
)
def test_csv_refused(tmp_path, text, parts):
    with refuses("d.csv", *parts):
        open_source(write_csv(tmp_path / "d.csv", text))


def test_missing_columns_are_suggested(tmp_path):
    pq.write_table(pa.table({"height": [1.0], "width": [2.0]}), tmp_path / "d.parquet")
    np.savez(tmp_path / "d.npz", height=[1.0], width=[2.0])
    write_csv(tmp_path / "d.csv", "height,width\n1,2\n")
    frame = pd.DataFrame({"height": [1.0], "width": [2.0]})
    for given in (tmp_path / "d.parquet", tmp_path / "d.npz", tmp_path / "d.csv", frame):
        for wrong in ({"columns": ["hieght"]}, {"schema": {"hieght": float}}):
            with refuses("'hieght'", "Did you mean 'height'", "height, width"):
                open_source(given, **wrong)
    with refuses("'hieght'", "Did you mean 'height'"):
        list(open_source(iter([frame]), columns=["hieght"]).blocks())


def test_missing_and_unknown_files(tmp_path):
    write_csv(tmp_path / "measurements.csv", "a\n1\n")
    with refuses("'measurement.csv'", "Did you mean 'measurements.csv'"):
        open_source(tmp_path / "measurement.csv")
    with refuses("no file", "not a folder"):
        open_source(tmp_path / "nowhere" / "d.csv")
    with refuses("No file matches", "*.parquet"):
        open_source(str(tmp_path / "*.parquet"))
    with refuses("is a folder", "*.csv"):
        open_source(tmp_path)
    with refuses("'.xlsx'", ".csv, .parquet, .npz"):
        open_source(write_csv(tmp_path / "d.xlsx", "a\n1\n"))


def test_bad_arguments(tmp_path):
    with refuses("schema['a']", "float or int"):
        open_source({"a": [1.0]}, schema={"a": str})
    with refuses("'a'", "more than once"):
        open_source({"a": [1.0]}, columns=["a", "a"])
    with refuses("named columns", "dict"):
        open_source([1.0, 2.0], columns=["a"])
    with refuses("already a Source"):
        open_source(open_source([1.0]), columns=["a"])
    with refuses("'a'", "int in schema", "1.5", "row 1"):
        open_source({"a": [1.0, 1.5]}, schema={"a": int})
    assert open_source({"a": [1.0]}, schema={"a": int}).blocks().__next__()["a"].dtype == np.int64
    with refuses("columns is empty"):
        open_source({"a": [1.0]}, columns=[])
    with refuses("no column 'b'", "The columns are: a"):
        open_source({"a": [1.0], "b": [1.0]}, columns=["a"], schema={"b": float})
    with refuses("binary"):
        open_source(io.StringIO("a\n1\n"))


def test_globs_and_lists_of_files(tmp_path):
    for i in range(3):
        write_csv(tmp_path / f"part{i}.csv", f"a,t\n{i}.5,x\n{i},y\n")
        pq.write_table(pa.table({"a": [i + 0.5, i]}), tmp_path / f"part{i}.parquet")
    expected = [0.5, 0, 1.5, 1, 2.5, 2]
    source = open_source(str(tmp_path / "*.csv"))
    assert joined(source)["a"].tolist() == expected
    assert source.ignored_columns == ["t"]
    source = open_source([tmp_path / f"part{i}.parquet" for i in range(3)])
    assert source.num_rows == 6
    assert joined(source)["a"].tolist() == expected
    write_csv(tmp_path / "part3.csv", "b\n1\n")
    with refuses("part3.csv", "no column 'a'", "b"):
        list(open_source(str(tmp_path / "*.csv")).blocks())


@pytest.mark.usefixtures("small_blocks")
def test_streams_of_csv(monkeypatch):
    text = csv_with(1000, 3, "3,3.5").encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text), readline=None))
    for given in ("-", io.BytesIO(text)):
        source = open_source(given, columns=["a"])
        assert not source.reopenable
        assert joined(source)["a"].tolist() == list(range(1000))
        with refuses("cannot be read twice"):
            source.blocks()


def test_parquet(tmp_path, small_blocks):
    table = pa.table(
        {
            "a": pa.array([None if i == 950 else i for i in range(1000)]),
            "t": ["x"] * 1000,
            "b": np.arange(1000) % 2 == 0,
            "c": pa.array(range(1000), pa.decimal128(10, 2)),
        }
    )
    path = tmp_path / "d.parquet"
    pq.write_table(table, path, row_group_size=300)
    source = open_source(path)
    assert (source.num_rows, source.reopenable, source.ignored_columns) == (1000, True, ["t"])
    assert max(num_rows(block) for block in source.blocks()) <= 100
    values = joined(source)
    assert np.flatnonzero(np.isnan(values["a"])).tolist() == [950]
    assert values["b"].dtype == bool
    assert values["c"].dtype == np.float64
    assert list(joined(open_source(path, columns=["b", "a"]))) == ["b", "a"]
    with refuses("'t'", "string"):
        open_source(path, columns=["t"])
    pq.write_table(table.slice(0, 0), path)
    with refuses("no rows"):
        open_source(path)
    write_csv(path, "not parquet")
    with refuses("not Parquet"):
        open_source(path)


def test_parquet_is_read_in_bounded_memory(tmp_path):
    rows = 1_000_000
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"a": np.arange(rows, dtype=float)}), path, row_group_size=100_000)
    before = pa.total_allocated_bytes()
    peak, seen = 0, 0
    tracemalloc.start()
    for block in open_source(path).blocks():
        seen += num_rows(block)
        peak = max(peak, pa.total_allocated_bytes() - before)
    peak += tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == rows
    assert peak < 0.6 * 8 * rows


def test_npz(tmp_path):
    path = tmp_path / "d.npz"
    np.savez(path, x=np.zeros((3, 2)), y=[1, 2, 3], name=["a", "b", "c"])
    source = open_source(path)
    assert source.ignored_columns == ["name"]
    (values,) = source.blocks()
    assert values["x"].shape == (3, 2)
    with refuses("'name'", "text", "'a'"):
        open_source(path, columns=["name"])
    np.savez(path, x=np.zeros((0, 2)))
    with refuses("no rows"):
        open_source(path)
    np.savez(path, x=np.array([{}], object))
    with refuses("d.npz", "cannot be read"):
        open_source(path)
    path.write_bytes(b"")
    with refuses("d.npz", "cannot be read"):
        open_source(path)
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with refuses("d.npz", "cannot be read"):
        open_source(path)


def test_chunks():
    def chunks():
        yield {"x": [1.0, 2.0]}
        yield {"x": []}
        yield pd.DataFrame({"x": [3.0]})
        yield pa.table({"x": [4.0]})

    source = open_source(chunks())
    assert (source.num_rows, source.reopenable) == (None, False)
    assert joined(source)["x"].tolist() == [1, 2, 3, 4]
    with refuses("cannot be read twice"):
        source.blocks()
    source = open_source(list(chunks()))
    assert source.reopenable
    assert joined(source)["x"].tolist() == joined(source)["x"].tolist() == [1, 2, 3, 4]
    with refuses("'x'", "'bad'", "row 3 (counting from 0)"):
        list(open_source(iter([{"x": [1, 2]}, {"x": [3, "bad"]}])).blocks())
    arrays = open_source(iter([np.zeros((2, 3)), np.ones((1, 3))]))
    assert [block.shape for block in arrays.blocks()] == [(2, 3), (1, 3)]


def test_pandas_reader_is_a_source_of_chunks(tmp_path):
    path = write_csv(tmp_path / "d.csv", csv_with(100, 3, "3,3.5"))
    with pd.read_csv(path, chunksize=30) as reader:
        assert joined(open_source(reader))["a"].tolist() == list(range(100))


def test_missing_pyarrow(tmp_path, monkeypatch):
    path = write_csv(tmp_path / "d.csv", "a\n1\n")
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "weighbridge\[data\]"'):
        open_source(path)
    assert as_values({"x": [1.0]})["x"].dtype == np.float64


@pytest.mark.parametrize("text", ["a,b\n1,2.5", "a,b\n1,2.5\n", "a,b\r\n1,2.5\r\n"])
def test_csv_of_a_single_row(tmp_path, monkeypatch, text):
    path = tmp_path / "d.csv"
    path.write_bytes(text.encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode()), readline=1))
    for given in (path, io.BytesIO(text.encode()), "-"):
        assert joined(open_source(given))["b"].tolist() == [2.5]
    chunk = pd.read_csv(path)
    assert joined(open_source(iter([chunk])))["b"].tolist() == [2.5]


def test_in_memory(tmp_path):
    write_csv(tmp_path / "d.csv", "a\n1\n")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "d.parquet")
    np.savez(tmp_path / "d.npz", a=[1])
    frame = pd.DataFrame({"a": [1]})
    for given in ([1.0], {"a": [1]}, frame, pa.table({"a": [1]}), [frame], tmp_path / "d.npz"):
        assert open_source(given).in_memory
    files = [tmp_path / "d.npz"] * 2
    for given in (
        tmp_path / "d.csv",
        tmp_path / "d.parquet",
        files,
        iter([frame]),
        io.BytesIO(b"a\n1"),
    ):
        assert not open_source(given).in_memory
