"""Feeds: every kind read on from every place, growing ones, and what they notice."""

import io
import itertools
import json
import os
import re
import threading
import time
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weighbridge as wb
from weighbridge.core.errors import DataError
from weighbridge.data.feeds.base import Notice, Parcel
from weighbridge.data.feeds.chunking import chunks
from weighbridge.data.feeds.continuity import Continuity
from weighbridge.data.feeds.directory import DirectoryFeed
from weighbridge.data.feeds.json_lines import JsonLinesFeed
from weighbridge.data.feeds.opening import open_feed
from weighbridge.data.feeds.streams import StreamFeed
from weighbridge.data.row_checking import RowChecker
from weighbridge.data.sources import csv_records, line_blocks, parquet_file
from weighbridge.data.sources.opening import open_source
from weighbridge.data.values import num_rows

ROWS = 60
RNG = np.random.default_rng(0)
TABLE = {
    "x": RNG.normal(size=(ROWS, 2)),
    "y": RNG.normal(size=ROWS),
    "k": RNG.integers(0, 5, size=ROWS),
}


def refuses(*parts):
    return pytest.raises(DataError, match="(?s)" + ".*".join(re.escape(part) for part in parts))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", 200)
    monkeypatch.setattr(parquet_file, "BATCH_ROWS", 7)
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 300)


def rows_of(start, stop):
    return {name: column[start:stop] for name, column in TABLE.items()}


def flat(start=0, stop=ROWS):
    return {name: TABLE[name][start:stop] for name in ("y", "k")}


def csv_text(start=0, stop=ROWS):
    return pd.DataFrame(flat(start, stop)).to_csv(index=False)


def json_text(start=0, stop=ROWS, **more):
    lines = []
    for i in range(start, stop):
        row = {"x": TABLE["x"][i].tolist(), "y": TABLE["y"][i], "k": int(TABLE["k"][i])}
        lines.append(json.dumps(row | {name: make(i) for name, make in more.items()}))
    return "\n".join(lines) + "\n"


def write_parquet(path, start=0, stop=ROWS, group=10):
    pq.write_table(pa.table(flat(start, stop)), path, row_group_size=group)


def make_array(folder):
    return TABLE


def make_parcels(folder):
    cuts = [0, 1, 20, 20, 47, ROWS]
    return [
        Parcel(rows_of(a, b), identifier=i) for i, (a, b) in enumerate(itertools.pairwise(cuts))
    ]


def make_frames(folder):
    return [pd.DataFrame(flat(i, i + 15)) for i in range(0, ROWS, 15)]


def make_csv(folder):
    (folder / "d.csv").write_text(csv_text())
    return folder / "d.csv"


def make_parquet(folder):
    write_parquet(folder / "d.parquet")
    return folder / "d.parquet"


def make_npz(folder):
    np.savez(folder / "d.npz", **TABLE)
    return folder / "d.npz"


def make_json(folder):
    (folder / "d.jsonl").write_text(json_text())
    return folder / "d.jsonl"


def make_glob(folder):
    for i in range(3):
        (folder / f"p{i}.csv").write_text(csv_text(20 * i, 20 * i + 20))
    return str(folder / "p*.csv")


def make_mixed_list(folder):
    (folder / "a.csv").write_text(csv_text(0, 10))
    write_parquet(folder / "b.parquet", 10, 35, group=6)
    (folder / "c.jsonl").write_text(json_text(35, ROWS))
    return [folder / "a.csv", folder / "b.parquet", folder / "c.jsonl"]


def make_directory(folder):
    inner = folder / "in"
    inner.mkdir()
    for i in range(6):
        if i % 2:
            write_parquet(inner / f"{i}.parquet", 10 * i, 10 * i + 10, group=4)
        else:
            (inner / f"{i}.csv").write_text(csv_text(10 * i, 10 * i + 10))
    (inner / ".hidden.csv").write_text("half")
    (inner / "notes.txt").write_text("nothing")
    return inner


