"""Saved files: written whole or not at all, read back exactly or refused."""

import errno
import json
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest

from weighbridge import CheckpointError
from weighbridge.core import atomic_write, checkpoint_file

SCHEMA = "weighbridge.test.1"
ARRAYS = {
    "floats": np.array([[0.1, np.nan, -np.inf], [1e300, -0.0, 2.0]]),
    "ints": np.array([2**62, -1]),
    "flags": np.array([True, False]),
    "none": np.zeros((0, 3)),
    "scalar": np.array(1.5),
    "transposed": np.arange(6.0).reshape(2, 3).T,
}
METADATA = {"nan": float("nan"), "text": "Größe", "count": np.int64(3), "deep": {"a": [1, 2.5]}}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.ckpt"
    checkpoint_file.write(path, SCHEMA, ARRAYS, METADATA)
    return path


def test_round_trip_is_exact(saved):
    arrays, metadata = checkpoint_file.read(saved, SCHEMA)
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.tobytes()
    assert metadata["nan"] != metadata["nan"]
    assert (metadata["text"], metadata["count"], metadata["deep"]) == ("Größe", 3, {"a": [1, 2.5]})


def test_overwriting_leaves_one_file(saved):
    checkpoint_file.write(saved, SCHEMA, {"a": np.ones(2)}, {})
    assert list(checkpoint_file.read(saved, SCHEMA)[0]) == ["a"]
    assert os.listdir(saved.parent) == [saved.name]


SYSTEM_CALLS = ("open", "write", "fsync", "close", "replace")


class Faults:
    """The operating system, with one call that fails; the others work and are written down."""

    def __init__(self, monkeypatch, failing=None, error=None):
        self.calls, self.failing, self.error = [], failing, error
        for name in SYSTEM_CALLS:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name, real):
        def call(*args, **kwargs):
            self.calls.append(name)
            if len(self.calls) == self.failing:
                if name == "close":  # which lets go of the file even so
                    real(*args, **kwargs)
                if name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                raise self.error
            return real(*args, **kwargs)

        return call


def calls_of_a_write(path, monkeypatch):
    with monkeypatch.context() as patch:
        faults = Faults(patch)
        checkpoint_file.write(path, SCHEMA, {"a": np.ones(2)}, {"payload": "x" * 4000})
        return faults.calls


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EIO, "Input/output error"),
        KeyboardInterrupt(),
    ],
    ids=["full", "broken", "interrupt"],
)
def test_whichever_call_fails_there_is_a_whole_file(saved, monkeypatch, error):
    monkeypatch.setattr(atomic_write, "PIECE", 512)
    old = saved.read_bytes()
    calls = calls_of_a_write(saved, monkeypatch)
    assert calls.count("write") > 5
    assert [call for call in calls if call != "write"] == [
        *("open", "fsync", "close", "replace"),
        *("open", "fsync", "close"),
    ]
    expected = CheckpointError if isinstance(error, OSError) else KeyboardInterrupt
    descriptors = os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else []
    for failing in range(1, len(calls) + 1):
        saved.write_bytes(old)
        with monkeypatch.context() as patch:
            Faults(patch, failing, error)
            with pytest.raises(expected) as caught:
                checkpoint_file.write(saved, SCHEMA, {"a": np.ones(2)}, {"payload": "x" * 4000})
        replaced = failing > calls.index("replace") + 1
        if isinstance(error, OSError):
            assert error.strerror in str(caught.value)
            assert str(saved) in str(caught.value)
            assert ("power cut" in str(caught.value)) == replaced
        if replaced:  # the new one is in its place, whole
            assert list(checkpoint_file.read(saved, SCHEMA)[0]) == ["a"]
        else:
            assert saved.read_bytes() == old
        assert os.listdir(saved.parent) == [saved.name], "a temporary file is left"
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) == len(descriptors), "a file is left open"
    checkpoint_file.write(saved, SCHEMA, {"a": np.ones(2)}, {})


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EACCES])
def test_a_file_system_that_syncs_no_folders_is_no_error(saved, monkeypatch, code):
    calls = calls_of_a_write(saved, monkeypatch)
    last_sync = max(number for number, call in enumerate(calls, 1) if call == "fsync")
    Faults(monkeypatch, last_sync, OSError(code, "cannot"))
    checkpoint_file.write(saved, SCHEMA, {"a": np.ones(2)}, {})
    assert list(checkpoint_file.read(saved, SCHEMA)[0]) == ["a"]


def test_short_writes_are_completed(saved, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, view: real(file, view[:7]))
    checkpoint_file.write(saved, SCHEMA, ARRAYS, METADATA)
    assert set(checkpoint_file.read(saved, SCHEMA)[0]) == set(ARRAYS)


