"""Feeds in memory, files that grow, and files under two names."""

import os

import numpy as np
import pytest

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.file_identity import mark_file, mark_of
from weighbridge.data.feeds.growing_file import QUIET_LOOKS, GrowingFile, RewrittenError
from weighbridge.data.feeds.memory import MemoryFeed
from weighbridge.data.feeds.same_file import name_before
from weighbridge.data.feeds.taken import TakenFile, TakenFiles


def test_rows_in_memory_are_read_from_any_row():
    feed = MemoryFeed(np.arange(5.0))
    assert (feed.seekable, feed.num_rows, feed.describe()) == (True, 5, "5 rows in memory")
    (parcel,) = feed.read({"offset": 3})
    assert parcel.values.tolist() == [3.0, 4.0]
    for offset in (-1, 6, "3"):
        with pytest.raises(DataError, match="no place in"):
            feed.read({"offset": offset})


def test_a_file_is_read_while_it_grows_and_until_another_takes_its_name(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    file = GrowingFile(os.open(path, os.O_RDONLY), path, None, patience=0.0)
    assert (file.read(100), file.read(100)) == (b"one\n", None)
    with open(path, "ab") as more:
        more.write(b"two\n")
    assert file.has_grown()
    assert file.read(100) == b"two\n"
    path.rename(tmp_path / "log.1")
    path.write_bytes(b"three\n")
    assert [file.read(100) for _ in range(QUIET_LOOKS + 1)] == [None] * QUIET_LOOKS + [b""]
    file.close()


def test_a_rewritten_file_is_noticed(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    file = GrowingFile(os.open(path, os.O_RDONLY), path, None, patience=0.0)
    file.read(100)
    path.write_bytes(b"1\n")
    with pytest.raises(RewrittenError):
        file.read(100)
    file.close()


def test_a_renamed_file_is_known_by_its_first_bytes(tmp_path):
    before, after = tmp_path / "a.csv", tmp_path / "b.csv"
    before.write_text("y\n1\n")
    with open(before, "rb") as file:
        mark = mark_of(file.fileno(), 4)
    taken = TakenFiles(None)
    taken.files["a.csv"] = TakenFile(mark, None)
    before.rename(after)
    with open(after, "a") as file:
        file.write("2\n")
    assert name_before(after, mark_file(after), taken) == "a.csv"
    other = tmp_path / "c.csv"
    other.write_text("y\n1\n2\n")
    assert name_before(other, mark_file(other), taken) is None
