"""Saved files: safetensors with JSON metadata, written whole or not at all; never pickle."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from weighbridge.base import CheckpointError


def write(
    path: str | Path, schema: str, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]
) -> None:
    """Write arrays and metadata to a file.

    The bytes go to a temporary file beside it, which is synced and then renamed: a crash
    leaves the old file or the new one, never half of one.
    """
    path = Path(path)
    check_place(path)
    whole = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    text = json.dumps(metadata, default=_plain)
    header = {"schema": schema, "metadata": text, "digest": _digest(whole, text)}
    payload = save(whole, header)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        with contextlib.suppress(OSError):  # some file systems do not sync directories
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise CheckpointError(
            f"Could not write {path}: {error.strerror or error}. Choose another place."
        ) from error
    finally:  # after an interrupt too
        with contextlib.suppress(OSError):
            temporary.unlink()


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
        total.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        total.update(arrays[name].tobytes())
    return total.hexdigest()


def read(path: str | Path, schema: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what ``write`` wrote, or raise a ``CheckpointError`` that says what is wrong."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"There is no file {path}. Check the path.")
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
            found = header.get("schema")
            if found != schema:
                raise CheckpointError(
                    f"{path} holds {found or 'something else'}, and {schema} was expected. "
                    "Was it saved by another object or another version?"
                )
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = json.loads(header["metadata"])
        if header["digest"] != _digest(arrays, header["metadata"]):
            raise CheckpointError(
                f"{path} is damaged: its contents are not what was saved. Use another copy."
            )
    except (SafetensorError, OSError, KeyError, ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{path} is damaged or not a weighbridge file: {error}. Use another copy."
        ) from error
    if not isinstance(metadata, dict):
        raise CheckpointError(f"{path} is damaged: its metadata is not a mapping.")
    return arrays, metadata
