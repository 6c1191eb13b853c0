"""A Redis stream as a feed, on a real server."""

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import numpy as np
import pytest

from weighbridge.core.errors import DataError, MissingDependencyError
from weighbridge.data.feeds.chunking import chunks
from weighbridge.data.feeds.continuity import Continuity
from weighbridge.data.feeds.opening import open_feed
from weighbridge.data.feeds.redis_server import _take_stream
from weighbridge.data.feeds.redis_stream import RedisStream, _before
from weighbridge.data.row_checking import RowChecker
from weighbridge.data.sources.opening import open_source
from weighbridge.data.values import num_rows

redis = pytest.importorskip("redis")
needs_server = pytest.mark.skipif(
    shutil.which("redis-server") is None,
    reason="redis-server is not installed (apt-get install redis-server)",
)
ROWS = 40
Y = np.random.default_rng(1).normal(size=ROWS).tolist()


def refuses(*parts):
    return pytest.raises(DataError, match="(?s)" + ".*".join(re.escape(part) for part in parts))


class Server:
    """A redis-server of our own, that can be stopped and started again."""

    def __init__(self, folder, *more):
        self.folder, self.more = folder, more
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis(port=self.port)
        self.process = None
        self.start()

    def start(self):
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        options += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        self.process = subprocess.Popen(
            ["redis-server", *options, *self.more],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + 10
        while True:
            try:
                self.client.ping()
            except redis.ConnectionError:
                assert time.monotonic() < end, "redis-server does not start"
                time.sleep(0.02)
            else:
                return

    def stop(self):
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("redis"))
    yield server
    server.client.close()
    server.stop()


@pytest.fixture
def server(running):
    running.client.flushall()
    return running


def add(server, start=0, stop=ROWS, stream="s"):
    for i in range(start, stop):
        server.client.xadd(
            stream, {"y": Y[i], "k": i % 3, "x": f"[{i}, {i + 0.5}]"}, id=f"{i + 1}-0"
        )


def signature(chunk):
    leaves = {n: (leaf.dtype.str, leaf.tobytes()) for n, leaf in chunk.values.items()}
    return leaves, json.dumps(chunk.cursor)


def wait_for(stream, seconds=10.0):
    end = time.monotonic() + seconds
    while (chunk := next(stream)) is None:
        assert time.monotonic() < end, "nothing came"
    return chunk


@needs_server
@pytest.mark.parametrize("size", [1, 7, ROWS + 1])
def test_reading_on_from_any_entry_gives_the_same_chunks(server, size):
    add(server)
    given = f"{server.url}?stream=s"
    feed = open_feed(given, schema={"k": int})
    assert feed.seekable
    whole = list(chunks(feed, size, None, Continuity()))
    assert np.concatenate([c.values["y"] for c in whole]).tolist() == Y
    assert whole[0].values["k"].dtype == np.int64
    assert whole[0].values["x"][0].tolist() == [0.0, 0.5]
    for number, chunk in enumerate(whole):
        cursor = json.loads(json.dumps(chunk.cursor))
        rest = list(chunks(open_feed(given, schema={"k": int}), size, cursor))
        assert [signature(c) for c in rest] == [signature(c) for c in whole[number + 1 :]]
        assert not any(c.notices for c in rest)
    before = {**whole[0].cursor, "offset": 0}
    assert next(chunks(feed, 1, before)).values["y"].tolist() == [Y[min(size, ROWS) - 1]]


@needs_server
def test_small_batches_and_json_entries(server):
    for i in range(ROWS):
        server.client.xadd("j", {"row": json.dumps({"y": Y[i], "x": [i, 1], "seq": i})})
    feed = RedisStream(server.url, "j", identifier="seq", batch=3)
    (chunk,) = chunks(feed, 100, None, Continuity())
    assert chunk.values["y"].tolist() == Y
    assert set(chunk.values) == {"y", "x"}
    assert chunk.notices == ()
    server.client.xadd("j", {"row": json.dumps({"y": 9.0, "x": [0, 1], "seq": ROWS - 1})})
    server.client.xadd("j", {"row": json.dumps({"y": 8.0, "x": [0, 1], "seq": ROWS + 1})})
    continuity = Continuity()
    (chunk,) = chunks(feed, 100, None, continuity)
    assert chunk.values["y"].tolist() == [*Y, 8.0]
    assert [notice.kind for notice in chunk.notices] == ["duplicate", "gap"]