MAKERS = [
    make_array,
    make_parcels,
    make_frames,
    make_csv,
    make_parquet,
    make_npz,
    make_json,
    make_glob,
    make_mixed_list,
    make_directory,
]


def signature(chunk):
    leaves = {
        name: (leaf.dtype.str, leaf.shape, leaf.tobytes()) for name, leaf in chunk.values.items()
    }
    # What is known of a file depends on when that was: on how much had come.
    cursor = {name: value for name, value in chunk.cursor.items() if name != "mark"}
    return leaves, json.dumps(cursor)


def identifier_feed(folder):
    (folder / "i.jsonl").write_text(json_text(id=lambda i: i + 7))
    return JsonLinesFeed(folder / "i.jsonl", identifier="id")


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [1, 7, 16, ROWS, ROWS + 1])
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__[5:])
def test_reading_on_from_any_place_gives_the_same_chunks(make, size, tmp_path):
    given = make(tmp_path)
    schema = {"k": int} if make is make_json or make is make_mixed_list else None
    feed = open_feed(given, schema=schema, columns=["y", "k"] if schema else None)
    assert feed.seekable
    whole = list(chunks(feed, size))
    assert [num_rows(chunk.values) for chunk in whole[:-1]] == [size] * (len(whole) - 1)
    np.testing.assert_array_equal(np.concatenate([c.values["y"] for c in whole]), TABLE["y"])
    assert np.concatenate([c.values["k"] for c in whole]).tolist() == TABLE["k"].tolist()
    expected = [signature(chunk) for chunk in whole]
    for number, chunk in enumerate(whole):
        cursor = json.loads(json.dumps(chunk.cursor))
        again = open_feed(given, schema=schema, columns=["y", "k"] if schema else None)
        assert [signature(c) for c in chunks(again, size, cursor)] == expected[number + 1 :]


@pytest.mark.usefixtures("small_blocks")
def test_rows_with_identifiers_resume_too(tmp_path):
    feed, continuity = identifier_feed(tmp_path), Continuity()
    states = []
    whole = []
    stream = chunks(feed, 9, None, continuity)
    for chunk in stream:
        whole.append(chunk)
        states.append(json.dumps(stream.continuity_state))
    assert sum(num_rows(c.values) for c in whole) == ROWS
    assert all(chunk.notices == () for chunk in whole)
    for number, chunk in enumerate(whole):
        resumed = Continuity()
        resumed.restore(json.loads(states[number]))
        rest = list(chunks(identifier_feed(tmp_path), 9, chunk.cursor, resumed))
        assert [signature(c) for c in rest] == [signature(c) for c in whole[number + 1 :]]
        assert not any(c.notices for c in rest)
        assert resumed.state() == continuity.state()


def test_parcels_inside_which_a_chunk_ends_are_no_duplicates_after_a_resume(tmp_path):
    given = make_parcels(tmp_path)
    continuity = Continuity()
    given.insert(1, None)  # nothing new: a checkpoint may be written while a chunk is half full
    stream = chunks(open_feed(given), 11, None, continuity)
    assert next(stream) is None
    assert stream.continuity_state["stretches"] == []
    first = next(stream)
    resumed = Continuity()
    resumed.restore(stream.continuity_state)
    rest = list(chunks(open_feed(given), 11, first.cursor, resumed))
    assert sum(num_rows(c.values) for c in rest if c) == ROWS - 11
    assert not any(c.notices for c in rest if c)


