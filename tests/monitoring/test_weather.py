"""Some attacks of `benchmarks.weather.attacks` on files and event logs: no fault comes of them."""

import pytest

from benchmarks.weather.catalogue import CATALOGUE
from benchmarks.weather.verdict import Came, Kind, Verdict
from benchmarks.weather.worker import answer

# A tenth of a second each, and nothing is compiled.
QUICK = ("CSV: one", "CSV: sev", "CSV: cut", "CSV: random", "CSV: text", "CSV: gzip", "CSV: carr")
QUICK += ("CSV: no rows", "JSON lines: one", "JSON lines: cut", "JSON lines: random")
QUICK += ("JSON lines: lines", "NPZ: cut", "NPZ: random", "NPZ: claims", "Parquet:", "event log:")
QUICK += ("pipe: CSV with one", "pipe: CSV with sev", "pipe: CSV with text", "pipe: JSON lines")
KINDS = [kind for key, kind in CATALOGUE.items() if key.startswith(QUICK)]


@pytest.mark.filterwarnings("ignore")  # as in a run: what NumPy and pyarrow warn of is no error
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.key)
def test_no_fault_comes_of_an_attack(kind):
    for seed in range(1000, 1003):  # others than those of the benchmark
        told = answer(kind, seed)
        assert not Came[told["came"]].is_fault, (seed, told)


def test_a_fault_is_seen():
    """An attack whose error is none of the library's own, one that loses rows, and a right one."""

    def untyped(place):
        raise KeyError("x")

    kinds = {
        "UNTYPED": untyped,
        "LOST": lambda place: Verdict(Came.LOST),
        "RIGHT": lambda place: Verdict(Came.RIGHT),
    }
    for came, attack in kinds.items():
        assert answer(Kind("test", came, attack, 1), 0)["came"] == came
    assert [came for came in kinds if not Came[came].is_fault] == ["RIGHT"]
