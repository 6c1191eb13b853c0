"""Feeds of directories in rough weather: files that grow, change and vanish, and odd entries."""

import json
import os
import shutil
import socket

import numpy as np
import pytest

from weighbridge.core.errors import DataError
from weighbridge.data.feeds import directory, looking, taken
from weighbridge.data.feeds.chunking import chunks
from weighbridge.data.feeds.continuity import Continuity
from weighbridge.data.feeds.directory import DirectoryFeed
from weighbridge.data.feeds.looking import Looks
from weighbridge.data.feeds.opening import open_feed


@pytest.fixture(autouse=True)
def look_every_time(monkeypatch):
    monkeypatch.setattr(looking, "LOOK_PAUSE", 0)  # however busy the machine is


def write(path, start, stop, mode="w"):
    with open(path, mode) as file:
        if mode == "w" and ".csv" in path.name:
            file.write("y\n")
        for i in range(start, stop):
            file.write(f"{i}.5\n" if ".csv" in path.name else f'{{"y": {i}.5}}\n')


def rows(start, stop):
    return [i + 0.5 for i in range(start, stop)]


def follow(folder, settle=0.0):
    return DirectoryFeed(folder, follow=True, settle=settle, patience=0.001)


def drain(stream, looks=8):
    """What comes until nothing new has come for some looks: the chunks, and the notices."""
    found, notices, quiet = [], [], 0
    while quiet < looks:
        chunk = next(stream)
        quiet = quiet + 1 if chunk is None else 0
        if chunk is not None:
            found.append(chunk)
            notices += chunk.notices
    return found, notices + list(stream.take_notices())


def values_of(found):
    return [value for chunk in found for value in chunk.values["y"].tolist()]


def plain(cursor):
    return json.loads(json.dumps(cursor))


def texts_of(notices):
    return [(notice.kind, notice.identifier) for notice in notices]


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_rows_appended_to_the_newest_file_are_read_on_and_a_resumed_run_sees_the_same(
    ending, tmp_path
):
    stream = chunks(follow(tmp_path), 3, None, Continuity())
    first, second = tmp_path / f"a{ending}", tmp_path / f"b{ending}"
    found, told = [], []
    steps = [
        lambda: write(first, 0, 4),
        lambda: write(first, 4, 9, "a"),
        lambda: write(first, 9, 10, "a"),
        lambda: (write(first, 10, 13, "a"), write(second, 13, 16)),
        lambda: write(second, 16, 20, "a"),
        lambda: write(tmp_path / f"c{ending}", 20, 24),
    ]
    for step in steps:
        step()
        more, notices = drain(stream)
        found, told = found + more, told + notices
    assert values_of(found) == rows(0, 24)
    assert told == []
    for number, chunk in enumerate(found):
        for feed in (follow(tmp_path), open_feed(tmp_path)):
            resumed = chunks(feed, 3, plain(chunk.cursor))
            rest = drain(resumed)[0] if feed.follow else list(resumed)
            assert values_of(rest) == rows(3 * number + 3, 24)
            assert not any(one.notices for one in rest)


def test_rows_appended_to_an_earlier_file_are_read_and_the_order_is_told(tmp_path):
    write(tmp_path / "a.csv", 0, 4)
    write(tmp_path / "b.csv", 4, 8)
    stream = chunks(follow(tmp_path), 2)
    found, _ = drain(stream)
    write(tmp_path / "a.csv", 8, 12, "a")
    more, told = drain(stream)
    assert values_of(found + more) == rows(0, 12)
    assert texts_of(told) == [("changed", "a.csv")]
    assert "after b.csv was taken" in told[0].text
    write(tmp_path / "c.csv", 12, 14)
    found += more + drain(stream)[0]
    assert values_of(found) == rows(0, 14)
    # Within the appended rows and after them the cursor knows what was read of every file.
    for number in (3, 4, 5, 6):
        rest, told = drain(chunks(follow(tmp_path), 2, plain(found[number].cursor)))
        assert values_of(rest) == rows(2 * number + 2, 14)


