"""Saved files with a valid digest whose contents are a lie, made as the tests make them."""

from __future__ import annotations

import functools
import tempfile
import warnings
from pathlib import Path

from benchmarks.weather.verdict import Came, Kind, Place, Verdict

NAMES = {
    "evidence": ("an Evidence", 150),
    "posterior": ("a Posterior", 150),
    "online": ("a checkpoint of Online", 80),
    "ibis": ("a checkpoint of IBIS with changes", 50),
    "comparison": ("a checkpoint of OnlineComparison", 50),
}


@functools.cache
def _folder() -> Path:
    """For the files before they are changed; removed when the process ends."""
    kept = tempfile.TemporaryDirectory()
    _kept.append(kept)
    return Path(kept.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def attack_file(kind: str, place: Place) -> Verdict:
    """One entry or array is changed: refused, or it is a valid object that goes on."""
    # Imported here: workers that attack other things need not wait for it.
    from tests.helpers import crafting
    from tests.weighing.test_crafted_files import KINDS as SAVED

    make, load, judge = SAVED[kind]
    original = _folder() / kind
    seed = place.luck.getrandbits(32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not original.exists():
            make(original)
        try:
            outcome = crafting.attack(original, place.folder / kind, load, judge, 1, seed)
        except AssertionError as error:
            untyped = " raised " in str(error)
            return Verdict(Came.UNTYPED if untyped else Came.DIFFERENT, str(error))
    ((change, came),) = outcome
    return Verdict(Came.REFUSED if came == "refused" else Came.RIGHT, change)


KINDS = tuple(
    Kind("crafted", name, functools.partial(attack_file, kind), times, 240.0, 1000.0)
    for kind, (name, times) in NAMES.items()
)