@needs_server
def test_bad_entries_follow_the_row_policy(server):
    add(server, 0, 5)
    server.client.xadd("s", {"y": "text", "k": 1, "x": "[1, 2]"})
    server.client.xadd("s", {"row": "{half"})
    server.client.xadd("s", {"y": "nan", "k": 1, "x": "[1, 2]"})
    server.client.xadd("s", {"y": ".5", "k": 1, "x": "[1, 2]"})
    with refuses("Entry", "'text', not numbers"):
        list(chunks(RedisStream(server.url, "s"), 100))
    (chunk,) = chunks(open_feed(f"{server.url}?stream=s", on_bad_row="skip"), 100)
    assert [notice.kind for notice in chunk.notices] == ["unreadable"] * 2
    # A name would be that of a file, which the quarantine has a line for beside those of rows.
    assert all(isinstance(notice.identifier, int) for notice in chunk.notices)
    checker = RowChecker("skip")
    assert checker(chunk.values)["y"].tolist() == [*Y[:5], 0.5]
    assert (checker.rows_read, checker.rows_skipped) == (9, 3)


FORM_LESS = [
    {"y": "text", "k": "true", "x": "[1, 2]"},  # no number where there was one
    {"y": "[1, 2]", "k": "true", "x": "[1, 2]"},  # another shape
    {"y": "3", "k": "1", "x": "[1, 2]"},  # a number where there was true or false
    {"y": "4", "k": "true", "x": "[1, 2]", "more": "5"},  # a new column
    {"row": "{half"},
]


def typed(server):
    """Good entries, and between them such as would be another table if they came first."""
    for bad in [None, *FORM_LESS]:
        for entry in (bad, {"y": "0.5", "k": "false", "x": "[0, 1.5]"}):
            if entry is not None:
                server.client.xadd("s", entry)


@needs_server
def test_columns_are_those_of_the_first_entry_wherever_reading_goes_on(server):
    typed(server)
    given = f"{server.url}?stream=s"
    whole = list(chunks(open_feed(given, on_bad_row="skip"), 1))
    assert len(whole) == 11
    assert whole[0].values["k"].dtype == np.bool_
    for number, chunk in enumerate(whole):
        cursor = json.loads(json.dumps(chunk.cursor))
        rest = list(chunks(open_feed(given, on_bad_row="skip"), 1, cursor))
        assert [signature(c) for c in rest] == [signature(c) for c in whole[number + 1 :]]
        assert texts(rest) == texts(whole[number + 1 :])
    empty = open_feed(given, on_bad_row="skip").no_rows(whole[3].cursor)
    assert {n: (a.dtype.kind, a.shape) for n, a in empty.items()} == {
        "y": ("f", (0,)),
        "k": ("b", (0,)),
        "x": ("f", (0, 2)),
    }


@needs_server
@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        "y",
        [["y", [], False], ["y", [], False]],
        [["y", [-1], False]],
        [["y", [10**9], False]],
        [["y", [2**20, 2**20], False]],
        [["y", [0, 2**20, 2**20], False]],
        [["y", [1] * 64, False]],
        [["y", [], 1]],
        [["y", []]],
        [[3, [], False]],
    ],
)
def test_a_crafted_form_is_refused(server, form):
    add(server, 0, 4)
    feed = RedisStream(server.url, "s")
    cursor = {**next(chunks(feed, 1)).cursor, "form": form}
    with refuses("no place in"):
        next(chunks(feed, 1, cursor))
    with refuses("no place in"):
        list(feed.read(cursor))


@needs_server
@pytest.mark.parametrize(
    "change",
    [{"marks": [[1, "x", "00"]]}, {"marks": 3}, {"marks": [[-1, "1-0", ""]]}, {"generation": "a"}],
)
def test_crafted_marks_are_refused(server, change):
    add(server, 0, 4)
    feed = RedisStream(server.url, "s")
    with refuses("no place in"):
        next(chunks(feed, 1, next(chunks(feed, 1)).cursor | change))