def test_a_file_that_was_not_followed_goes_on_in_the_next_run(tmp_path):
    write(tmp_path / "a.csv", 0, 4)
    write(tmp_path / "b.csv", 4, 8)
    found = list(chunks(open_feed(tmp_path), 4))
    write(tmp_path / "a.csv", 10, 14, "a")
    write(tmp_path / "b.csv", 8, 10, "a")
    rest = list(chunks(open_feed(tmp_path), 4, plain(found[-1].cursor)))
    assert values_of(rest) == rows(8, 14)
    assert list(chunks(open_feed(tmp_path), 4, plain(rest[-1].cursor))) == []


def test_a_file_with_a_header_alone_is_read_when_rows_come(tmp_path):
    write(tmp_path / "a.csv", 0, 0)
    write(tmp_path / "b.csv", 0, 2)
    stream = chunks(follow(tmp_path), 2)
    found, told = drain(stream)
    assert texts_of(told) == [("gap", "a.csv")]
    write(tmp_path / "a.csv", 2, 4, "a")
    assert values_of(found + drain(stream)[0]) == rows(0, 4)


def test_a_last_line_that_is_completed_after_it_was_read_is_told(tmp_path):
    (tmp_path / "a.csv").write_text("y\n0.5\n1")
    stream = chunks(follow(tmp_path), 1)
    assert values_of(drain(stream)[0]) == [0.5, 1.0]
    with open(tmp_path / "a.csv", "a") as file:
        file.write(".5\n2.5")
    found, told = drain(stream)
    assert values_of(found) == [2.5]
    assert texts_of(told) == [("changed", "a.csv")]
    assert "had no end" in told[0].text
    with open(tmp_path / "a.csv", "a") as file:
        file.write("\n3.5\n")
    found, told = drain(stream)
    assert (values_of(found), told) == ([3.5], [])


def rewrite_in_place(path):
    with open(path, "r+") as file:
        file.write("y\n9.5\n9.5\n9.5\n9.5\n")


def rewrite_longer(path):
    path.write_text("y\n" + "9.5\n" * 6)


def cut(path):
    os.truncate(path, 6)


def replace(path):
    path.with_suffix(".tmp").write_text("y\n9.5\n")
    os.replace(path.with_suffix(".tmp"), path)


@pytest.mark.parametrize("change", [rewrite_in_place, rewrite_longer, cut, replace])
def test_a_file_replaced_after_it_was_read_is_told_and_not_read_again(change, tmp_path):
    write(tmp_path / "a.csv", 0, 4)
    write(tmp_path / "b.csv", 4, 6)
    stream = chunks(follow(tmp_path), 2)
    found, _ = drain(stream)
    change(tmp_path / "a.csv")
    write(tmp_path / "c.csv", 6, 8)
    more, told = drain(stream)
    assert values_of(found + more) == rows(0, 8)
    assert texts_of(told) == [("gap", "a.csv")]
    assert "not what it was" in told[0].text
    for number, seen in ((0, rows(4, 8)), (2, rows(6, 8))):  # within a.csv, and after it
        for feed in (follow(tmp_path), open_feed(tmp_path)):
            resumed = chunks(feed, 2, plain(found[number].cursor))
            rest, told = drain(resumed) if feed.follow else (list(resumed), None)
            assert values_of(rest) == seen
            told = [n for c in rest for n in c.notices] if told is None else told
            assert texts_of(told) == [("gap", "a.csv")]


def test_a_longer_copy_in_the_place_of_a_file_is_read_on(tmp_path):
    write(tmp_path / "a.csv", 0, 4)
    stream = chunks(follow(tmp_path), 2)
    found, _ = drain(stream)
    shutil.copy(tmp_path / "a.csv", tmp_path / ".a.csv.x")  # as rsync does it
    write(tmp_path / ".a.csv.x", 4, 6, "a")
    os.replace(tmp_path / ".a.csv.x", tmp_path / "a.csv")
    more, told = drain(stream)
    assert values_of(found + more) == rows(0, 6)
    assert told == []
    os.utime(tmp_path / "a.csv")
    assert drain(stream) == ([], [])


