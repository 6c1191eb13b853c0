"""Read NPZ files; the whole file is held in memory."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weighbridge.core.errors import DataError
from weighbridge.data.sources.reading import Block, Position, Reader, make_head
from weighbridge.data.sources.requested_columns import Request, check_present, select
from weighbridge.data.values import as_values, num_rows

# Limits on the unpacked size: this many times the file size, or this many bytes, if larger.
MOST_UNPACKED = 100
ALWAYS_UNPACKED = 1 << 30


def read_npz(path: Path, request: Request, position: Position | None = None) -> Reader:
    """Read a file as one block; a lenient request has no effect, since no single row can be bad."""
    columns, schema, _ = request
    try:
        # NumPy leaves a file open that is no archive: it is opened, and closed, here.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            check_present(archive.files, request.named)
            others = _no_arrays(archive.zip)
            for name in request.named:
                if name in others:
                    raise DataError(
                        f"{name!r} is not an array. Save it with np.savez, or leave it out."
                    )
            wanted = columns or [name for name in archive.files if name not in others]
            _check_sizes(archive.zip, wanted, path.stat().st_size)
            arrays = {name: archive[name] for name in wanted}
    except DataError:
        raise
    except AttributeError as error:  # a single array, as np.save writes it
        raise DataError("The file is not an archive of arrays. Save it with np.savez.") from error
    except MemoryError as error:
        raise DataError("The arrays do not fit into memory. Write them as Parquet.") from error
    except (
        ValueError,
        TypeError,
        OSError,
        EOFError,
        KeyError,
        RuntimeError,  # encrypted, or compressed in a way that zipfile does not know
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        reason = str(error)[:200]
        raise DataError(f"The file cannot be read ({reason}). Save it with np.savez.") from error
    present = [*arrays, *(name for name in others if columns is None)]
    if columns is None:
        arrays = {k: v for k, v in arrays.items() if v.dtype.kind in "biuf" or k in schema}
    values = select(as_values(arrays), Request(None, schema), 0) if arrays else {}
    yield make_head(list(arrays), present, num_rows(values) if arrays else 0)
    yield Block({"row": 0}, values)


def _no_arrays(archive: zipfile.ZipFile) -> list[str]:
    """Members that np.savez did not write, such as text; they are treated as text columns."""
    return [name for name in archive.namelist() if not name.endswith(".npy")]


def _check_sizes(archive: zipfile.ZipFile, names: Sequence[str], file_size: int) -> None:
    """Raise a DataError if an array claims to be larger than its part of the file.

    Each array begins with its shape, and NumPy would allocate memory for it at once.
    """
    total = 0
    members = set(archive.namelist())
    for name in names:
        member = name if name in members else f"{name}.npy"
        total += archive.getinfo(member).file_size
        _check_shape(archive, member, name)
    if total > max(ALWAYS_UNPACKED, MOST_UNPACKED * file_size):
        raise DataError(
            f"The file has {file_size:,} bytes and would be {total:,} when unpacked. If that is "
            "meant, save it with np.savez, which does not compress, or as Parquet."
        )


def _check_shape(archive: zipfile.ZipFile, member: str, name: str) -> None:
    info = archive.getinfo(member)
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:  # field names beyond Latin-1: not plain numbers
            raise DataError(f"Array {name!r} is not an array of plain numbers. Leave it out.")
        shape, _, dtype = read(file)
        claimed = math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and file.tell() + claimed != info.file_size:
            raise DataError(
                f"Array {name!r} has shape {shape}, which needs {claimed:,} bytes; the file has "
                f"{info.file_size:,} for it: it is damaged. Save it again with np.savez."
            )
