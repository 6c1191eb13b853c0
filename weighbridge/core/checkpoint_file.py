"""Saved files: safetensors with JSON metadata, written whole or not at all; never pickle."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

import weighbridge
from weighbridge.core.atomic_write import NotDurableError, write_whole
from weighbridge.core.errors import CheckpointError

# Bytes of a file, and of its header with the metadata, beyond which it is not even opened.
LARGEST_FILE = 8 << 30
LARGEST_HEADER = 16 << 20
# What every file says about itself, beside what its writer has to say.
LIBRARY, PRECISION = "library", "precision"
# What safetensors, NumPy and the JSON reader say of contents that are none of ours.
_UNREADABLE = (
    *(SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError),
    RecursionError,
)


def write(
    path: str | Path, schema: str, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]
) -> None:
    """Write arrays and metadata to a file, with the versions of the libraries and a checksum.

    The bytes go to a temporary file beside it, which is synced and then renamed: a crash
    leaves the old file or the new one, never half of one.
    """
    path = Path(path)
    check_place(path)
    whole = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    about = {LIBRARY: library_versions(), PRECISION: "float64"}
    text = json.dumps(about | dict(metadata), default=_plain)
    header = {"schema": schema, "metadata": text, "digest": _digest(whole, text)}
    payload = save(whole, header)
    if (size := struct.unpack("<Q", payload[:8])[0]) > LARGEST_HEADER:
        raise CheckpointError(
            f"Could not write {path}: its metadata take {size:,} bytes, and {LARGEST_HEADER:,} can "
            "be read back. Save less beside the run."
        )
    try:
        write_whole(path, payload)
    except NotDurableError as error:
        raise CheckpointError(
            f"{path} was written, but its folder could not be synced: {error.strerror}. It may be "
            "gone after a power cut. Check the disk."
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"Could not write {path}: {error.strerror or error}. Choose another place."
        ) from error


def library_versions() -> dict[str, str]:
    """Versions of what the numbers of a run depend on.

    >>> list(library_versions())
    ['weighbridge', 'jax', 'numpy', 'python']
    """
    return {
        "weighbridge": weighbridge.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def changed_versions(metadata: Mapping[str, Any]) -> str:
    """What to tell where a file was written by other versions; empty where it was not.

    >>> changed_versions({"library": library_versions()})
    ''
    """
    saved, now = metadata.get(LIBRARY), library_versions()
    if not isinstance(saved, dict):
        return "The checkpoint does not say which versions wrote it."
    changes = [
        f"{name} {saved.get(name, 'unknown')} (now {version})"
        for name, version in now.items()
        if saved.get(name) != version
    ]
    if not changes:
        return ""
    return (
        f"The checkpoint was written with {', '.join(changes)}: the run goes on, but its last "
        "digits may differ from those of an uninterrupted one."
    )


def check_place(path: str | Path) -> None:
    """Refuse a file name that cannot be written; ask before a long run, not after it."""
    path = Path(path)
    if not path.parent.is_dir():
        raise CheckpointError(
            f"Could not write {path}: there is no folder {str(path.parent)!r}. Make it first."
        )
    if path.is_dir():
        raise CheckpointError(f"Could not write {path}: it is a folder. Name a file in it.")
    if not os.access(path.parent, os.W_OK):
        raise CheckpointError(
            f"Could not write {path}: the folder {str(path.parent)!r} is read-only. "
            "Choose another place."
        )


def _plain(value: Any) -> Any:
    """NumPy numbers, which JSON does not know, as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be saved")


def _digest(arrays: Mapping[str, np.ndarray], text: str) -> str:
    """A hash of all that is saved: a flipped bit must not become a wrong number."""
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        if array.size:  # as bytes, without a copy
            total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def verify(path: str | Path, limit: int = LARGEST_FILE) -> dict[str, Any]:
    """The metadata of a file of whatever schema, all of which is what was saved."""
    return read(path, None, limit)[1]


def read(
    path: str | Path, schema: str | None, limit: int = LARGEST_FILE
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what ``write`` wrote, or raise a ``CheckpointError`` that says what is wrong.

    No code from the file is run, and no more memory is used than the file is long: the sizes of
    the file and of its header are looked at first, and the shapes that it declares must add up to
    the bytes that it has before one of them is read.

    Args:
        path: the file.
        schema: what it must hold; None takes any.
        limit: bytes beyond which it is refused unread.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"There is no file {path}. Check the path.")
    try:
        _check_size(path, limit)
        with safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
            found = header.get("schema")
            if schema is not None and found != schema:
                raise CheckpointError(f"{path} {_not_expected(found, schema)}")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header["digest"] != _digest(arrays, header["metadata"]):
            raise CheckpointError(
                f"{path} is damaged: its contents are not what was saved. Use another copy."
            )
        metadata = json.loads(header["metadata"])
    except CheckpointError:
        raise
    except _UNREADABLE as error:
        raise CheckpointError(
            f"{path} is damaged or not a weighbridge file: {error}. Use another copy."
        ) from error
    if not isinstance(metadata, dict):
        raise CheckpointError(f"{path} is damaged: its metadata is not a mapping.")
    return arrays, metadata


@contextlib.contextmanager
def refusing(path: str | Path, what: str = "run") -> Iterator[None]:
    """A block in which whatever is wrong with the contents of a file is a ``CheckpointError``.

    Args:
        path: the file.
        what: it should hold.
    """
    try:
        yield
    except CheckpointError:
        raise
    # What a crafted file can make of a restore is not to be listed; none of it may get out.
    except Exception as error:
        told = error if str(error) else repr(error)
        raise CheckpointError(
            f"{path} is not a complete {what}: {told}. Use another copy, or start anew."
        ) from error


def _not_expected(found: str | None, schema: str) -> str:
    """What to say of a file that holds something else, or the same of an earlier version.

    >>> _not_expected("weighbridge.online.5", "weighbridge.online.6")
    'was written before 0.2: finish it with 0.1, or start anew.'
    """
    kind, _, version = (found or "").rpartition(".")
    wanted, _, now = schema.rpartition(".")
    if kind == wanted and version.isdecimal() and int(version) < int(now):
        return "was written before 0.2: finish it with 0.1, or start anew."
    return (
        f"holds {found or 'something else'}, and {schema} was expected. Was it saved by another "
        "object or another version?"
    )


def _check_size(path: Path, limit: int) -> None:
    """Look at the first eight bytes, the length of the header, before anything is read."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
    if size > limit:
        raise CheckpointError(
            f"{path} has {size:,} bytes, and {limit:,} are allowed. Is it a checkpoint? If so, "
            "raise the limit."
        )
    if len(first) < 8:
        raise CheckpointError(f"{path} is damaged: it ends after {size} bytes. Use another copy.")
    (header,) = struct.unpack("<Q", first)
    if header > min(LARGEST_HEADER, size - 8):
        raise CheckpointError(
            f"{path} is damaged or not a weighbridge file: its header would have {header:,} bytes "
            f"of {size:,}. Use another copy."
        )