@pytest.mark.parametrize("again", [os.rename, os.link])
def test_a_file_that_comes_again_under_a_later_name_counts_once(again, tmp_path):
    write(tmp_path / "a.csv", 0, 4)
    write(tmp_path / "b.csv", 4, 6)
    stream = chunks(follow(tmp_path), 2)
    found, _ = drain(stream)
    again(tmp_path / "a.csv", tmp_path / "c.csv")
    more, told = drain(stream)
    assert (more, texts_of(told)) == ([], [("duplicate", "c.csv")])
    assert "read as a.csv" in told[0].text
    write(tmp_path / "c.csv", 6, 8, "a")  # it is one file, and what is appended counts once too
    write(tmp_path / "d.csv", 8, 10)
    found += drain(stream)[0]
    assert values_of(found) == rows(0, 10)
    for number in range(2, 5):
        rest, _ = drain(chunks(follow(tmp_path), 2, plain(found[number].cursor)))
        assert values_of(rest) == rows(2 * number + 2, 10)


def test_a_file_renamed_while_it_was_half_read_is_read_on(tmp_path):
    write(tmp_path / "a.csv", 0, 4)
    write(tmp_path / "b.csv", 4, 6)
    found, _ = drain(chunks(follow(tmp_path), 2))
    os.rename(tmp_path / "a.csv", tmp_path / "c.csv")
    rest, told = drain(chunks(follow(tmp_path), 2, plain(found[0].cursor)))
    assert values_of(rest) == rows(2, 6)
    assert texts_of(told) == [("duplicate", "c.csv")]
    assert "read as a.csv" in told[0].text
    for number, chunk in enumerate(rest):
        again, _ = drain(chunks(follow(tmp_path), 2, plain(chunk.cursor)))
        assert values_of(again) == rows(2 * number + 4, 6)


def test_a_new_file_of_the_same_text_is_read(tmp_path):
    """Even if it has the inode of one that is gone: its time of writing is another."""
    write(tmp_path / "a.csv", 0, 2)
    stream = chunks(follow(tmp_path), 2)
    found, _ = drain(stream)
    os.rename(tmp_path / "a.csv", tmp_path / "b.csv")
    os.utime(tmp_path / "b.csv", ns=(10**18, 10**18))
    more, told = drain(stream)
    assert values_of(found + more) == rows(0, 2) * 2
    assert told == []


def test_a_late_file_is_told_also_if_it_came_while_nobody_watched_and_another_went(tmp_path):
    for i, name in enumerate("bdf"):
        write(tmp_path / f"{name}.csv", 2 * i, 2 * i + 2)
    found, _ = drain(chunks(follow(tmp_path), 2))
    os.unlink(tmp_path / "b.csv")
    write(tmp_path / "c.csv", 6, 8)
    os.utime(tmp_path / "c.csv", ns=(10**18, 10**18))  # it was written long ago
    rest, told = drain(chunks(follow(tmp_path), 2, plain(found[-1].cursor)))
    assert (rest, texts_of(told)) == ([], [("gap", "c.csv")])
    assert "sorts before it: not read" in told[0].text


def test_a_changed_file_that_cannot_be_appended_to_is_told(tmp_path):
    np.savez(tmp_path / "a.npz", y=np.arange(4.0))
    stream = chunks(follow(tmp_path), 4)
    found, _ = drain(stream)
    np.savez(tmp_path / "a.npz", y=np.arange(8.0))
    more, told = drain(stream)
    assert (more, texts_of(told)) == ([], [("gap", "a.npz")])
    rest, told = drain(chunks(follow(tmp_path), 4, plain(found[0].cursor)))
    assert (rest, texts_of(told)) == ([], [("gap", "a.npz")])


def test_a_line_that_is_half_there_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    write(path, 0, 2)
    original = directory.read_parcels
    torn = iter([".5\n3.5\n4", ".5\n"])

    def grow_while_reading(*arguments):
        for piece in torn:
            with open(path, "a") as file:
                file.write("2" + piece if piece.startswith(".5\n3") else piece)
            break
        yield from original(*arguments)

    monkeypatch.setattr(directory, "read_parcels", grow_while_reading)
    found, told = drain(chunks(follow(tmp_path), 1))
    assert values_of(found) == rows(0, 5)
    assert told == []


