"""Places in a source that were crafted: out of the folder, behind what was weighed, beyond it."""

import copy
import json
import os

import numpy as np
import pytest

from tests.helpers.crafting import WRONG, changed, places
from weighbridge import CheckpointError, DataError, WeighbridgeError
from weighbridge.data.feeds.chunking import chunks
from weighbridge.data.feeds.continuity import Continuity
from weighbridge.data.feeds.cursors import check_not_behind, rows_before
from weighbridge.data.feeds.directory import DirectoryFeed
from weighbridge.data.feeds.iterables import IterableFeed
from weighbridge.data.feeds.opening import open_feed

NAMES = ["../other.csv", "/etc/hostname", "a/../../b.csv", "..", ".", "", "a\0.csv", "\ud800.csv"]


def write_csv(path, numbers):
    path.write_text("y\n" + "".join(f"{number}\n" for number in numbers))


def write_lines(path, numbers):
    path.write_text("".join(json.dumps({"y": number}) + "\n" for number in numbers))


@pytest.fixture
def folder(tmp_path):
    watched = tmp_path / "watched"
    watched.mkdir()
    write_csv(watched / "a.csv", range(5))
    write_csv(watched / "b.csv", range(5, 9))
    write_csv(tmp_path / "other.csv", range(100, 110))
    return watched


def feeds_of(tmp_path, folder):
    write_lines(tmp_path / "rows.jsonl", range(9))
    return {
        "memory": open_feed(np.arange(9.0)),
        "list": IterableFeed([np.arange(5.0), np.arange(5.0, 9.0)]),
        "folder": DirectoryFeed(folder),
        "files": open_feed([folder / "a.csv", folder / "b.csv"]),
        "lines": open_feed(tmp_path / "rows.jsonl"),
    }


def column(values):
    return values["y"] if isinstance(values, dict) else values


def rows_of(feed, cursor):
    return [float(y) for chunk in chunks(feed, 3, cursor) if chunk for y in column(chunk.values)]


@pytest.mark.parametrize("name", NAMES)
def test_a_cursor_does_not_lead_out_of_the_folder(folder, name):
    feed = DirectoryFeed(folder)
    cursor = {**next(chunks(feed, 3)).cursor, "name": name}
    with pytest.raises(DataError, match="This is no place in files in"):
        chunks(feed, 3, cursor)


@pytest.mark.skipif(os.name == "nt", reason="no such names there")
@pytest.mark.parametrize("name", [b"m\xff\xfe.csv", b"m\\n.csv", b"m\x1b[2J.csv"])
def test_a_run_on_files_with_odd_names_can_be_resumed(folder, name):
    """What the system allows as a name is a place, and an identifier that was seen."""
    write_csv(folder / os.fsdecode(name), range(9, 20))
    feed, continuity = DirectoryFeed(folder), Continuity()
    stream = chunks(feed, 10, None, continuity)
    first = next(stream)
    plain = json.loads(json.dumps([first.cursor, stream.continuity_state]))
    again = Continuity()
    again.restore(plain[1])
    rest = chunks(feed, 10, plain[0], again)
    assert [float(y) for chunk in rest for y in column(chunk.values)] == list(range(10, 20))


@pytest.mark.parametrize("kind", ["memory", "list", "folder", "files", "lines"])
def test_any_crafted_cursor_is_refused_or_a_place(tmp_path, folder, kind):
    """Rows that are read from it are some of the source's own, and none of them twice."""
    feed = feeds_of(tmp_path, folder)[kind]
    cursor = next(chunks(feed, 3)).cursor
    assert rows_of(feed, cursor) == list(map(float, range(3, 9)))
    tried = 0
    for path in places(cursor):
        for wrong in (*WRONG, "missing"):
            tried += 1
            try:
                found = rows_of(feed, changed(copy.deepcopy(cursor), path, wrong))
            except WeighbridgeError:
                continue
            except Exception as error:
                raise AssertionError(f"{path}: {wrong} raised {error!r}") from error
            assert set(found) <= set(range(9))
            assert len(set(found)) == len(found)
    assert tried >= 15


def test_an_offset_beyond_a_block_loses_no_rows_silently(folder):
    feed = DirectoryFeed(folder)
    cursor = {**next(chunks(feed, 3)).cursor, "offset": 6}
    with pytest.raises(DataError, match="5 rows in a block, but reading should continue at row 6"):
        list(chunks(feed, 3, cursor))


def test_a_place_behind_what_was_weighed_is_refused(tmp_path, folder):
    for kind, feed in feeds_of(tmp_path, folder).items():
        cursor = next(chunks(feed, 3)).cursor
        check_not_behind(cursor, 3, feed.describe())
        if kind in ("folder", "lines"):  # a file of theirs may have been replaced since
            assert rows_before(cursor) is None
            continue
        with pytest.raises(CheckpointError, match="some would count twice"):
            check_not_behind(cursor, 4, feed.describe())


@pytest.mark.parametrize(
    "stretches",
    [[[5, 3]], [[5, 9], [1, 2]], [[1, 4], [3, 9]], [[1, 2], [3, 4]], [[1]], 7, [["1", 2]]],
)
def test_identifiers_that_do_not_ascend_are_refused(stretches):
    """Else one that came before would be taken again."""
    continuity = Continuity()
    with pytest.raises(ValueError, match="identifiers"):
        continuity.restore({"texts": [], "stretches": stretches})
    with pytest.raises(ValueError, match="identifiers"):
        continuity.restore({"texts": ["a", "a"], "stretches": []})
