"""A followed file of JSON lines that is rotated: by a new name, or by a copy and a cut."""

import json
import os
import shutil

import pytest

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.chunking import chunks
from weighbridge.data.feeds.continuity import Continuity
from weighbridge.data.feeds.json_lines import JsonLinesFeed
from weighbridge.data.sources import line_blocks
from weighbridge.data.sources.requested_columns import Request


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 60)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.jsonl"


def write(path, start, stop, end="\n"):
    with open(path, "a") as file:
        file.write("\n".join(f'{{"y": {i}.5, "n": {i}}}' for i in range(start, stop)) + end)


def rows(start, stop):
    return [i + 0.5 for i in range(start, stop)]


def follow(path, *, lenient=False, identifier=None):
    request = Request(lenient=lenient)
    return JsonLinesFeed(path, request, follow=True, identifier=identifier, patience=0.0)


def drain(stream, looks=20):
    """What comes until nothing new has come for some looks: the chunks, and the notices."""
    found, notices, quiet = [], [], 0
    while quiet < looks:
        chunk = next(stream)
        quiet = quiet + 1 if chunk is None else 0
        if chunk is not None:
            found.append(chunk)
            notices += chunk.notices
    return found, [notice.text for notice in notices + list(stream.take_notices())]


def values_of(found):
    return [value for chunk in found for value in chunk.values["y"].tolist()]


def resumed(path, cursor, **options):
    return drain(chunks(follow(path, **options), 1, json.loads(json.dumps(cursor))))


def rename(log, number=1):
    """As logrotate does it, with numbers."""
    for k in range(number, 0, -1):
        if os.path.exists(f"{log}.{k}"):
            os.rename(f"{log}.{k}", f"{log}.{k + 1}")
    os.rename(log, f"{log}.1")


@pytest.mark.parametrize("identifier", [None, "n"])
def test_a_renamed_log_is_finished_and_the_new_one_is_read(log, identifier):
    write(log, 0, 6)
    stream = chunks(follow(log, identifier=identifier), 2, None, Continuity())
    found, told = drain(stream)
    write(log, 6, 8)
    rename(log)
    write(f"{log}.1", 8, 9, end="")  # its writer has not heard of it, and ends within a line
    more, _ = drain(stream)
    assert values_of(found + more) == rows(0, 8)  # nothing at the path yet
    log.touch()
    more += drain(stream)[0]
    write(log, 9, 14)
    more += drain(stream)[0]
    assert values_of(found + more) == rows(0, 14)
    assert told + drain(stream)[1] == []
    for number, chunk in enumerate(found + more):
        rest, told = resumed(log, chunk.cursor, identifier=identifier)
        assert values_of(rest) == rows(2 * number + 2, 14)
        assert told == []


def test_several_rotations_while_nobody_read(log):
    write(log, 0, 5)
    (first, *_), _ = drain(chunks(follow(log), 2))
    write(log, 5, 7)
    for start in (7, 10, 12):
        rename(log, 9)
        write(log, start, start + 3 if start == 7 else start + 2)
    rest, told = resumed(log, first.cursor)
    assert values_of(rest) == rows(2, 14)
    assert told == []
    os.remove(f"{log}.2")
    rest, told = resumed(log, first.cursor)
    assert values_of(rest)[:5] == rows(2, 7)
    assert values_of(rest)[5:] == [10.5, 11.5, 12.5, 13.5]
    assert len(told) == 1
    assert "rotated more than once" in told[0]


def test_several_rotations_between_two_looks_with_names_that_have_no_order(log):
    write(log, 0, 4)
    stream = chunks(follow(log), 2)
    found, _ = drain(stream)
    os.rename(log, f"{log}-monday")
    write(log, 4, 6)
    os.rename(log, f"{log}-tuesday")
    os.utime(f"{log}-monday", ns=(10**18, 10**18))
    write(log, 6, 8)
    more, told = drain(stream)
    assert values_of(found + more) == rows(0, 4) + rows(6, 8)
    assert len(told) == 1
    assert "log.jsonl-tuesday may be missing" in told[0]


def copy_and_cut(log):
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)


def test_a_log_that_was_copied_and_cut(log):
    write(log, 0, 5)
    stream = chunks(follow(log), 1)
    found, _ = drain(stream)
    write(log, 5, 8)  # is read from the copy
    copy_and_cut(log)
    more, told = drain(stream)
    write(log, 8, 20)  # longer than before at once
    again, others = drain(stream)
    assert values_of(found + more + again) == rows(0, 20)
    assert ["between the two may be missing" in text for text in told + others] == [True]
    for number in range(0, 20, 3):
        rest, told = resumed(log, (found + more + again)[number].cursor)
        assert values_of(rest) == rows(number + 1, 20)
        assert len(told) == (number < 5)  # what was read from the copy lies in the copy


