"""Sources that change while they are read, against what should count (`benchmarks.weather`)."""

import random
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks.weather.catalogue import CATALOGUE
from benchmarks.weather.readings import rough_reading
from benchmarks.weather.scenes import FolderScene, LogScene, RedisScene
from benchmarks.weather.verdict import Came
from benchmarks.weather.worker import answer
from weighbridge.data.feeds.directory import DirectoryFeed
from weighbridge.data.feeds.opening import open_feed
from weighbridge.data.sources.requested_columns import Request

CHANGING = [kind for kind in CATALOGUE.values() if kind.family in ("folder", "log")]
needs_server = pytest.mark.skipif(not shutil.which("redis-server"), reason="no redis-server")


@pytest.mark.long
@pytest.mark.parametrize("kind", CHANGING, ids=lambda kind: kind.key)
def test_a_changing_source_loses_nothing_without_a_word(kind):
    told = answer(kind, 1000)
    assert not Came[told["came"]].is_fault, told


def _followed(scene):
    feed = open_feed(scene.source, follow=True, on_bad_row="quarantine")
    feed.patience = 0.01
    return feed


def _folder(scene):
    return DirectoryFeed(
        scene.source, Request(lenient=True), follow=True, settle=0.06, patience=0.005
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "opened", "steps", "seed"),
    [
        pytest.param(FolderScene, _folder, 44, 0, id="folder"),
        pytest.param(FolderScene, _folder, 44, 1, id="folder again"),
        pytest.param(LogScene, _followed, 36, 0, id="log"),
        pytest.param(LogScene, _followed, 36, 1, id="log again"),
        pytest.param(RedisScene, _followed, 12, 0, id="Redis", marks=needs_server),
    ],
)
def test_a_reading_that_is_ended_at_any_time_reads_the_ledger(tmp_path, make, opened, steps, seed):
    """Every kind of weather comes, at least twice."""
    scene = make(tmp_path / "source", random.Random(seed))
    try:
        rows = rough_reading(scene, lambda: opened(scene), random.Random(seed), steps)
        assert rows == scene.rows
        times = Counter(scene.weather)
        assert all(times[step] >= 2 for step in (*scene.ANY, *scene.UNWATCHED, *scene.SAVED))
    finally:
        scene.close()


@pytest.mark.long
@needs_server
def test_a_short_week(tmp_path):
    """Processes, checkpoints, kills and a full disk: the same to the bit as clean runs.

    In a process of its own, which compiles as its watches do, however pytest is run.
    """
    command = [sys.executable, "-m", "benchmarks.weather.week", "--minutes", "0.1", "--kills", "2"]
    done = subprocess.run([*command, "--output", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "week.md").read_text()
    assert text.count("the same to the bit") == 3, text