# Files -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
def test_row_numbers_in_messages_after_a_seek(tmp_path):
    lines = csv_text().splitlines()
    lines[51] = "oops,1"
    (tmp_path / "d.csv").write_text("\n".join(lines))
    stream = chunks(open_feed(tmp_path / "d.csv"), 25)
    first = next(stream)
    with refuses("d.csv", "'oops' at row 50 (counting from 0)"):
        list(stream)
    with refuses("d.csv", "'oops' at row 50 (counting from 0)"):
        list(chunks(open_feed(tmp_path / "d.csv"), 25, first.cursor))
    lines = json_text().splitlines()
    lines[50] = '{"x": [1, 2]'
    (tmp_path / "d.jsonl").write_text("\n".join(lines))
    stream = chunks(open_feed(tmp_path / "d.jsonl"), 25)
    first = next(stream)
    for rest in (stream, chunks(open_feed(tmp_path / "d.jsonl"), 25, first.cursor)):
        with refuses("d.jsonl", "Line 51", "not a JSON object"):
            list(rest)


@pytest.mark.usefixtures("small_blocks")
def test_row_groups_before_the_place_are_not_read(tmp_path, monkeypatch):
    feed = open_feed(make_parquet(tmp_path))
    place = next(chunks(feed, 42)).cursor
    read = []
    original = pq.ParquetFile.iter_batches

    def watch(self, batch_size, row_groups, **others):
        read.extend(row_groups)
        return original(self, batch_size, row_groups=row_groups, **others)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watch)
    rest = list(chunks(feed, 100, place))
    assert rest[0].values["y"].tolist() == TABLE["y"][42:].tolist()
    assert read == [4, 5]


@pytest.mark.usefixtures("small_blocks")
def test_a_csv_block_may_hold_quoted_line_ends(tmp_path):
    text = 'name,y\n"a\nb",0.5\n' + "".join(f'"{i}\n\n{i}",{i}\n' for i in range(50))
    (tmp_path / "d.csv").write_text(text)
    whole = list(chunks(open_feed(tmp_path / "d.csv"), 4))
    assert np.concatenate([c.values["y"] for c in whole]).tolist() == [0.5, *range(50)]
    for number, chunk in enumerate(whole):
        rest = list(chunks(open_feed(tmp_path / "d.csv"), 4, chunk.cursor))
        assert [signature(c) for c in rest] == [signature(c) for c in whole[number + 1 :]]


@pytest.mark.usefixtures("small_blocks")
def test_a_file_that_is_not_what_it_was(tmp_path):
    for make, change in [
        (make_csv, lambda path: path.write_text("y,k\n0.5,1\n")),
        (make_csv, lambda path: path.write_text(path.read_text().replace("\n", "0\n"))),
        (make_json, lambda path: path.write_text(json_text(0, 2))),
        (make_json, lambda path: path.write_text(path.read_text().replace("\n", " \n"))),
        (make_parquet, lambda path: write_parquet(path, 0, 5)),
    ]:
        path = make(tmp_path)
        place = next(chunks(open_feed(path), 30)).cursor
        change(path)
        with refuses(path.name, "has changed"):
            list(chunks(open_feed(path), 30, place))


def test_a_place_of_another_feed_is_refused(tmp_path):
    feeds = [open_feed(make(tmp_path)) for make in (make_array, make_parcels, make_json)]
    feeds += [open_feed(make_glob(tmp_path)), open_feed(make_directory(tmp_path))]
    for feed in feeds:
        with refuses("no place in", "another feed"):
            list(feed.read({"nothing": 1}))
    with refuses("no place in"):
        list(feeds[0].read({"offset": ROWS + 1}))


def test_a_list_that_has_grown_finds_its_place(tmp_path):
    pattern = make_glob(tmp_path)
    place = next(chunks(open_feed(pattern), 30)).cursor
    (tmp_path / "p00.csv").write_text(csv_text(0, 2))
    rest = list(chunks(open_feed(pattern), 100, place))
    assert rest[0].values["y"].tolist() == TABLE["y"][30:].tolist()