@pytest.mark.parametrize("stop", [3, 40])
def test_a_log_that_was_written_anew_without_a_copy(log, stop):
    write(log, 0, 8)
    stream = chunks(follow(log), 1)
    found, _ = drain(stream)
    os.truncate(log, 0)
    write(log, 20, 20 + stop)
    more, told = drain(stream)
    assert values_of(found + more) == rows(0, 8) + rows(20, 20 + stop)
    assert len(told) == 1
    assert "no longer begins" in told[0]
    rest, told = resumed(log, found[2].cursor)
    assert values_of(rest) == rows(20, 20 + stop)
    assert len(told) == 1
    rest, told = resumed(log, more[1].cursor)
    assert told == []


def test_lines_written_to_a_renamed_log_after_the_new_one_was_begun_are_told(log):
    write(log, 0, 2)
    stream = chunks(follow(log), 2)
    drain(stream)
    rename(log)
    write(log, 2, 4)
    assert values_of(drain(stream)[0]) == rows(2, 4)
    write(f"{log}.1", 90, 91)
    write(log, 4, 6)
    found, told = drain(stream)
    assert values_of(found) == rows(4, 6)
    assert ["not read" in text for text in told] == [True]


def test_a_resumed_run_whose_new_log_begins_with_a_bad_line(log):
    write(log, 0, 2)
    stream = chunks(follow(log, lenient=True), 2)
    drain(stream)
    rename(log)
    log.write_text("oops\n")
    write(log, 2, 7)
    found, _ = drain(stream)
    rest, _ = resumed(log, found[-1].cursor, lenient=True)
    write(log, 7, 9)
    rest, _ = resumed(log, found[-1].cursor, lenient=True)
    assert values_of(rest) == rows(7, 9)


def test_a_log_renamed_before_its_first_line(log):
    log.touch()
    stream = chunks(follow(log), 2)
    assert drain(stream) == ([], [])
    rename(log)
    write(log, 0, 2)
    assert values_of(drain(stream)[0]) == rows(0, 2)


def test_columns_stay_those_of_the_first_log(log):
    write(log, 0, 2)
    stream = chunks(follow(log), 2)
    drain(stream)
    rename(log)
    log.write_text('{"y": 2.5, "n": 2, "more": 1}\n{"y": 3.5, "n": 3, "more": 1}\n')
    (found,) = drain(stream)[0]
    write(log, 4, 6)
    rest, _ = resumed(log, found.cursor)
    assert [set(chunk.values) for chunk in rest] == [{"y", "n"}] * 2


NEW_LINES = [
    '{"y": [1, 2], "n": 1}',  # another shape
    '{"y": true, "n": 1}',
    '{"y": "text", "n": 1}',
    '{"y": 1.5, "n": 1, "more": 3}',
    '{"n": 1}',
    "oops",
]


@pytest.mark.parametrize("line", NEW_LINES)
@pytest.mark.parametrize("gone", [False, True])
def test_a_new_log_tells_no_columns(log, line, gone):
    write(log, 0, 2)
    stream = chunks(follow(log, lenient=True), 1)
    found, _ = drain(stream)
    rename(log)
    log.write_text(line + "\n")
    write(log, 2, 5)
    more, _ = drain(stream)
    whole = found + more
    assert len(whole) == 6
    if gone:
        os.remove(f"{log}.1")
    for number in range(2, 6):
        rest, _ = resumed(log, whole[number].cursor, lenient=True)
        assert [written(c) for c in rest] == [written(c) for c in whole[number + 1 :]]
    rest, told = resumed(log, whole[1].cursor, lenient=True)
    assert [written(c)[0] for c in rest] == [written(c)[0] for c in more]
    assert bool([text for text in told if "no file beside it" in text]) == gone
    empty = follow(log).no_rows(whole[-1].cursor)
    assert {n: a.shape for n, a in empty.items()} == {"y": (0,), "n": (0,)}


def written(chunk):
    leaves = {n: (leaf.dtype.str, leaf.tobytes()) for n, leaf in chunk.values.items()}
    return leaves, json.dumps(chunk.cursor)


def test_cursors_of_an_older_version_and_of_nothing(log):
    write(log, 0, 6)
    old = {"byte": 0, "line": 1, "offset": 2}
    found, told = resumed(log, old)
    assert values_of(found) == rows(2, 6)
    assert ["of an older version" in text for text in told] == [True]
    assert follow(log).no_rows(old) is None
    assert values_of(chunks(JsonLinesFeed(log), 2, old)) == rows(2, 6)
    (good, *_), _ = drain(chunks(follow(log), 2))
    changes = [{"byte": -1}, {"line": "1"}, {"mark": 3}, {"columns": "y"}, {"offset": True}]
    changes += [{"form": None}, {"form": [["y", [-1], False]]}, {"form": [["y", [10**9], False]]}]
    for change in changes:
        with pytest.raises(DataError, match="no place in"):
            resumed(log, good.cursor | change)
        with pytest.raises(DataError, match="no place in"):
            list(follow(log).read(good.cursor | change))


def test_a_file_that_is_not_followed_and_is_not_what_it_was(log):
    write(log, 0, 6)
    first = next(chunks(JsonLinesFeed(log), 2))
    text = log.read_text()
    log.write_text(text.replace("1.5", "9.5"))
    with pytest.raises(DataError, match="it has changed"):
        list(chunks(JsonLinesFeed(log), 2, first.cursor))
