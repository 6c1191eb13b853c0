"""Files that are not what they seem: typed errors with short messages, in bounded work."""

import gzip
import io
import lzma
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weighbridge.core.errors import DataError
from weighbridge.data.sources import csv_header, csv_records
from weighbridge.data.sources.csv_records import Quotes, scan_quotes, whole_records
from weighbridge.data.sources.line_blocks import LONGEST_LINE, line_blocks
from weighbridge.data.sources.opening import open_source

ROW = b"1.5,2.5\n"


class CountingStream(io.BytesIO):
    """A stream that counts the bytes handed out."""

    taken = 0

    def read(self, size=-1):
        piece = super().read(size)
        self.taken += len(piece)
        return piece


class CountingText(bytearray):
    """Text that counts the bytes over which quotes are looked for."""

    looked_at = 0

    def find(self, what, start=0, end=None):
        found = super().find(what, start, len(self) if end is None else end)
        self.looked_at += (len(self) if found < 0 else found + 1) - start
        return found


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", 200)
    monkeypatch.setattr(csv_records, "LONGEST_RECORD", 1000)


def refuses(*parts):
    return pytest.raises(DataError, match="(?s)" + ".*".join(parts))


def read_all(path, **options):
    source = open_source(path, **options)
    return list(source.blocks())


def test_a_quote_is_followed_once_through_text_that_grows():
    text = CountingText(b'1,"2\n')
    quotes = Quotes()
    for _ in range(200):
        text += ROW * 10
        quotes = scan_quotes(text, quotes, ended=False)
    assert (quotes.opened, quotes.cut) == (2, 0)
    assert text.looked_at <= len(text) + 200  # the cube, and even the square, are far beyond


def test_a_stray_quote_names_its_line_and_shows_little(small):
    stream = CountingStream(ROW * 50 + b'1,"2\n' + ROW * 10_000)
    with refuses("quote that opens in line 52", "not closed in the 1,000 bytes") as refused:
        list(whole_records(stream, 0, 2))
    assert len(str(refused.value)) < 200
    assert stream.taken < 2500  # not the 80,000 bytes after it


def test_a_quote_at_the_end_of_a_file_does_not_swallow_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'x,note\n1,a\n2,"b\n3,c\n4,d\n')  # the column is not even read
    with refuses("a.csv", "line 3", "not closed"):
        read_all(path)
    source = open_source(path, on_bad_row="skip")
    assert np.concatenate([block["x"] for block in source.blocks()]).tolist()[:1] == [1.0]
    assert [row.line for row in source.unread.values()] == [3]


def test_two_stray_quotes_do_not_swallow_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'x,note\n1,"a\n2,b\n3,"c\n4,d\n')
    with refuses("line 2", "closed inside a field of line 4"):
        read_all(path)
    source = open_source(path, on_bad_row="skip")
    x = np.concatenate([block["x"] for block in source.blocks()])
    np.testing.assert_array_equal(x, [np.nan, 2, np.nan, 4])


def test_quotes_within_fields_and_quoted_lines_are_read_as_before(tmp_path, small):
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,note\n" + b'1,5" pipe\n"2","two\n""lines"", here"\n' * 50)
    x = np.concatenate([block["x"] for block in read_all(path)])
    assert x.tolist() == [1, 2] * 50


@pytest.mark.parametrize("text", [b"7" * 5000, b"\0" * 5000])
def test_a_line_that_is_too_long(small, tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,y\n1,2\n" + text + b"\n3,4\n")
    with refuses("Line 3 is longer than") as refused:
        read_all(path)
    assert len(str(refused.value)) < 300
    x = np.concatenate([block["x"] for block in read_all(path, on_bad_row="skip")])
    np.testing.assert_array_equal(x, [1, np.nan, 3])


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.csv", "x\n1\n")
    return file.getvalue()


TEXT = b"x,y\n" + ROW * 10


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (gzip.compress(TEXT), "compressed with gzip"),
        (lzma.compress(TEXT), "compressed with xz"),
        (b"\x28\xb5\x2f\xfd" + bytes(40), "compressed with zstd"),
        (zipped(), "a zip archive"),
        (TEXT.decode().encode("utf-16"), "UTF-16"),
        (TEXT.decode().encode("utf-16-le"), "NUL bytes"),
        (TEXT.replace(b"\n", b"\r"), "only a carriage return"),
        (b'x,"y\n' + ROW * 2000, "header, line 1, is never closed"),
        (b'x,"y\n1,2\n', "header, line 1, is never closed"),
        (b"x," + b"y" * 200_000 + b"\n1,2\n", "header cannot be read"),
    ],
    # Not by the bytes: an archive holds the time at which it was made.
    ids=["gzip", "xz", "zstd", "zip", "UTF-16", "NUL", "CR", "long quote", "quote", "long name"],
)
def test_what_is_no_csv_is_called_what_it_is(tmp_path, content, told):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    for policy in ("raise", "skip"):
        with refuses("a.csv", told) as refused:
            open_source(path, on_bad_row=policy)
        assert len(str(refused.value)) < 400


