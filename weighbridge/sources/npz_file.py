"""Reads NPZ files, each at once."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from weighbridge.base import DataError
from weighbridge.data import as_values, num_rows
from weighbridge.sources.columns import Columns, Schema, check_present, select
from weighbridge.sources.reading import Position, Reader, make_head


def read_npz(
    path: Path, columns: Columns, schema: Schema, position: Position | None = None
) -> Reader:
    """Read a file as one block."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            check_present(archive.files, [*(columns or []), *schema])
            arrays = {name: archive[name] for name in columns or archive.files}
    except DataError:
        raise
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"The file cannot be read ({error}). Save it with np.savez.") from error
    present = list(arrays)
    if columns is None:
        arrays = {k: v for k, v in arrays.items() if v.dtype.kind in "biuf" or k in schema}
    values = select(as_values(arrays), None, schema, 0) if arrays else {}
    yield make_head(list(arrays), present, num_rows(values) if arrays else 0)
    yield {"row": 0}, values