@needs_server
def test_a_run_goes_on_with_other_columns_than_it_was_begun_with(server):
    add(server, 0, 4)
    cursor = next(chunks(RedisStream(server.url, "s", ["y", "x"]), 1)).cursor
    with refuses("started without the column 'k'", "y, x"):
        list(chunks(RedisStream(server.url, "s", ["y", "k"]), 1, cursor))
    with refuses("started with 'y' as a column"):
        list(chunks(RedisStream(server.url, "s", identifier="y"), 1, cursor))
    (one, *_) = chunks(RedisStream(server.url, "s", ["x"]), 1, cursor)
    assert set(one.values) == {"x"}


@needs_server
def test_a_cursor_of_an_older_version_is_told(server):
    add(server, 0, 4)
    feed = open_feed(f"{server.url}?stream=s", on_bad_row="skip")
    *_, last = chunks(feed, 1)
    old = {name: value for name, value in last.cursor.items() if name != "form"}
    assert feed.no_rows(old) is None
    add(server, 4, 6)
    first, second = chunks(feed, 1, old)
    assert ["of an older version" in text for text in texts([first, second])] == [True]
    assert first.values["y"].tolist() == [Y[4]]
    server.client.xadd("s", {"row": "{half"})
    old = {name: value for name, value in second.cursor.items() if name != "form"}
    with refuses("not a JSON object", "of an older version"):
        list(chunks(feed, 1, old))


@needs_server
def test_trimmed_entries_are_a_gap(server):
    add(server, 0, 20)
    feed = RedisStream(server.url, "s", batch=5)
    first = next(chunks(feed, 10))
    server.client.xtrim("s", minid="11-0", approximate=False)  # what was read: no gap
    assert not any(c.notices for c in chunks(feed, 10, first.cursor))
    server.client.xtrim("s", minid="15-0", approximate=False)
    add(server, 20, 30)
    found = list(chunks(feed, 10, first.cursor))
    assert np.concatenate([c.values["y"] for c in found]).tolist() == Y[14:30]
    (notice,) = found[0].notices
    assert (notice.kind, notice.identifier) == ("gap", "10-0")
    assert "4 entries after it were never read" in notice.text
    assert not found[1].notices
    # Also while it is being read, and when everything is gone.
    stream = chunks(feed, 5, first.cursor)
    assert len(next(stream).notices) == 1
    server.client.xtrim("s", maxlen=0, approximate=False)
    add(server, 30, 40)
    found = list(stream)
    assert np.concatenate([c.values["y"] for c in found]).tolist() == Y[30:40]
    assert "11 entries" in found[0].notices[0].text


@needs_server
def test_a_stream_that_was_made_anew(server):
    add(server, 0, 20)
    feed = RedisStream(server.url, "s")
    last = list(chunks(feed, 20))[-1]
    server.client.delete("s")
    assert list(chunks(feed, 20, last.cursor)) == []
    add(server, 20, 23)
    (chunk,) = chunks(feed, 20, last.cursor)
    assert chunk.values["y"].tolist() == Y[20:23]
    assert "made anew" in chunk.notices[0].text


@needs_server
def test_following_through_a_restart_of_the_server(server):
    feed = RedisStream(server.url, "s", follow=True)
    feed.patience = 0.02
    stream = chunks(feed, 10)
    assert next(stream) is None  # there is no such stream yet
    add(server, 0, 15)
    assert wait_for(stream).values["y"].tolist() == Y[:10]
    assert next(stream) is None
    server.stop()
    assert [next(stream) for _ in range(4)] == [None] * 4
    (lost,) = stream.take_notices()
    assert lost.kind == "connection"
    assert "tried again" in lost.text
    with refuses("connection", "failed"):
        list(RedisStream.read(still(feed), None))
    server.start()
    add(server, 15, 20)
    chunk = wait_for(stream)
    assert chunk.values["y"].tolist() == Y[10:20]
    assert [(notice.kind, "is back after" in notice.text) for notice in chunk.notices] == [
        ("connection", True)
    ]
    assert num_rows(chunk.values) == 10


def still(feed):
    """The same stream, not followed."""
    other = object.__new__(RedisStream)
    other.__dict__.update(feed.__dict__, follow=False)
    return other


