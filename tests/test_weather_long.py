"""Sources that change while they are read, and a short week of weather, against what should count.

The same as `benchmarks.attacks` and `benchmarks.week`, with fewer of each.
"""

import shutil

import pytest

from benchmarks.weather.catalogue import CATALOGUE
from benchmarks.weather.verdict import Came
from benchmarks.weather.worker import answer
from benchmarks.week import Week

CHANGING = [kind for kind in CATALOGUE.values() if kind.family in ("folder", "log")]


@pytest.mark.long
@pytest.mark.parametrize("kind", CHANGING, ids=lambda kind: kind.key)
def test_a_changing_source_loses_nothing_without_a_word(kind):
    told = answer(kind, 1000)
    assert not Came[told["came"]].is_fault, told


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("redis-server"), reason="there is no Redis server")
def test_a_short_week_ends_as_the_clean_run(tmp_path):
    week = Week(tmp_path, seed=1, kills=3)
    try:
        week.run(5.0)
        assert week.num_kills() >= 3
        assert {watch.name: watch.faults for watch in week.watches} == {
            "folder": [],
            "log": [],
            "Redis": [],
        }
    finally:
        week.close()
