"""Saved files: safetensors with JSON metadata, written whole or not at all; never pickle."""

from __future__ import annotations

import contextlib
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
    text = {"schema": schema, "metadata": json.dumps(metadata)}
    payload = save({name: np.ascontiguousarray(value) for name, value in arrays.items()}, text)
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
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise CheckpointError(
            f"Could not write {path}: {error.strerror or error}. Choose another place."
        ) from error


def read(path: str | Path, schema: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what ``write`` wrote, or raise a ``CheckpointError`` that says what is wrong."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"There is no file {path}.")
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
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is damaged or not a weighbridge file: {error}.") from error
    if not isinstance(metadata, dict):
        raise CheckpointError(f"{path} is damaged: its metadata is not a mapping.")
    return arrays, metadata