def test_a_header_without_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_header, "LONGEST_RECORD", 1000)
    path = tmp_path / "a.csv"
    path.write_bytes(b"x" * 5000)
    with refuses("header is longer than"):
        open_source(path)


def test_very_many_columns_must_be_named(tmp_path):
    names = [f"c{i}" for i in range(csv_header.MOST_COLUMNS + 1)]
    path = tmp_path / "a.csv"
    path.write_text(",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n")
    with refuses("32,769 columns", "Name those"):
        open_source(path)
    with refuses("no column 'nothing'", "and 32,749 more") as refused:
        open_source(path, columns=["nothing"])
    assert len(str(refused.value)) < 400
    assert read_all(path, columns=["c7"])[0]["c7"].tolist() == [1]


def test_long_fields_are_read_and_shown_short(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,note\n1," + b"a" * 200_000 + b"\n2,b\n")
    assert read_all(path)[0]["x"].tolist() == [1, 2]
    for row in (b"b" * 200_000 + b",c\n", b"3,4," + b"5" * 200_000 + b"\n"):
        path.write_bytes(b"x,note\n1,a\n" + row)
        with refuses("line 3") as refused:
            read_all(path, columns=["x"])
        assert len(str(refused.value)) < 500


def claim(shape, content):
    header = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    return header.getvalue() + content


def test_an_archive_that_claims_more_than_it_has(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", claim((250_000_000_000,), bytes(80)))
    with refuses("a.npz", "2,000,000,000,000 bytes", "damaged"):
        open_source(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", claim((10,), bytes(80)))
    assert len(read_all(path)[0]["x"]) == 10


def test_an_archive_that_would_unpack_to_very_much(tmp_path, monkeypatch):
    monkeypatch.setattr("weighbridge.data.sources.npz_file.ALWAYS_UNPACKED", 1 << 20)
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(1 << 18))
    with refuses("a.npz", "2,097", "when unpacked"):
        open_source(path)
    np.savez(path, x=np.zeros(1 << 18))
    assert len(read_all(path)[0]["x"]) == 1 << 18


def test_damaged_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    x = np.random.default_rng(0).normal(size=3000)
    pq.write_table(pa.table({"x": x}), path, row_group_size=1000, write_page_checksum=True)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with refuses("a.parquet", "damaged"):
        open_source(path)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(64) + whole[middle + 64 :])
    with refuses("a.parquet", "damaged"):
        read_all(path)
    first = next(open_source(path, on_bad_row="skip").blocks())
    np.testing.assert_array_equal(first["x"], x[:1000])


def test_a_line_of_json_that_is_too_long(monkeypatch, tmp_path):
    monkeypatch.setattr("weighbridge.data.sources.line_blocks.BLOCK_BYTES", 100)
    monkeypatch.setattr("weighbridge.data.sources.line_blocks.LONGEST_LINE", 1000)
    path = tmp_path / "a.jsonl"
    lines = [
        b'{"x": 1}\n',
        b'{"x": 2}' + b" " * 5000 + b"\n",
        b'{"x": 3}\n',
        b'{"x": 4}' + b" " * 2000,
    ]
    path.write_bytes(b"".join(lines))
    with refuses("a.jsonl", "Line 2 cannot be used", "longer than"):
        read_all(path)
    x = np.concatenate([block["x"] for block in read_all(path, on_bad_row="skip")])
    np.testing.assert_array_equal(x, [1, np.nan, 3, np.nan])
    with open(path, "rb") as file:
        blocks = list(line_blocks(file))
        assert [line.byte for block in blocks for line in block.lines] == [0, 9, 5018, 5027]
        again = list(line_blocks(file, {"byte": blocks[-1].byte, "line": blocks[-1].line}))
    assert again == blocks[-1:]
    assert LONGEST_LINE == 16 << 20


@pytest.mark.parametrize(
    "value", ["[" * 100_000 + "]" * 100_000, "[" * 900 + "]" * 900, "9" * 5000, "9" * 400, "\0"]
)
def test_values_of_json_that_are_no_numbers(tmp_path, value):
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n{"x": ' + value + '}\n{"x": 3}\n')
    with refuses("a.jsonl", "Line 2 cannot be used") as refused:
        read_all(path)
    assert len(str(refused.value)) < 400
    x = np.concatenate([block["x"] for block in read_all(path, on_bad_row="skip")])
    np.testing.assert_array_equal(x, [1, np.nan, 3])


def test_a_member_of_an_archive_that_is_no_array_is_no_column(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, y=np.arange(3.0))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("read me", "words")
    source = open_source(path)
    assert [list(block) for block in source.blocks()] == [["y"]]
    assert source.ignored_columns == ["read me"]
    with refuses("a.npz", "'read me' is not an array"):
        open_source(path, columns=["read me"])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("read me", "words")
    with refuses("a.npz", "No column holds numbers"):
        open_source(path)