@pytest.mark.long
def test_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(parquet_file, "BATCH_ROWS", 1000)
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 1 << 14)
    rows = 100_000
    values = np.arange(rows, dtype=float)
    pd.DataFrame({"y": values}).to_csv(tmp_path / "d.csv", index=False)
    pq.write_table(pa.table({"y": values}), tmp_path / "d.parquet", row_group_size=10_000)
    text = "".join(f'{{"y": {i}.0}}\n' for i in range(rows))
    (tmp_path / "d.jsonl").write_text(text)
    del text
    for name in ("d.csv", "d.parquet", "d.jsonl"):
        tracemalloc.start()
        seen = 0
        before = pa.total_allocated_bytes()
        for chunk in chunks(open_feed(tmp_path / name), 1000):
            seen += num_rows(chunk.values)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert seen == rows
        assert peak < 8 * rows, name  # less than the numbers alone would take
        assert pa.total_allocated_bytes() - before < 8 * rows


# Directories -------------------------------------------------------------------------------------


def test_a_directory_that_grows(tmp_path):
    (tmp_path / "b.csv").write_text(csv_text(0, 10))
    feed = DirectoryFeed(tmp_path, follow=True, settle=0.05, patience=0.01)
    stream = chunks(feed, 10)
    assert wait_for(stream).values["y"].tolist() == TABLE["y"][:10].tolist()
    with open(tmp_path / "c.csv", "w") as file:  # is not taken while it is being written
        for line in csv_text(10, 20).splitlines(keepends=True):
            file.write(line)
            file.flush()
            assert next(stream) is None
            time.sleep(0.02)
    assert wait_for(stream).values["y"].tolist() == TABLE["y"][10:20].tolist()
    (tmp_path / "a.csv").write_text(csv_text(0, 10))
    (tmp_path / "d.csv").write_text(csv_text(20, 30))
    chunk = wait_for(stream)
    assert chunk.values["y"].tolist() == TABLE["y"][20:30].tolist()
    assert [(notice.kind, notice.identifier) for notice in chunk.notices] == [("gap", "a.csv")]
    assert chunk.cursor["name"] == "d.csv"
    # Another process goes on; a file that came while none was there is noticed as well.
    (tmp_path / "aa.csv").write_text(csv_text(0, 10))
    (tmp_path / "e.csv").write_text("y,k\n")
    (tmp_path / "f.csv").write_text(csv_text(30, 40))
    resumed = chunks(DirectoryFeed(tmp_path), 10, chunk.cursor)
    last = next(resumed)
    assert last.values["y"].tolist() == TABLE["y"][30:40].tolist()
    assert [notice.identifier for notice in last.notices] == ["a.csv", "aa.csv", "e.csv"]
    assert all("came after d.csv" in notice.text for notice in last.notices[:2])
    assert "passed over" in last.notices[2].text
    assert list(resumed) == []


def wait_for(stream, seconds=5.0):
    """The next chunk of a stream that is being followed."""
    end = time.monotonic() + seconds
    while (chunk := next(stream)) is None:
        assert time.monotonic() < end, "nothing came"
    return chunk


def test_a_file_renamed_into_place_is_taken_at_once(tmp_path):
    feed = DirectoryFeed(tmp_path, follow=True, settle=1000.0, patience=0.01)
    stream = chunks(feed, 10)
    (tmp_path / "a.csv.tmp").write_text(csv_text(0, 10))
    assert next(stream) is None
    os.rename(tmp_path / "a.csv.tmp", tmp_path / "a.csv")
    assert wait_for(stream).values["y"].tolist() == TABLE["y"][:10].tolist()
    (tmp_path / "b.csv").write_text(csv_text(10, 20))
    assert [next(stream) for _ in range(5)] == [None] * 5


def test_columns_of_a_directory_are_those_of_its_first_file_after_a_resume(tmp_path):
    (tmp_path / "a.csv").write_text("y,extra\n1.5,x\n2.5,y\n")
    (tmp_path / "b.csv").write_text("y,extra\n3.5,1\n4.5,2\n")
    whole = list(chunks(open_feed(tmp_path), 3))
    assert [list(chunk.values) for chunk in whole] == [["y"], ["y"]]
    (tmp_path / "a.csv").unlink()
    rest = list(chunks(open_feed(tmp_path), 3, whole[0].cursor))
    assert [signature(c) for c in rest] == [signature(whole[1])]
    (tmp_path / "b.csv").unlink()
    assert list(chunks(open_feed(tmp_path), 3, whole[0].cursor)) == []