def test_a_file_replaced_while_it_is_read_is_told(tmp_path, monkeypatch):
    original = directory.read_parcels

    def replace_while_reading(path, *others):
        yield from original(path, *others)
        if path.name == "a.csv":
            replace(path)

    monkeypatch.setattr(directory, "read_parcels", replace_while_reading)
    write(tmp_path / "a.csv", 0, 2)
    write(tmp_path / "b.csv", 2, 4)
    found, told = drain(chunks(follow(tmp_path), 1))
    assert values_of(found) == rows(2, 4)
    assert texts_of(told) == [("gap", "a.csv")]


def test_the_cursor_stays_small_and_what_it_has_forgotten_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(taken, "REMEMBERED", 3)
    for i in range(9):
        write(tmp_path / f"{i}.csv", i, i + 1)
    stream = chunks(follow(tmp_path), 1)
    found, _ = drain(stream)
    assert len(found[-1].cursor["remembered"]) == 3
    write(tmp_path / "1.csv", 50, 51, "a")
    write(tmp_path / "8.csv", 9, 10, "a")
    more, told = drain(stream)
    assert values_of(more) == rows(9, 10)
    assert texts_of(told) == [("gap", "1.csv")]
    os.utime(tmp_path / "1.csv", ns=(2 * 10**18, 2 * 10**18))
    rest, told = drain(chunks(follow(tmp_path), 1, plain(more[-1].cursor)))
    assert (rest, texts_of(told)) == ([], [("gap", "1.csv")])


def test_odd_entries_are_told_and_passed_over(tmp_path):
    write(tmp_path / "a.csv", 0, 2)
    os.symlink("b.csv", tmp_path / "b.csv")
    os.mkfifo(tmp_path / "c.csv")
    os.symlink("c.csv", tmp_path / "cc.csv")
    (tmp_path / "d.csv").mkdir()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.path.relpath(tmp_path / "e.csv"))
    write(tmp_path / "f\x1b[2J\n.csv", 2, 4)
    write(tmp_path / os.fsdecode(b"g\xff.csv"), 4, 6)
    os.symlink("nowhere", tmp_path / "h.csv")
    for feed in (follow(tmp_path), open_feed(tmp_path)):
        stream = chunks(feed, 2, None, Continuity())
        found, told = drain(stream) if feed.follow else (list(stream), None)
        told = [n for c in found for n in c.notices] if told is None else told
        assert values_of(found) == rows(0, 6)
        assert sorted(texts_of(told)) == [
            ("unreadable", name) for name in ("b.csv", "c.csv", "cc.csv", "d.csv", "e.csv")
        ]
        rest = chunks(open_feed(tmp_path), 2, plain(found[1].cursor))
        assert values_of(rest) == rows(4, 6)
    listening.close()
    write(tmp_path / "f\x1b[2J\n.csv", 9, 11)
    told = [n for c in chunks(open_feed(tmp_path), 2, plain(found[1].cursor)) for n in c.notices]
    assert told[0].text.startswith("'f\\x1b[2J\\n.csv' is not what it was")


def test_a_file_without_permission_is_told_and_passed_over(tmp_path, monkeypatch):
    for i, name in enumerate("abc"):
        write(tmp_path / f"{name}.csv", 2 * i, 2 * i + 2)
    original = os.open

    def refuse(path, *others, **more):  # the tests may run as a user who may read everything
        if os.fspath(path).endswith("b.csv"):
            raise PermissionError(13, "Permission denied")
        return original(path, *others, **more)

    monkeypatch.setattr(os, "open", refuse)
    found, told = drain(chunks(follow(tmp_path), 2))
    assert values_of(found) == rows(0, 2) + rows(4, 6)
    assert [notice.text for notice in told] == [
        "b.csv cannot be read (Permission denied): it is passed over."
    ]


