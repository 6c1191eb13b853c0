"""Sources that change while they are read, against what should count (`benchmarks.weather`)."""

import random
import shutil

import pytest

from benchmarks.weather import week
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
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("make", "opened", "steps"),
    [
        pytest.param(FolderScene, _folder, 60, id="folder"),
        pytest.param(LogScene, _followed, 60, id="log"),
        pytest.param(RedisScene, _followed, 15, id="Redis", marks=needs_server),
    ],
)
def test_a_reading_that_is_ended_at_any_time_reads_the_ledger(tmp_path, make, opened, steps, seed):
    scene = make(tmp_path / "source", random.Random(seed))
    try:
        rows = rough_reading(scene, lambda: opened(scene), random.Random(seed), steps)
        assert rows == scene.rows
    finally:
        scene.close()


@pytest.mark.long
@needs_server
def test_a_short_week(tmp_path):
    """Processes, checkpoints, kills and a full disk: the same to the bit as clean runs."""
    assert week.main(["--minutes", "0.3", "--kills", "3", "--output", str(tmp_path)]) == 0
    text = (tmp_path / "week.md").read_text()
    assert text.count("the same to the bit") == 3, text