@needs_server
def test_what_cannot_be_read(server):
    with refuses("Name the stream"):
        RedisStream(server.url)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with refuses("connection", "failed"):
            open_feed(f"redis://127.0.0.1:{probe.getsockname()[1]}/0?stream=s", follow=True)
    server.client.set("text", "no stream")
    with refuses("text", "cannot be read"):
        open_feed(f"{server.url}?stream=text")
    feed = RedisStream(server.url, "s")
    with refuses("no place in", "another feed"):
        list(feed.read({"offset": 1}))


@needs_server
def test_a_server_at_a_socket_of_the_file_system():
    with tempfile.TemporaryDirectory() as folder:  # of a short name: sockets need one
        server = Server(folder, "--unixsocket", f"{folder}/redis.sock")
        try:
            add(server, 0, 5)
            server.client.select(3)
            add(server, 5, 8)
            address = f"unix://{folder}/redis.sock"
            for url, rows in ((f"{address}?stream=s", Y[:5]), (f"{address}?db=3&stream=s", Y[5:8])):
                feed = open_feed(url)
                (chunk,) = chunks(feed, 100)
                assert chunk.values["y"].tolist() == rows
                assert feed.describe() == f"Redis stream s at {folder}/redis.sock"
            server.client.config_set("requirepass", "secret")
            (chunk,) = chunks(open_feed(f"unix://:secret@{folder}/redis.sock?stream=s"), 100)
            assert chunk.values["y"].tolist() == Y[:5]
        finally:
            server.client.close()
            server.stop()


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:secret@127.0.0.1:1/2?db=3",
        "redis://[::1]:6379/0",
        "unix:///run/redis.sock",
        "unix://me:secret@/run/redis.sock?db=1",
        "rediss://host",
    ],
)
def test_an_address_stays_what_it_is_without_its_stream(url):
    named = f"{url}{'&' if '?' in url else '?'}stream=a%2Fb"
    assert _take_stream(named) == (url, "a/b")
    assert _take_stream(url) == (url, None)


def entries(server, ids, stream="s"):
    for number in ids:
        server.client.xadd(stream, {"y": number + 0.5}, id=f"{number}-0")


def values(found):
    return np.concatenate([chunk.values["y"] for chunk in found]).tolist()


def texts(found):
    return [notice.text for chunk in found for notice in chunk.notices]


@needs_server
@pytest.mark.parametrize("new", [range(1, 4), range(1, 60), range(15, 60), range(40, 90)])
def test_a_stream_made_anew_is_read_from_its_start_whatever_its_identifiers(server, new):
    entries(server, range(10, 31))
    feed, continuity = RedisStream(server.url, "s"), Continuity()
    (last,) = chunks(feed, 100, None, continuity)
    server.client.delete("s")
    for number in new:
        server.client.xadd("s", {"y": -number}, id=f"{number}-0")
    found = list(chunks(feed, 20, last.cursor, continuity))
    assert values(found) == [-number for number in new]
    assert sum("made anew after entry 30-0" in text for text in texts(found)) == 1
    assert len(texts(found)) == 1, "no duplicates, though identifiers come again"
    server.client.xadd("s", {"y": -100.0}, id="100-0")
    (more,) = chunks(feed, 20, json.loads(json.dumps(found[-1].cursor)), continuity)
    assert (more.values["y"].tolist(), more.notices) == ([-100.0], ())


@needs_server
def test_a_server_that_was_restored_from_an_older_copy_is_not_read_twice(server):
    entries(server, range(1, 41))
    feed = RedisStream(server.url, "s")
    (last,) = chunks(feed, 100)
    server.client.delete("s")
    entries(server, range(1, 31))  # the copy was made before the last ten
    found = list(chunks(feed, 100, last.cursor))
    assert found == []
    entries(server, range(50, 53))
    for cursor in (last.cursor, json.loads(json.dumps(last.cursor))):
        found = list(chunks(feed, 100, cursor))
        assert values(found) == [50.5, 51.5, 52.5]
        assert ["gone back to an older state" in text for text in texts(found)] == [True]
    entries(server, range(53, 55))
    more = list(chunks(feed, 100, found[-1].cursor))
    assert (values(more), texts(more)) == ([53.5, 54.5], [])