def test_an_empty_directory(tmp_path):
    with refuses("no file with rows"):
        list(open_feed(tmp_path).read())
    assert next(DirectoryFeed(tmp_path, follow=True, patience=0.01).read()) is None


# JSON lines --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
def test_a_file_of_lines_that_grows(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text("")
    text = json_text().encode()
    feed = JsonLinesFeed(path, follow=True, patience=0.001)
    stream = chunks(feed, 7)
    assert next(stream) is None
    found = []
    with open(path, "ab", buffering=0) as file:
        for start in range(0, len(text), 97):  # never at a line's end
            file.write(text[start : start + 97])
            for _ in range(3):
                chunk = next(stream)
                if chunk is not None:
                    found.append(chunk)
    still = list(chunks(open_feed(path), 7))
    assert [signature(c) for c in found] == [signature(c) for c in still[: len(found)]]
    assert len(found) == ROWS // 7
    pending = stream.pending()
    assert signature(pending) == signature(still[-1])
    assert stream.pending() is None
    assert next(chunks(feed, 7, pending.cursor)) is None


def test_bad_lines_follow_the_row_policy(tmp_path):
    lines = json_text(id=lambda i: f"r{i}").splitlines()
    lines[3] = "garbage"
    lines[4] = '{"x": [1], "y": 1, "k": 1, "id": "short"}'
    lines[40] = '{"x": [1, 2], "y": "1", "k": 1, "id": "text"}'
    lines[41] = '{"x": [1, 2], "k": 1, "id": "none"}'
    lines[42] = '{"x": [1, 2], "y": 1, "k": 1.5, "id": "half"}'
    lines[50] = '{"x": [1, 2], "y": null, "k": 1, "id": "null"}'
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(lines))
    with refuses("Line 4", "'garbage'"):
        list(chunks(open_feed(path, schema={"k": int}), 10))
    for identifier in (None, "id"):
        feed = open_feed(path, schema={"k": int}, on_bad_row="skip", identifier=identifier)
        found = list(chunks(feed, 10, None, Continuity()))
        told = [notice for chunk in found for notice in chunk.notices]
        assert [(n.kind, n.identifier) for n in told] == [
            ("unreadable", number) for number in (4, 5, 41, 42, 43)
        ]
        says = ["not a JSON object", "shape (1,)", "'1', not numbers", "no 'y'", "1.5, not whole"]
        assert all(word in notice.text for word, notice in zip(says, told, strict=True))
        checker = RowChecker("skip")
        kept = [checker(chunk.values) for chunk in found]
        assert (checker.rows_read, checker.rows_skipped) == (ROWS, 6)
        good = [i for i in range(ROWS) if i not in (3, 4, 40, 41, 42, 50)]
        assert np.concatenate([c["y"] for c in kept]).tolist() == TABLE["y"][good].tolist()
        for number, chunk in enumerate(found):
            rest = list(chunks(feed, 10, chunk.cursor))
            assert [signature(c) for c in rest] == [signature(c) for c in found[number + 1 :]]