def test_what_a_dead_process_left_is_removed(saved):
    program = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    dead = int(program.stdout)
    leftovers = [f".run.ckpt.{dead}-0.tmp", f".run.ckpt.{os.getpid()}-123456.tmp"]
    others = [f".run.ckpt.{os.getppid()}-0.tmp", f".other.{dead}-0.tmp", ".run.ckpt.tmp", "run.tmp"]
    for name in (*leftovers, *others):
        (saved.parent / name).write_bytes(b"half")
    checkpoint_file.write(saved, SCHEMA, {}, {})
    assert set(os.listdir(saved.parent)) == {saved.name, *others}


def test_a_temporary_file_that_could_not_be_removed_goes_next_time(saved, monkeypatch):
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, "No space left on device")
        Faults(patch, 2, full)

        def fail(*_):
            raise full

        patch.setattr(os, "unlink", fail)
        with pytest.raises(CheckpointError):
            checkpoint_file.write(saved, SCHEMA, {}, {})
    assert len(os.listdir(saved.parent)) == 2
    checkpoint_file.write(saved, SCHEMA, {}, {})
    assert os.listdir(saved.parent) == [saved.name]


ON_A_FULL_DISK = """
import sys
import numpy as np
from weighbridge import CheckpointError; from weighbridge.core import checkpoint_file as checkpoint

def too_much(path, limit):
    try:
        checkpoint.write(path, "test", {"a": np.arange(100_000.0)}, {})
    except CheckpointError as error:
        print(error)
    else:
        raise SystemExit("nothing failed")
    assert checkpoint.read(path, "test")[0]["a"].tolist() == [1.0, 2.0]

path = sys.argv[1]
checkpoint.write(path, "test", {"a": np.array([1.0, 2.0])}, {})
if sys.argv[2] == "limit":
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
too_much(path, 0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files here")
def test_a_file_that_may_not_grow(tmp_path):
    path = tmp_path / "run.ckpt"
    told = subprocess.run(
        [sys.executable, "-c", ON_A_FULL_DISK, str(path), "limit"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "File too large" in told.stdout
    assert os.listdir(tmp_path) == ["run.ckpt"]


def test_a_full_disk(tmp_path):
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(tmp_path)]
    try:
        subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small file system cannot be mounted here (needs root)")
    try:
        told = subprocess.run(
            [sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path / "run.ckpt"), "disk"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "No space left on device" in told.stdout
        assert os.listdir(tmp_path) == ["run.ckpt"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_places_that_cannot_be_written(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match=r"no folder .*nowhere"):
        checkpoint_file.write(tmp_path / "nowhere" / "a", SCHEMA, {}, {})
    with pytest.raises(CheckpointError, match="it is a folder"):
        checkpoint_file.write(tmp_path, SCHEMA, {}, {})
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(CheckpointError, match="read-only"):
        checkpoint_file.check_place(tmp_path / "a")


def test_what_cannot_be_saved_is_refused_before_writing(saved):
    before = saved.read_bytes()
    with pytest.raises(TypeError, match="cannot be saved"):
        checkpoint_file.write(saved, SCHEMA, {}, {"thing": object()})
    assert saved.read_bytes() == before


def test_every_truncation_is_refused(saved):
    whole = saved.read_bytes()
    for length in [*range(40), *range(40, len(whole), 37), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"run\.ckpt"):
            checkpoint_file.read(saved, SCHEMA)


def test_every_flipped_bit_is_refused(saved):
    """Nothing but the file's padding may change unnoticed, and then the content is the same."""
    whole = saved.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    padding = len(whole[8 : 8 + length]) - len(whole[8 : 8 + length].rstrip())
    generator = np.random.default_rng(0)
    unnoticed = 0
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(generator.integers(8))
        saved.write_bytes(bytes(damaged))
        try:
            arrays, _ = checkpoint_file.read(saved, SCHEMA)
        except CheckpointError:
            continue
        unnoticed += 1
        assert all(arrays[name].tobytes() == value.tobytes() for name, value in ARRAYS.items())
    assert unnoticed <= padding


def _header(content, data=b""):
    text = json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text + data


