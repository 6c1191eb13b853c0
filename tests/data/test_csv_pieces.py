"""CSV on a pipe: rows as they come, whole records, types and row numbers as in a file."""

import io
import os

import numpy as np
import pytest

from weighbridge.core.errors import DataError
from weighbridge.data.feeds import csv_pieces, streams
from weighbridge.data.feeds.chunking import chunks
from weighbridge.data.feeds.csv_pieces import CsvRows, Records
from weighbridge.data.feeds.opening import open_feed
from weighbridge.data.feeds.streams import StreamFeed
from weighbridge.data.sources import csv_records, line_blocks
from weighbridge.data.sources.requested_columns import Request
from weighbridge.data.values import num_rows

TEXT = b'\n"first\nname",y,k,word\n1.5,2,3,"a, ""b""\nc"\n2.5,3,4,d\n\n3.5,4,5,"e\n"\n4.5,5,6,f'


def rows_of(parcels):
    parcels = list(parcels)
    assert [p.cursor["row"] for p in parcels] == np.cumsum(
        [0, *(num_rows(p.values) for p in parcels[:-1])]
    ).tolist()
    names = parcels[0].values
    return {name: np.concatenate([p.values[name] for p in parcels]).tolist() for name in names}


@pytest.mark.parametrize("size", [1, 2, 7, 30, 1000])
def test_any_cut_gives_the_same_rows(size):
    rows, parcels = CsvRows(Request(None, {"k": int})), []
    for start in range(0, len(TEXT), size):
        parcels += rows.add(TEXT[start : start + size])
    parcels += rows.end()
    assert rows_of(parcels) == {
        "first\nname": [1.5, 2.5, 3.5, 4.5],
        "y": [2, 3, 4, 5],
        "k": [3, 4, 5, 6],
    }
    assert parcels[-1].values["k"].dtype == np.int64
    assert parcels[0].values["y"].dtype == parcels[-1].values["y"].dtype == np.float64
    assert rows.left_out == ["word"]


def test_rows_on_a_pipe_are_there_at_once_and_half_a_line_waits():
    reading, writing = os.pipe()
    with open(reading, "rb") as stream:
        parcels = StreamFeed(stream, patience=0.01).read()
        assert next(parcels) is None
        for piece, rows in [
            (b"a,b", None),
            (b"\n", None),
            (b"1,2\n3,4\n5", [1.0, 3.0]),
            (b".5,6", None),
            (b"\n", [5.5]),
        ]:
            os.write(writing, piece)
            parcel = next(parcels)
            while rows is not None and parcel is None:
                parcel = next(parcels)
            assert (parcel and parcel.values["a"].tolist()) == rows
        os.close(writing)
        assert list(parcels) == []


def test_a_chunk_of_a_pipe_is_that_of_a_file():
    whole = b"y\n" + b"".join(b"%d.25\n" % k for k in range(10_000))
    seen = [chunk.values["y"] for chunk in chunks(StreamFeed(io.BytesIO(whole)), 999)]
    assert [len(y) for y in seen] == [999] * 10 + [10]
    assert np.concatenate(seen).tolist() == [k + 0.25 for k in range(10_000)]


@pytest.mark.parametrize(
    ("pieces", "parts"),
    [
        ([b"a,b\n1,2\n", b"3,4\n", b"5,x\n"], ["'x'", "row 2"]),
        ([b"a,b\n1,2\n", b"3,4\n", b"5\n"], ["ow 2", "1", "2"]),
        ([b"a,k\n1,2\n", b"1,2\n1,3.5\n"], ["'k'", "3.5", "row 2"]),
        ([b"a,b\n"], ["no rows"]),
        ([b"\n\n"], ["empty"]),
        ([b"1,2\n3,4\n"], ["no header"]),
    ],
)
def test_what_is_wrong_is_told_with_the_row_of_the_stream(pieces, parts):
    rows = CsvRows(Request(None, {"k": int} if b"k" in pieces[0] else {}))

    def read():
        for piece in pieces:
            yield from rows.add(piece)
        yield from rows.end()

    with pytest.raises(DataError) as caught:
        list(read())
    for part in parts:
        assert part in str(caught.value)


