"""Saved files: safetensors with JSON metadata, written completely or not at all; no pickle."""

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

# Files, and headers with the metadata, that have more bytes than this are not opened.
LARGEST_FILE = 8 << 30
LARGEST_HEADER = 16 << 20
# Metadata that every file has, in addition to those of its writer.
LIBRARY, PRECISION = "library", "precision"
# Errors that safetensors, NumPy and the JSON reader raise for a file of another kind.
_UNREADABLE = (
    *(SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError),
    RecursionError,
)


def write(
    path: str | Path, schema: str, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]
) -> None:
    """Write arrays and metadata to a file, with the versions of the libraries and a checksum.

    The bytes are written to a temporary file in the same folder, which is synced and then renamed.
    After a crash, the old file or the new file is there, never a part of one.
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
            f"Could not write {path}: its metadata have {size:,} bytes; only {LARGEST_HEADER:,} "
            "can be read back. Save less metadata with the run."
        )
    try:
        write_whole(path, payload)
    except NotDurableError as error:
        raise CheckpointError(
            f"{path} was written, but its folder could not be synced: {error.strerror}. It may be "
            "lost after a power cut. Check the disk."
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"Could not write {path}: {error.strerror or error}. Choose another folder."
        ) from error


def library_versions() -> dict[str, str]:
    """Versions of the software on which the numbers of a run depend.

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
    """A note that a file was written by other versions; empty if the versions are the same.

    >>> changed_versions({"library": library_versions()})
    ''
    """
    saved, now = metadata.get(LIBRARY), library_versions()
    if not isinstance(saved, dict):
        return "The checkpoint has no record of the versions that wrote it."
    changes = [
        f"{name} {saved.get(name, 'unknown')} (now {version})"
        for name, version in now.items()
        if saved.get(name) != version
    ]
    if not changes:
        return ""
    return (
        f"The checkpoint was written with {', '.join(changes)}. The run continues, but its last "
        "digits may differ from those of an uninterrupted one."
    )


def check_place(path: str | Path) -> None:
    """Refuse a file name that cannot be written; called before a long run, not after it."""
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
            "Choose another folder."
        )


def _plain(value: Any) -> Any:
    """Convert a NumPy number, which JSON cannot write, to a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be saved")


def _digest(arrays: Mapping[str, np.ndarray], text: str) -> str:
    """A hash of everything that is saved; it detects a changed bit."""
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        if array.size:  # as bytes, without a copy
            total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def verify(path: str | Path, limit: int = LARGEST_FILE) -> dict[str, Any]:
    """The metadata of a file of any schema, after its checksum was verified."""
    return read(path, None, limit)[1]


def read(
    path: str | Path, schema: str | None, limit: int = LARGEST_FILE
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a file of ``write``, or raise a ``CheckpointError`` that names what is wrong.

    No code from the file is run, and the memory used is at most the size of the file. The sizes of
    the file and of its header are checked first. The declared shapes must add up to the number of
    bytes in the file before any array is read.

    Args:
        path: the file.
        schema: the schema that the file must have; None accepts any.
        limit: larger files (in bytes) are refused without reading them.
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
                f"{path} is damaged: its contents differ from what was saved. Use another copy."
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
    """A block in which every error about the contents of a file is a ``CheckpointError``.

    Args:
        path: the file.
        what: what the file should hold, for the message.
    """
    try:
        yield
    except CheckpointError:
        raise
    # A crafted file can cause any error in a restore, so every exception is caught here.
    except Exception as error:
        told = error if str(error) else repr(error)
        raise CheckpointError(
            f"{path} is not a complete {what}: {told}. Use another copy, or start anew."
        ) from error


def _not_expected(found: str | None, schema: str) -> str:
    """The message for a file that holds something else, or an earlier version of the same.

    >>> _not_expected("weighbridge.online.5", "weighbridge.online.6")
    'was written before 0.2: finish it with 0.1, or start anew.'
    """
    kind, _, version = (found or "").rpartition(".")
    wanted, _, now = schema.rpartition(".")
    if kind == wanted and version.isdecimal() and int(version) < int(now):
        return "was written before 0.2: finish it with 0.1, or start anew."
    return (
        f"holds {found or 'something else'}, but {schema} was expected. Was it saved by another "
        "object or another version?"
    )


def _check_size(path: Path, limit: int) -> None:
    """Check the size of the file, and of its header (the first eight bytes), before reading."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
    if size > limit:
        raise CheckpointError(
            f"{path} has {size:,} bytes, but {limit:,} are allowed. Is it a checkpoint? If so, "
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
