"""Saved files: written whole or not at all, read back exactly or refused."""

import errno
import json
import os
import pickle
import struct

import numpy as np
import pytest

from weighbridge import CheckpointError, checkpoint

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
    checkpoint.write(path, SCHEMA, ARRAYS, METADATA)
    return path


def test_round_trip_is_exact(saved):
    arrays, metadata = checkpoint.read(saved, SCHEMA)
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.tobytes()
    assert metadata["nan"] != metadata["nan"]
    assert (metadata["text"], metadata["count"], metadata["deep"]) == ("Größe", 3, {"a": [1, 2.5]})


def test_overwriting_leaves_one_file(saved):
    checkpoint.write(saved, SCHEMA, {"a": np.ones(2)}, {})
    assert list(checkpoint.read(saved, SCHEMA)[0]) == ["a"]
    assert os.listdir(saved.parent) == [saved.name]


@pytest.mark.parametrize("failing", ["os.replace", "os.fsync", "open"])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_a_failed_write_leaves_the_old_file(saved, monkeypatch, failing, error):
    before = saved.read_bytes()

    def fail(*args, **kwargs):
        raise error

    class FullDisk:
        """Takes half of what it is given."""

        def __init__(self, path, mode):
            self._file = real_open(path, mode)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._file.close()

        def write(self, payload):
            self._file.write(payload[: len(payload) // 2])
            raise error

    real_open = open
    if failing == "open":
        monkeypatch.setattr(checkpoint, "open", FullDisk, raising=False)
    else:
        monkeypatch.setattr(failing, fail)
    expected = CheckpointError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        checkpoint.write(saved, SCHEMA, {"a": np.ones(2)}, {})
    monkeypatch.undo()
    if expected is CheckpointError:
        assert "No space left" in str(caught.value)
        assert str(saved) in str(caught.value)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_places_that_cannot_be_written(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match=r"no folder .*nowhere"):
        checkpoint.write(tmp_path / "nowhere" / "a", SCHEMA, {}, {})
    with pytest.raises(CheckpointError, match="it is a folder"):
        checkpoint.write(tmp_path, SCHEMA, {}, {})
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(CheckpointError, match="read-only"):
        checkpoint.check_place(tmp_path / "a")


def test_what_cannot_be_saved_is_refused_before_writing(saved):
    before = saved.read_bytes()
    with pytest.raises(TypeError, match="cannot be saved"):
        checkpoint.write(saved, SCHEMA, {}, {"thing": object()})
    assert saved.read_bytes() == before


def test_every_truncation_is_refused(saved):
    whole = saved.read_bytes()
    for length in [*range(40), *range(40, len(whole), 37), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"run\.ckpt"):
            checkpoint.read(saved, SCHEMA)


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
            arrays, _ = checkpoint.read(saved, SCHEMA)
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
        checkpoint.read(path, SCHEMA)


def test_other_schemas_and_missing_files(saved, tmp_path):
    with pytest.raises(CheckpointError, match=r"holds weighbridge\.test\.1, and other"):
        checkpoint.read(saved, "other")
    with pytest.raises(CheckpointError, match="There is no file"):
        checkpoint.read(tmp_path / "nothing", SCHEMA)
    with pytest.raises(CheckpointError, match="There is no file"):
        checkpoint.read(tmp_path, SCHEMA)
