"""CSV on a pipe: rows as they come, whole records, types and row numbers as in a file."""

import io
import os

import numpy as np
import pytest

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.chunking import chunks
from weighbridge.data.feeds.csv_pieces import CsvRows, Records
from weighbridge.data.feeds.streams import StreamFeed
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
    rows, parcels = CsvRows(None, {"k": int}), []
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
    rows = CsvRows(None, {"k": int} if b"k" in pieces[0] else {})

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
