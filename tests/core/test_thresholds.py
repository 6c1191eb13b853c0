"""The thresholds of flags: one module, one name for one meaning."""

import pathlib
import re
from collections import Counter

import weighbridge
from weighbridge.core import thresholds

NAMES = {name for name in vars(thresholds) if name.isupper()}
PACKAGE = pathlib.Path(weighbridge.__file__).parent


def test_no_other_module_has_a_threshold_of_the_same_name():
    for path in PACKAGE.rglob("*.py"):
        if path.name != "thresholds.py":
            defined = set(re.findall(r"^([A-Z_]+) = ", path.read_text(), re.MULTILINE))
            assert not defined & NAMES, path


def test_every_threshold_is_used():
    text = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    words = Counter(re.findall(r"\w+", text))
    for name in NAMES:
        assert words[name] > 2, name


def test_streams_and_paths_are_judged_by_numbers_of_their_own():
    assert (thresholds.MAX_TEMPERED_SPREAD, thresholds.MAX_STREAMED_SPREAD) == (3.0, 4.0)
    assert (thresholds.MIN_TEMPERED_PARTICLES, thresholds.MIN_STREAMED_PARTICLES) == (2.0, 1.5)