@needs_server
def test_a_connection_lost_while_a_new_stream_is_looked_at(server, monkeypatch):
    entries(server, range(10, 31))
    feed = RedisStream(server.url, "s", follow=True)
    feed.patience = 0.01
    stream = chunks(feed, 21)
    assert values([wait_for(stream)]) == [number + 0.5 for number in range(10, 31)]
    server.client.delete("s")
    entries(server, range(1, 4))
    asked, holds = [], feed._server.holds

    def cut(mark):
        if not asked:
            server.stop()
        asked.append(mark)
        return holds(mark)

    monkeypatch.setattr(feed._server, "holds", cut)
    while not asked:
        assert next(stream) is None
    server.start()
    entries(server, range(40, 58))
    chunk = wait_for(stream)
    assert values([chunk]) == [number + 0.5 for number in (*range(1, 4), *range(40, 58))]
    assert [notice.kind for notice in chunk.notices] == ["connection", "connection", "gap"]
    assert "made anew" in chunk.notices[-1].text


@needs_server
def test_the_last_entry_may_be_deleted_without_a_word(server):
    entries(server, range(1, 11))
    feed = RedisStream(server.url, "s")
    (last,) = chunks(feed, 100)
    server.client.xdel("s", "10-0")
    entries(server, range(11, 13))
    found = list(chunks(feed, 100, last.cursor))
    assert (values(found), texts(found)) == ([11.5, 12.5], [])


@needs_server
def test_a_changed_password_is_told_and_never_shown(server, tmp_path):
    secret, other = "s3cret-word", "0ther-word"
    entries(server, range(1, 4))
    server.client.config_set("requirepass", secret)
    url = server.url.replace("redis://", f"redis://:{secret}@")
    shown = []
    try:
        feed = open_feed(f"{url}?stream=s", follow=True)
        feed.patience = 0.02
        stream = chunks(feed, 2, None, Continuity())
        first = wait_for(stream)
        assert next(stream) is None
        server.client.config_set("requirepass", other)
        server.client.client_kill_filter(_type="normal", skipme=True)
        assert [next(stream) for _ in range(20)] == [None] * 20
        notices = stream.take_notices()
        assert "does not let us in" in notices[-1].text
        assert "start again with the new ones" in notices[-1].text
        with refuses("does not let us in") as caught:
            open_feed(f"{url}?stream=s")
        server.client.config_set("requirepass", secret)
        entries(server, range(4, 6))
        chunk = wait_for(stream)
        assert chunk.values["y"].tolist() == [3.5, 4.5]
        shown = [feed.describe(), *(n.text for n in notices), str(first.cursor), repr(feed)]
        shown += ["".join(traceback.format_exception(caught.value))]
    finally:
        server.client.config_set("requirepass", "")
    assert not any(word in text for text in shown for word in (secret, other))


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:sec/ret@127.0.0.1:1/0?stream=s",
        "redis://me:sec#ret@127.0.0.1:1/0?stream=s",
        "redis://me:sec?ret@127.0.0.1:1/0",
        "redis://me:secret@127.0.0.1:port/0?stream=s",
        "redis://me:secret@127.0.0.1:1/0",
        "redis://me:secret@127.0.0.1:1/0?stream=s",
        "redis://127.0.0.1:1/0?stream=s&password=secret",
        "redis://127.0.0.1:1/0?stream=s&unknown=secret",
        "redis://[::1:secret@/0?stream=s",
        "unix://me:secret@/no/such.sock?stream=s",
    ],
)
def test_no_part_of_a_password_is_in_an_error(url):
    for opening in (lambda: open_feed(url), lambda: open_source(url)):
        with pytest.raises(DataError) as caught:
            opening()
        told = "".join(traceback.format_exception(caught.value))
        told = "\n".join(line for line in told.splitlines() if not line.startswith("    "))
        assert "sec" not in told
        assert "ret" not in told.replace("retry", "").replace("return", "").replace("secrets", "")


def test_a_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "weighbridge\[redis\]"'):
        open_feed("redis://127.0.0.1/0?stream=s")


def test_the_greatest_id_below_another():
    assert _before("5-1") == "5-0"
    assert _before("5-0") == f"4-{2**64 - 1}"