class _Evil:
    def __reduce__(self):
        return os._exit, (1,)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"\x00" * 100,
        b"\xff" * 100,
        pickle.dumps(_Evil()),
        pickle.dumps({"a": np.ones(3)}),
        struct.pack("<Q", 2**62) + b"{}",
        _header({}),
        _header([]),
        _header({"__metadata__": {"schema": SCHEMA}}),
        _header({"__metadata__": {"schema": SCHEMA, "metadata": "{"}}),
        _header({"__metadata__": {"schema": SCHEMA, "metadata": "[]", "digest": "0"}}),
        _header({"__metadata__": {"schema": SCHEMA, "metadata": "[" * 100_000, "digest": ""}}),
        _header(
            {
                "__metadata__": {"schema": SCHEMA, "metadata": "{}", "digest": ""},
                "a": {"dtype": "F64", "shape": [1000], "data_offsets": [0, 8000]},
            }
        ),
    ],
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="other"):
        checkpoint_file.read(path, SCHEMA)


def test_a_file_says_what_wrote_it(saved):
    _, metadata = checkpoint_file.read(saved, SCHEMA)
    assert metadata["library"] == checkpoint_file.library_versions()
    assert metadata["precision"] == "float64"
    assert checkpoint_file.changed_versions(metadata) == ""
    older = {"library": checkpoint_file.library_versions() | {"jax": "0.1"}}
    assert "jax 0.1 (now" in checkpoint_file.changed_versions(older)
    assert "no record of the versions" in checkpoint_file.changed_versions({})


def test_metadata_that_could_not_be_read_back_are_not_written(saved):
    before = saved.read_bytes()
    with pytest.raises(CheckpointError, match="metadata have"):
        checkpoint_file.write(saved, SCHEMA, {}, {"text": "x" * checkpoint_file.LARGEST_HEADER})
    assert saved.read_bytes() == before


def test_a_file_beyond_the_limit_is_not_read(saved):
    size = saved.stat().st_size
    assert checkpoint_file.read(saved, SCHEMA, limit=size)
    with pytest.raises(CheckpointError, match="raise the limit"):
        checkpoint_file.read(saved, SCHEMA, limit=size - 1)


SPARSE = """
import json, resource, struct, sys
from pathlib import Path
import numpy as np
from weighbridge import CheckpointError; from weighbridge.core import checkpoint_file as checkpoint

def refused(path):
    try:
        checkpoint.read(path, "weighbridge.test.1")
    except CheckpointError:
        return True

def sparse(name, start, size):
    path = Path(sys.argv[1]) / name
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(size)
    return path

def header(shape, end, dtype="F64"):
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}
    about = {"schema": "weighbridge.test.1", "metadata": "{}", "digest": ""}
    text = json.dumps({"__metadata__": about, "a": entry}).encode()
    return struct.pack("<Q", len(text)) + text

nested = '{"schema": "weighbridge.test.1", "digest": "", "metadata": "' + "[" * (1 << 20) + '"}'
nested = ('{"__metadata__": ' + nested + "}").encode()
files = [
    sparse("small", b"", 0),
    sparse("header", struct.pack("<Q", 99_000_000) + b"{", 300 << 20),
    sparse("longer", struct.pack("<Q", 2**63 - 1), 300 << 20),
    sparse("spaces", struct.pack("<Q", 16 << 20) + b" " * (16 << 20), (16 << 20) + 8),
    sparse("large", header([2**20], 8 << 20), 9 << 30),
    sparse("shape", header([2**40], 8 << 20), (8 << 20) + len(header([2**40], 8 << 20))),
    sparse("overflow", header([2**62, 4], 0), len(header([2**62, 4], 0))),
    sparse("empty", header([0, 2**62], 0), len(header([0, 2**62], 0))),
    sparse("kind", header([4], 4, "F8_E4M3"), len(header([4], 4, "F8_E4M3")) + 4),
    sparse("nested", struct.pack("<Q", len(nested)) + nested, len(nested) + 8),
    sparse("deep", struct.pack("<Q", 1 << 20) + b"[" * (1 << 20), (1 << 20) + 8),
]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert all(refused(path) for path in files), [str(path) for path in files if not refused(path)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in kilobytes on Linux")
def test_crafted_files_are_refused_in_bounded_memory(tmp_path):
    """Headers and shapes that promise gigabytes; the largest file that is read has 16 MB."""
    told = subprocess.run(
        [sys.executable, "-c", SPARSE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(told.stdout) < 100_000, "kilobytes"


def test_other_schemas_and_missing_files(saved, tmp_path):
    with pytest.raises(CheckpointError, match=r"holds weighbridge\.test\.1, but other"):
        checkpoint_file.read(saved, "other")
    with pytest.raises(CheckpointError, match="There is no file"):
        checkpoint_file.read(tmp_path / "nothing", SCHEMA)
    with pytest.raises(CheckpointError, match="There is no file"):
        checkpoint_file.read(tmp_path, SCHEMA)
