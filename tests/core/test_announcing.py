"""What is told before there are numbers reaches those who want to know, and nobody else."""

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.core.errors import DataError
from weighbridge.core.progress.announcing import Announcer, announce, announced
from weighbridge.core.progress.reporters import Silent
from weighbridge.weighing import weighing


class Listener:
    """Remembers what it was told."""

    def __init__(self):
        self.told = []

    def announce(self, text, *, at_once=False):
        self.told.append((text, at_once))


def test_one_who_listens_is_told():
    listener = Listener()
    announce(listener, "compiling")
    announce(listener, "stopping", at_once=True)
    assert listener.told == [("compiling", False), ("stopping", True)]
    assert isinstance(listener, Announcer)


def test_one_who_does_not_listen_is_left_alone():
    """A reporter of a user's own need not know of it, and a silent one does not."""
    for listener in (Silent(), object(), None):
        assert not isinstance(listener, Announcer)
        announce(listener, "compiling")


class Recorder(Silent):
    """A reporter that remembers in which order things happened."""

    def __init__(self):
        self.happened = []

    def announce(self, text, *, at_once=False):
        self.happened.append(text)

    def close(self):
        self.happened.append("closed")


def test_a_block_that_fails_ends_what_is_listened_to():
    recorder = Recorder()
    with announced(recorder, "reading"):
        recorder.happened.append("done")
    with pytest.raises(ValueError), announced(recorder, "more"):
        raise ValueError
    assert recorder.happened == ["reading", "done", "more", "closed"]


@pytest.mark.parametrize("kind", ["evidence", "compare"])
def test_something_is_told_before_the_data_are_opened(kind, monkeypatch):
    """Files and large frames take their time to open."""
    recorder, model = Recorder(), wb.zoo.gaussian.model()
    opened = weighing.open_source

    def open_source(data, **options):
        recorder.happened.append("opening")
        return opened(data, **options)

    monkeypatch.setattr(weighing, "open_source", open_source)
    asked = model if kind == "evidence" else {"a": model, "b": wb.zoo.gaussian.model(1.0)}
    with pytest.raises(DataError):
        getattr(wb, kind)(asked, np.array(["a", "b"]), "ais", progress=recorder)
    assert recorder.happened[:2] == ["reading the data", "opening"]
    assert recorder.happened[-1] == "closed"
