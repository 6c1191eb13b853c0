"""A Redis stream as a feed, on a real server."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from weighbridge.base import DataError, MissingDependencyError
from weighbridge.data import RowChecker, num_rows
from weighbridge.feeds import Continuity, RedisStream, chunks, open_feed
from weighbridge.feeds.redis_stream import _before

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

    def __init__(self, folder):
        self.folder = folder
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
            ["redis-server", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
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
    checker = RowChecker("skip")
    assert checker(chunk.values)["y"].tolist() == [*Y[:5], 0.5]
    assert (checker.rows_read, checker.rows_skipped) == (9, 3)


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
    with refuses("connection", "failed"):
        list(RedisStream.read(still(feed), None))
    server.start()
    add(server, 15, 20)
    chunk = wait_for(stream)
    assert chunk.values["y"].tolist() == Y[10:20]
    assert chunk.notices == ()
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


def test_a_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "weighbridge\[redis\]"'):
        open_feed("redis://127.0.0.1/0?stream=s")


def test_the_greatest_id_below_another():
    assert _before("5-1") == "5-0"
    assert _before("5-0") == f"4-{2**64 - 1}"