def test_types_of_json_columns(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text('{"a": 1, "b": true, "c": "t", "d": [[1, 2], [3, 4]]}\n\n')
    with open(path, "a") as file:
        file.write('{"a": 2.5, "b": false, "d": [[1, 2.5], [3, 4]]}\r\n{"a": 1e400, "b": true, ')
        file.write('"d": [[1, 2], [3, 123456789012345678901234567890]]}')
    (chunk,) = chunks(open_feed(path), 10)
    values = chunk.values
    assert {name: leaf.dtype for name, leaf in values.items()} == {
        "a": float,
        "b": bool,
        "d": float,
    }
    assert values["a"].tolist() == [1.0, 2.5, np.inf]
    assert values["d"].shape == (3, 2, 2)
    assert values["d"][2, 1, 1] == 123456789012345678901234567890.0
    (block,) = open_source(path).blocks()
    assert block["d"].tolist() == values["d"].tolist()
    assert open_source(path).ignored_columns == ["c"]
    with refuses("'c'", "line 1"):
        list(chunks(open_feed(path, columns=["a", "c"]), 10))
    with refuses("no column 'z'"):
        list(chunks(open_feed(path, columns=["z"]), 10))
    with refuses("Line 3", "2.5", "whole"):
        list(chunks(open_feed(path, schema={"a": int}), 10))


def test_json_lines_on_a_pipe():
    read_end, write_end = os.pipe()
    text = json_text().encode()
    with open(read_end, "rb") as reading, open(write_end, "wb", buffering=0) as writing:
        feed = StreamFeed(reading, patience=0.01)
        assert not feed.seekable
        assert "no exact resume" in feed.describe()
        stream = chunks(feed, 25)
        assert next(stream) is None
        writing.write(text[:1000])
        assert next(stream) is None
        thread = threading.Thread(target=lambda: (writing.write(text[1000:]), writing.close()))
        thread.start()
        first, second = wait_for(stream), wait_for(stream)
        thread.join()
        rest = stream.pending()
        whole = [first, second] + ([rest] if rest is not None else []) + list(stream)
        assert [num_rows(chunk.values) for chunk in whole][:2] == [25, 25]
        y = np.concatenate([chunk.values["y"] for chunk in whole if chunk is not None])
        assert y.tolist() == TABLE["y"].tolist()
        with refuses("cannot be read from an earlier place"):
            list(feed.read(first.cursor))
        with refuses("cannot be read twice"):
            list(feed.read())


def test_streams_of_either_kind():
    for text in (json_text(), "\n" + csv_text(), csv_text()):
        (chunk,) = chunks(open_feed(io.BytesIO(text.encode()), columns=["y", "k"]), 100)
        np.testing.assert_allclose(chunk.values["y"], TABLE["y"])
    with refuses("binary"):
        open_feed(io.StringIO("{}"))
    with refuses("CSV", "empty"):
        list(chunks(open_feed(io.BytesIO(b"")), 5))
    with refuses("identifier", "CSV"):
        list(chunks(open_feed(io.BytesIO(b"a\n1\n"), identifier="a"), 5))


# Iterables ---------------------------------------------------------------------------------------


def test_an_iterator_cannot_seek_and_says_so():
    feed = open_feed(iter([rows_of(0, 30), rows_of(30, ROWS)]))
    assert not feed.seekable
    assert "only once" in feed.describe()
    stream = chunks(feed, 40)
    first = next(stream)
    pending = stream.pending()
    assert num_rows(pending.values) == 20
    with refuses("cannot be read from an earlier place"):
        list(feed.read(first.cursor))


def test_pending_holds_every_row_read():
    stream = chunks(open_feed(iter([rows_of(0, 50), None, rows_of(50, ROWS)])), 8)
    first = next(stream)
    assert num_rows(first.values) == 8
    assert stream.pending().values["y"].tolist() == TABLE["y"][8:50].tolist()
    assert next(stream) is None
    assert next(stream).values["y"].tolist() == TABLE["y"][50:58].tolist()


def test_duplicates_and_gaps_of_parcels():
    cuts = {1: (0, 10), 2: (10, 20), 4: (20, 30)}
    order = [1, 2, 2, 4, 1, 3, 5]
    cuts |= {3: (30, 40), 5: (40, 50)}
    given = [wb.Parcel(rows_of(*cuts[i]), identifier=i) for i in order]
    found = list(wb.chunks(wb.open_feed(given), 100, None, wb.Continuity()))
    assert found[0].values["y"].tolist() == TABLE["y"][:50].tolist()
    assert found[0].notices == (
        Notice("duplicate", 2, "Parcel 2 came again and is left out."),
        Notice("gap", 4, "Parcel 3 is missing: 4 came after 2."),
        Notice("duplicate", 1, "Parcel 1 came again and is left out."),
    )
    everything = list(chunks(open_feed(given), 100))
    assert num_rows(everything[0].values) == 70
    late = chunks(open_feed([given[0], given[0]]), 10, None, Continuity())
    next(late)
    with pytest.raises(StopIteration):
        next(late)
    assert [notice.kind for notice in late.take_notices()] == ["duplicate"]


def test_continuity_is_bounded_and_can_be_saved():
    continuity = Continuity(memory=5)
    for number in range(0, 100, 2):
        taken, notice = continuity.check(number)
        assert taken
        assert (notice is None) == (number == 0)
    for i in range(100):
        assert continuity.check(f"name{i}") == (True, None)
    state = json.loads(json.dumps(continuity.state()))
    assert len(state["stretches"]) <= 5
    assert len(state["texts"]) <= 5
    resumed = Continuity(memory=5)
    resumed.restore(state)
    for identifier, taken in [(98, False), (97, True), (97, False), (3, False), (99, True)]:
        assert continuity.check(identifier)[0] is taken
        assert resumed.check(identifier)[0] is taken
    assert resumed.check("name99")[0] is False
    assert resumed.check(99)[1].kind == "duplicate"
    with refuses("1.5", "whole numbers"):
        continuity.check(1.5)


def test_continuity_against_a_plain_set():
    rng = np.random.default_rng(3)
    continuity, seen = Continuity(), set()
    for number in rng.integers(0, 200, size=1000).tolist():
        taken, notice = continuity.check(number)
        assert taken == (number not in seen)
        if taken and seen and number > max(seen) + 1:
            assert notice.kind == "gap"
        elif taken:
            assert notice is None
        seen.add(number)
    assert continuity.state()["stretches"] == stretches_of(seen)


def stretches_of(numbers):
    found = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


# Opening -----------------------------------------------------------------------------------------


def test_what_cannot_be_opened(tmp_path):
    with refuses("nothing to follow", "3 rows in memory"):
        open_feed([1.0, 2.0, 3.0], follow=True)
    with refuses("nothing to follow", "d.csv"):
        open_feed(make_csv(tmp_path), follow=True)
    with refuses("no file 'nowhere.csv'"):
        open_feed(tmp_path / "nowhere.csv")
    with refuses("identifier"):
        open_feed([1.0], identifier="id")
    with refuses("size is 0"):
        chunks(open_feed([1.0]), 0)
    with refuses("columns changed", "shapes"):
        list(chunks(open_feed(iter([{"x": [1.0]}, {"y": [1.0]}])), 5))
    feed = open_feed([1.0])
    assert open_feed(feed) is feed


def test_sources_are_feeds(tmp_path):
    source = open_source(make_csv(tmp_path))
    feed = open_feed(source)
    whole = list(chunks(feed, 25))
    assert feed.seekable
    assert signature(next(chunks(feed, 25, whole[0].cursor))) == signature(whole[1])
    assert not open_feed(open_source(io.BytesIO(b"a\n1\n"))).seekable


def test_a_file_that_was_cleared_away_does_not_stop_a_resumed_reading(tmp_path):
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", y=np.arange(4.0) + 10 * number)
    first, _, _ = chunks(open_feed(tmp_path), 4)
    (tmp_path / "0.npz").unlink()
    resumed = chunks(open_feed(tmp_path), 4, first.cursor)
    rest = [chunk.values["y"].tolist() for chunk in resumed]
    assert rest == [[10.0, 11.0, 12.0, 13.0], [20.0, 21.0, 22.0, 23.0]]
    again = next(iter(chunks(open_feed(tmp_path), 4, first.cursor)))
    assert [notice.kind for notice in again.notices] == ["gap"]
    assert "0.npz is gone" in again.notices[0].text