def test_a_forgotten_quote_ends_in_bounded_memory():
    records, size = Records(), 1 << 16
    assert records.add(b'a,b\n1,"2\n') == b"a,b\n"
    with pytest.raises(DataError, match="no end"):
        assert not any(records.add(b"3,4\n" * (size // 4)) for _ in range(300))


def test_a_quote_within_a_field_opens_nothing():
    assert Records().add(b'5" pipe,3\n4" pipe,2\n1') == b'5" pipe,3\n4" pipe,2\n'


@pytest.fixture
def short(monkeypatch):
    """Records of at most 4 kB, so that a forgotten quote is known to be one soon."""
    for module in (csv_pieces, csv_records, streams, line_blocks):
        for name in ("LONGEST_RECORD", "LONGEST_LINE"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, 4096)


def lenient_rows(text, size=1 << 16):
    """Values and lines of bad rows of a stream that comes in pieces of some bytes."""
    rows, bad = [], []
    for parcel in StreamFeed(Slow(text, size), Request(lenient=True)).read():
        rows += next(iter(parcel.values.values())).tolist()
        bad += [why.line for _, why in parcel.unread]
    return rows, bad


class Slow(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, text, size):
        super().__init__(text)
        self.size = size

    def read1(self, size=-1):
        return super().read1(min(size, self.size))


@pytest.mark.parametrize("size", [5, 1000, 1 << 16])
def test_a_forgotten_quote_on_a_pipe_is_one_bad_row_where_these_are_left_out(short, size):
    lines = [b"%d,1\n" % k for k in range(1200)]
    text = b"a,b\n" + b"".join(lines[:5]) + b'5,"1\n' + b"".join(lines[6:])
    rows, bad = lenient_rows(text, size)
    assert bad == [7]  # one header, five rows
    assert len(rows) == 1200
    assert np.isnan(rows[5])
    assert [row for row in rows if row == row] == [k for k in range(1200) if k != 5]


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_stray_quotes_on_a_pipe_are_what_they_are_in_a_file(tmp_path, size):
    text = b'a,b\n1,2\n3,"4\n5,6\n7,"8\n9,"x\ny"\n"10",11\n12,13"\n14,"15""\n16,17\n'
    (tmp_path / "rows.csv").write_bytes(text)
    file = open_feed(tmp_path / "rows.csv", on_bad_row="skip")
    (whole,) = chunks(file, 1000)
    (piped,) = chunks(StreamFeed(Slow(text, size), Request(lenient=True)), 1000)
    np.testing.assert_array_equal(piped.values["a"], whole.values["a"])
    assert [n for n, _ in piped.unread] == [n for n, _ in whole.unread]


@pytest.mark.parametrize("begins", [b"a,b\n1,2\n", b'{"a": 1, "b": 2}\n'])
def test_a_line_without_end_on_a_pipe_is_one_bad_row(short, begins):
    last = b"3,4\n" if begins.startswith(b"a") else b'{"a": 3, "b": 4}\n'
    for size in (100, 1 << 16):
        rows, bad = lenient_rows(begins + b"7,7" * 5000 + b"\n" + last, size)
        assert [rows[0], rows[-1]] == [1.0, 3.0]
        assert np.isnan(rows[1])
        assert len(rows) == 3
        assert bad == [begins.count(b"\n") + 1]
    with pytest.raises(DataError, match="no end"):
        list(StreamFeed(io.BytesIO(begins + b"7,7" * 5000)).read())


def test_a_byte_order_mark_hides_no_brace():
    text = b"\xef\xbb\xbf" + b'{"y": 1}\n{"y": 2}\n'
    assert [lenient_rows(text, size)[0] for size in (1, 2, 100)] == [[1.0, 2.0]] * 3
    assert lenient_rows(b"\xef\xbb\xbf" + b"y\n1\n", 1) == ([1.0], [])


def test_blank_lines_are_looked_at_once(monkeypatch):
    """Before and after the header; as many looks as there are texts that are not blank."""
    looks = []
    seen = csv_pieces.first_record
    monkeypatch.setattr(csv_pieces, "first_record", lambda text: looks.append(1) or seen(text))
    rows = CsvRows(Request())
    parcels = [list(rows.add(piece)) for piece in [b"\n"] * 500 + [b"y\n"] + [b"\n"] * 500]
    assert not any(parcels)
    (parcel,) = rows.add(b"1\n2\n")
    assert parcel.values["y"].tolist() == [1.0, 2.0]
    assert len(looks) <= 4


def test_blank_lines_without_end_are_told(short):
    with pytest.raises(DataError, match="blank"):
        list(StreamFeed(Slow(b"\n" * 10_000, 100)).read())
    with pytest.raises(DataError, match="no row yet"):
        list(StreamFeed(Slow(b"y\n" + b"\n" * 10_000, 100)).read())
