"""Sources that change while they are read, against what should count (`benchmarks.weather`)."""

import pytest

from benchmarks.weather.catalogue import CATALOGUE
from benchmarks.weather.verdict import Came
from benchmarks.weather.worker import answer

CHANGING = [kind for kind in CATALOGUE.values() if kind.family in ("folder", "log")]


@pytest.mark.long
@pytest.mark.parametrize("kind", CHANGING, ids=lambda kind: kind.key)
def test_a_changing_source_loses_nothing_without_a_word(kind):
    told = answer(kind, 1000)
    assert not Came[told["came"]].is_fault, told
