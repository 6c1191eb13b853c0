"""A folder of checkpoints: when, how many, which to go on from, and disks that fail."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.core import checkpoint_file
from weighbridge.monitoring import checkpoint_store

SMALL = wb.SGAIS(num_islands=4, num_particles=16, chunk_size=50)
MODEL = wb.zoo.gaussian.model()
DATA = wb.zoo.gaussian.simulate(300, seed=1)


class Plain:
    """Something that can be saved quickly."""

    def __init__(self, value):
        self.value = value

    def save(self, path, *, extra=None):
        checkpoint_file.write(
            path, "weighbridge.test.1", {"a": np.full(3, self.value)}, {"extra": extra}
        )


def value_of(path):
    return checkpoint_file.read(path, "weighbridge.test.1")[0]["a"][0]


def test_the_last_ones_are_kept(tmp_path):
    kept = wb.CheckpointStore(tmp_path / "deep" / "folder", keep=2)
    assert kept.latest() is None
    for rows in (10, 20, 30, 40):
        saved = kept.save(Plain(rows), rows)
        assert (saved.rows, saved.problem) == (rows, "")
        assert value_of(saved.path) == rows
        latest = kept.latest()
        assert (latest.path, latest.rows, latest.notices) == (saved.path, rows, ())
    assert len(os.listdir(kept.directory)) == 2
    again = wb.CheckpointStore(kept.directory, keep=3)
    assert again.latest().rows == 40
    again.save(Plain(1), 5)  # a run that was begun anew in the same place
    assert again.latest().rows == 5
    assert sorted(rows for _, rows, _ in again._found()) == [5, 30, 40]


def test_when_the_next_one_is_due(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(checkpoint_store.time, "monotonic", lambda: now[0])
    by_rows = wb.CheckpointStore(tmp_path / "rows", every_rows=100, every_seconds=None)
    assert not by_rows.due(99)
    assert by_rows.due(100)
    by_rows.save(Plain(1), 130)
    now[0] += 1e6
    assert [by_rows.due(rows) for rows in (130, 229, 230)] == [False, False, True]
    by_time = wb.CheckpointStore(tmp_path / "time", every_seconds=60.0)
    assert not by_time.due(10**9)
    now[0] += 60.0
    assert by_time.due(1)
    by_time.save(Plain(1), 500)
    assert not by_time.due(501)
    now[0] += 61.0
    assert by_time.due(501)
    assert not by_time.due(500), "nothing is new"
    resumed = wb.CheckpointStore(tmp_path / "time", every_rows=100, every_seconds=None)
    resumed.latest()
    assert [resumed.due(rows) for rows in (599, 600)] == [False, True]


def test_a_damaged_one_is_passed_over_and_told(tmp_path):
    kept = wb.CheckpointStore(tmp_path)
    paths = [kept.save(Plain(rows), rows).path for rows in (10, 20, 30)]
    content = bytearray(paths[2].read_bytes())
    content[-1] ^= 1
    paths[2].write_bytes(bytes(content))
    latest = kept.latest()
    assert latest.path == paths[1]
    assert len(latest.notices) == 1
    assert str(paths[2]) in latest.notices[0]
    assert "damaged" in latest.notices[0]
    saved = kept.save(Plain(25), 25)
    assert kept.latest().path == saved.path, "it goes on from there"
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with pytest.raises(wb.CheckpointError, match="None of the 3 checkpoints"):
        kept.latest()


def test_other_versions_are_told(tmp_path, monkeypatch):
    kept = wb.CheckpointStore(tmp_path)
    kept.save(Plain(1), 10)
    now = checkpoint_file.library_versions()
    monkeypatch.setattr(checkpoint_file, "library_versions", lambda: now | {"jax": "99"})
    assert "(now 99)" in kept.latest().notices[0]


SYSTEM_CALLS = ("open", "write", "fsync", "close", "replace", "listdir", "unlink")


def failing_calls(monkeypatch, failing, error):
    calls = []

    def wrapped(name, real):
        def call(*args, **kwargs):
            calls.append(name)
            if len(calls) == failing:
                if name == "close":
                    real(*args, **kwargs)
                raise error
            return real(*args, **kwargs)

        return call

    for name in SYSTEM_CALLS:
        monkeypatch.setattr(os, name, wrapped(name, getattr(os, name)))
    return calls


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_whichever_call_fails_the_run_goes_on(tmp_path, monkeypatch, code):
    """Every call of a save fails once: older checkpoints stay, and the next save works."""
    error = OSError(code, os.strerror(code))
    with monkeypatch.context() as patch:
        trial = wb.CheckpointStore(tmp_path / "trial", keep=1)
        trial.save(Plain(0), 1)
        calls = failing_calls(patch, -1, error)
        trial.save(Plain(1), 2)
    assert {"open", "write", "fsync", "close", "replace", "listdir", "unlink"} == set(calls)
    for failing in range(1, len(calls) + 1):
        kept = wb.CheckpointStore(tmp_path / str(failing), keep=1)
        first = kept.save(Plain(1), 10)
        with monkeypatch.context() as patch:
            failing_calls(patch, failing, error)
            saved = kept.save(Plain(2), 20, on_failure="report")
        # To look for leftovers and to remove old files may fail: the checkpoint is there.
        harmless = calls[failing - 1] in ("listdir", "unlink") and saved.problem == ""
        assert harmless or (saved.path is None and os.strerror(code) in saved.problem)
        latest = kept.latest()
        assert value_of(latest.path) == (1 if latest.rows == 10 else 2)
        if not harmless:
            assert first.path.exists()
            assert not kept.due(20), "a full disk is not tried again at once"
        after = kept.save(Plain(3), 30)
        assert value_of(kept.latest().path) == 3
        assert os.listdir(kept.directory) == [after.path.name]
    with monkeypatch.context() as patch:
        failing_calls(patch, calls.index("write") + 1, error)
        with pytest.raises(wb.CheckpointError, match=os.strerror(code)):
            kept.save(Plain(4), 40)


@pytest.mark.long
def test_a_run_goes_on_when_its_checkpoint_fails(tmp_path, monkeypatch):
    kept, online = wb.CheckpointStore(tmp_path), wb.Online(MODEL, SMALL, seed=3)
    online.update(DATA[:100])
    kept.save(online, 100, {"cursor": 100})
    online.update(DATA[100:200])
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, "No space left on device")

        def fail(*_):
            raise full

        patch.setattr(os, "write", fail)
        assert "No space" in kept.save(online, 200, {"cursor": 200}, on_failure="report").problem
    last = online.update(DATA[200:])
    latest = kept.latest()
    resumed = wb.Online.load(latest.path, MODEL, SMALL)
    assert (latest.rows, resumed.extra) == (100, {"cursor": 100})
    resumed.update(DATA[100:200])
    assert resumed.update(DATA[200:]).log_evidence == last.log_evidence


def test_what_a_killed_process_left_is_removed(tmp_path):
    program = (
        "import os, signal, sys\n"
        "from weighbridge.core.atomic_write import write_whole\n"
        "from pathlib import Path\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_whole(Path(sys.argv[1]), b'x' * 100)\n"
    )
    target = tmp_path / "checkpoint-00000001-10.safetensors"
    ended = subprocess.run([sys.executable, "-c", program, str(target)], check=False)
    assert ended.returncode < 0
    assert len(os.listdir(tmp_path)) == 1
    kept = wb.CheckpointStore(tmp_path)
    assert os.listdir(tmp_path) == []
    assert kept.latest() is None


@pytest.mark.parametrize(
    "arguments",
    [{"keep": 0}, {"keep": 1.5}, {"keep": None}, {"every_rows": 0}, {"every_seconds": -1.0}],
)
def test_mistakes_are_named(tmp_path, arguments):
    with pytest.raises(wb.MethodError, match=next(iter(arguments))):
        wb.CheckpointStore(tmp_path, **arguments)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(wb.CheckpointError, match="Could not make the folder"):
        wb.CheckpointStore(tmp_path / "file" / "folder")