def test_a_directory_that_is_gone_for_a_moment_is_waited_for(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a.csv", 0, 2)
    write(folder / "b.csv", 2, 4)
    stream = chunks(follow(folder), 2)
    found, _ = drain(stream)
    os.rename(folder, tmp_path / "away")
    more, told = drain(stream)
    assert more == []
    assert ["waited for" in notice.text for notice in told] == [True]
    write(tmp_path / "away" / "b.csv", 4, 6, "a")
    write(tmp_path / "away" / "c.csv", 6, 8)
    os.rename(tmp_path / "away", folder)
    more, told = drain(stream)
    assert values_of(found + more) == rows(0, 8)
    assert ["there again" in notice.text for notice in told] == [True]
    # One that comes back empty first does not make its old files new ones.
    shutil.move(folder, tmp_path / "away")
    folder.mkdir()
    drain(stream)
    for name in ("a.csv", "b.csv", "c.csv"):
        shutil.copy2(tmp_path / "away" / name, folder / name)
    assert drain(stream) == ([], [])
    shutil.rmtree(folder)
    with pytest.raises(DataError, match="cannot be read"):
        Looks(folder, 0.0, 0.0, follow=False).next(taken.TakenFiles(None))


def test_older_cursors_still_work(tmp_path):
    write(tmp_path / "a.csv", 0, 2)
    write(tmp_path / "b.csv", 2, 6)
    write(tmp_path / "c.csv", 6, 8)
    old = {"name": "b.csv", "taken": 1, "columns": ["y"], "byte": 0, "row": 0, "offset": 2}
    found = list(chunks(open_feed(tmp_path), 2, old))
    assert values_of(found) == rows(4, 8)
    assert not any(chunk.notices for chunk in found)
    assert values_of(chunks(open_feed(tmp_path), 2, plain(found[0].cursor))) == rows(6, 8)


def test_a_crafted_cursor_leads_nowhere_else(tmp_path):
    (tmp_path / "in").mkdir()
    write(tmp_path / "secret.csv", 0, 2)
    write(tmp_path / "in" / "a.csv", 0, 2)
    (good,) = chunks(open_feed(tmp_path / "in"), 2)
    for change in [
        {"name": "../secret.csv"},
        {"name": str(tmp_path / "secret.csv")},
        {"name": ".."},
        {"name": 3},
        {"last": "../a.csv"},
        {"taken": -1},
        {"taken": "1"},
        {"offset": -1},
        {"byte": -5},
        {"columns": "y"},
        {"mark": [1, 2]},
        {"mark": [1, -2, 3, "x"]},
        {"remembered": [["../secret.csv", list(good.cursor["mark"]), None]]},
        {"remembered": [["b.csv", [1, 2, 3], None]]},
        {"remembered": [["b.csv", list(good.cursor["mark"]), {"byte": 1}]]},
    ]:
        with pytest.raises(DataError, match="no place in"):
            list(chunks(open_feed(tmp_path / "in"), 2, good.cursor | change))


def test_the_next_file_waits_for_one_that_is_growing_but_not_for_ever(tmp_path):
    write(tmp_path / "a.csv", 0, 2)
    feed = follow(tmp_path, settle=0.03)
    stream = chunks(feed, 2)
    found = drain(stream, 60)[0]
    write(tmp_path / "a.csv", 2, 4, "a")
    write(tmp_path / "b.csv.tmp", 4, 6)
    os.rename(tmp_path / "b.csv.tmp", tmp_path / ".b.csv")
    next(stream)
    os.rename(tmp_path / ".b.csv", tmp_path / "b.csv")  # complete at once
    found += drain(stream, 100)[0]
    assert values_of(found)[:4] == rows(0, 4)
    write(tmp_path / "c.csv", 6, 8)
    more = []
    for i in range(1000):
        write(tmp_path / "b.csv", 100 + i, 101 + i, "a")  # without a pause
        chunk = next(stream)
        if chunk is not None:
            more.append(chunk)
            break
    assert values_of(more) == rows(6, 8)


def test_a_file_that_never_stands_still_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(looking, "LONG_AGO", 0.0)
    stream = chunks(follow(tmp_path, settle=1e-3), 2)
    told = []
    while not told:
        write(tmp_path / "a.csv", 0, 1, "a")
        assert next(stream) is None
        told = stream.take_notices()
    assert "all the time" in told[0].text
