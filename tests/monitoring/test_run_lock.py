"""A run directory is for one watch: locks, what they survive, and where there are none."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import weighbridge as wb
from weighbridge.monitoring import run_lock, terminal
from weighbridge.monitoring.run_lock import LOCK, locked
from weighbridge.monitoring.watch_plan import Plan
from weighbridge.monitoring.watching import watch

HOLD = """
import sys, time
from pathlib import Path
from weighbridge.monitoring.run_lock import locked
with locked(Path(sys.argv[1]), print):
    print("locked", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def other(tmp_path):
    """Another process that has the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def refused(directory, *parts):
    with pytest.raises(wb.InUseError) as caught, locked(directory, print):
        pass
    for part in ("in use by another watch", str(directory), *parts):
        assert part in str(caught.value)
    return caught.value


def test_another_process_is_named_and_its_death_lets_go(tmp_path, other):
    since = json.loads((tmp_path / LOCK).read_text())["since"]
    refused(tmp_path, f"process {other.pid} on {socket.gethostname()}, since {since}", "stop it")
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    assert str(other.pid) in (tmp_path / LOCK).read_text(), "what a dead process left"
    with locked(tmp_path, print):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()


def test_a_watch_is_refused_before_it_reads_or_writes(tmp_path, other):
    def rows():
        raise AssertionError("a row was read")
        yield

    plan = Plan({"a": wb.zoo.gaussian.model()}, wb.SGAIS(num_islands=2, num_particles=8))
    with pytest.raises(wb.InUseError, match=f"process {other.pid}"):
        watch(plan, rows(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_threads_of_one_process_exclude_each_other(tmp_path):
    found = []
    with locked(tmp_path, print):
        thread = threading.Thread(target=lambda: found.append(refused(tmp_path)))
        thread.start()
        thread.join()
    assert "this process itself" in str(found[0])
    with locked(tmp_path, print):
        pass


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_lets_go(tmp_path, error):
    with pytest.raises(error), locked(tmp_path, print):
        raise error
    assert (tmp_path / LOCK).read_text() == ""
    with locked(tmp_path, print):
        pass


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '{"pid": "x"}',
        '{"pid": -1, "host": "a", "since": "b"}',
        "[" * 4000,
        '{"pid": 1, "host": "\\u001b[31m", "since": 3}',
        "\x00\xff",
    ],
)
def test_what_is_in_the_file_cannot_block_nor_confuse(tmp_path, text):
    (tmp_path / LOCK).write_text(text)
    with locked(tmp_path, print):
        (tmp_path / LOCK).write_text(text)
        refused(tmp_path, "does not tell its name")


def test_a_read_only_directory_is_called_that(tmp_path, monkeypatch):
    def read_only(*args):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", read_only)
    told = r"run directory .* is read-only.*another"
    with pytest.raises(wb.CheckpointError, match=told), locked(tmp_path, print):
        pass


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(wb.CheckpointError, match="Could not open"),
        locked(tmp_path / "file", print),
    ):
        pass


@pytest.fixture
def no_locks(monkeypatch):
    def unsupported(*args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)


def test_without_locks_it_is_told_and_the_file_is_believed(tmp_path, no_locks):
    said = []
    with locked(tmp_path, said.append):
        assert "file system without locks" in said[0]
        assert "remove" in refused(tmp_path, "this process").__notes__[0]
    with locked(tmp_path, said.append):
        pass
    assert len(said) == 2


def test_without_locks_a_dead_process_does_not_block(tmp_path, no_locks, other):
    refused(tmp_path, f"process {other.pid}")
    other.kill()
    other.wait()
    with locked(tmp_path, lambda text: None):
        pass
    elsewhere = {"pid": 1, "host": "another-host", "since": "today"}
    (tmp_path / LOCK).write_text(json.dumps(elsewhere))
    refused(tmp_path, "process 1 on another-host, since today", "kill 1 on another-host")


def test_a_full_disk_is_no_reason_to_stay_away(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with locked(tmp_path, print):
        refused(tmp_path, "does not tell its name")


def test_the_file_is_not_followed_elsewhere(tmp_path):
    (tmp_path / "else").write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "else")
    with pytest.raises(wb.CheckpointError), locked(tmp_path / "run", print):
        pass
    assert Path(tmp_path / "else").read_text() == "kept"
    assert run_lock.LOCK == "watch.lock"


def test_the_error_of_a_probability_is_shown(capsys):
    heights, errors = {"a": -1.0, "b": -1.5}, {"a": 0.3, "b": 0.3}
    state = terminal.State(
        9, heights, errors, {"a": 0.62, "b": 0.38}, probability_errors={"a": 0.1, "b": 0.1}
    )
    terminal.Lines().show(state)
    display = terminal.OnTerminal()
    display.show(state)
    display.close()
    assert capsys.readouterr().err.count("0.6200 +- 0.1") >= 2
    assert state._replace(probability_errors={}).probability("a") == "0.6200"
